# SPDX-License-Identifier: Apache-2.0
"""Backups of a tenant's store: `life.backup` decides, here are its facts and steps."""

from tenancy import keys
from tenant_operator.core import availability
from tenant_operator.core.conditions import ConditionType, fails
from tenant_operator.core.live import LiveObject
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder
from tenant_operator.core.probes import JobLogProbe
from tenant_operator.core.steps import CopySecret, Remove
from tenant_operator.core.workloads import readiness_of
from tenant_operator.core.writes import apply_all
from tenant_operator.life import backup as rules
from tenant_operator.life import store_jobs
from tenant_operator.life.backup import BackupDecision, BackupFacts
from tenant_operator.life.requests import time_of
from tenant_operator.life.store_jobs import JobState
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object, Ref, ref_of
from tenant_operator.model.virtual_cluster import BackupStatus

_AWAITED_S = 1.0


def settle(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    inputs: ManifestInputs,
    requested: str,
    *,
    is_frozen: bool,
) -> tuple[BackupStatus, ...]:
    """The next steps of the backup that was asked for; returns the list for the status.

    `is_frozen`: none begins now, as the store is being replaced, by one that it may take the place of.
    """
    facts = _facts(observed, control_plane, requested, is_frozen=is_frozen)
    found = rules.decide(facts, inputs, observed.now_s)
    if found.reason == rules.UNSUPPORTED:
        message = f"backup {requested}: {found.message}. Then remove the annotation {keys.BACKUP_REQUESTED}"
        builder.findings.append(fails(ConditionType.UP_TO_DATE, found.reason, message))
    if found.copies_keys_to is not None and not _has_keys(observed, found.copies_keys_to):
        source = Ref("Secret", control_plane.key, names.ENCRYPTION_CONFIG)
        builder.steps.append(CopySecret(source, found.copies_keys_to, control_plane.labels))
    if found.manifests:
        builder.steps += credentials_of(control_plane, inputs)
    # A claim that is there keeps its size: the API server refuses a smaller one, and the step would fail for
    # ever.
    made = {ref for ref in observed.objects if ref.kind == "PersistentVolumeClaim"}
    apply_all(builder, observed, [each for each in found.manifests if ref_of(each) not in made])
    builder.steps += [Remove(ref, uid) for ref, uid in found.removed if not _is_ending(observed, ref)]
    _forget_keys(builder, observed, control_plane, found)
    if found.reads_log_of is not None:
        probe = JobLogProbe(found.reads_log_of, observed.objects[found.reads_log_of].metadata.uid)
        if availability.is_due(observed, probe.name, 0.0, _AWAITED_S):
            builder.probes.append(probe)
        builder.look_again(_AWAITED_S)
    if found.check_at_s is not None:
        builder.look_again(max(found.check_at_s - observed.now_s, 1.0))
    return found.backups


def credentials_of(control_plane: ControlPlane, inputs: ManifestInputs) -> list[CopySecret]:
    """Before a Job that runs the program for backups: its credentials, as they are now."""
    if not control_plane.release.images.backup:
        return []
    name = names.BACKUP_CREDENTIALS
    source, target = (
        Ref("Secret", namespace, name) for namespace in (inputs.operator_namespace, control_plane.key)
    )
    return [CopySecret(source, target, control_plane.labels, is_optional=True)]


def forget_credentials(builder: PlanBuilder, observed: Observed, control_plane: ControlPlane) -> None:
    """Remove the copy behind the last Job that runs the program: it opens the backups of all tenants."""
    ref = Ref("Secret", control_plane.key, names.BACKUP_CREDENTIALS)
    live = observed.objects.get(ref)
    if live is None or live.is_ending:
        return
    is_copied_now = any(isinstance(each, CopySecret) and each.target == ref for each in builder.steps)
    if not is_copied_now and not any(map(_is_active, observed.objects.items())):
        builder.steps.append(Remove(ref, live.metadata.uid))


def _is_active(found: tuple[Ref, LiveObject]) -> bool:
    ref, live = found
    is_of_backups = ref.name.startswith((store_jobs.BACKUP_PREFIX, store_jobs.RESTORE_PREFIX))
    return ref.kind == "Job" and is_of_backups and not _ended(live.value)


def job_state(observed: Observed, live: LiveObject) -> JobState:
    """What a plan needs to know of a Job."""
    report = observed.probes.get("job-log")
    is_its = report is not None and report.is_ok and report.facts.get("uid") == live.metadata.uid
    value = live.value
    ended = _ended(value)
    return JobState(
        live.metadata.uid,
        is_complete=ended.get("type") == "Complete",
        is_failed=ended.get("type") == "Failed",
        ended_s=time_of(ended.get("lastTransitionTime", "")) or observed.now_s,
        location=live.metadata.annotations.get(keys.BACKUP_LOCATION, ""),
        report=report.facts.get("text", "") if report is not None and is_its else None,
    )


def _ended(job: Object) -> Object:
    """The condition by which a Job has ended; empty before."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    ends = (each for each in conditions if each.get("type") in ("Complete", "Failed"))
    return next((each for each in ends if each.get("status") == "True"), {})


def _facts(
    observed: Observed, control_plane: ControlPlane, requested: str, *, is_frozen: bool
) -> BackupFacts:
    own = store_jobs.backup_job_ref(control_plane, requested)
    jobs = {
        ref: job_state(observed, live)
        for ref, live in observed.objects.items()
        if ref.kind == "Job" and ref.name.startswith(store_jobs.BACKUP_PREFIX)
    }
    store = readiness_of(names.ETCD, observed.live("StatefulSet", control_plane.key, names.ETCD))
    return BackupFacts(
        control_plane,
        requested,
        tuple(observed.virtual_cluster.status.backups),
        is_available=store.is_available and store.desired > 0 and not is_frozen,
        job=jobs.pop(own, None) if requested else None,
        has_keys=_has_keys(observed, rules.keys_ref(control_plane, requested)),
        others=jobs,
        log_problem=_log_problem(observed),
    )


def _log_problem(observed: Observed) -> str:
    found = observed.probes.get("job-log")
    return found.detail if found is not None and not found.is_ok else ""


def _has_keys(observed: Observed, copy: Ref) -> bool:
    source = observed.live("Secret", copy.namespace, names.ENCRYPTION_CONFIG)
    live = observed.objects.get(copy)
    return source is not None and live is not None and live.digests == source.digests


def _is_ending(observed: Observed, ref: Ref) -> bool:
    live = observed.objects.get(ref)
    return live is not None and live.is_ending


def _forget_keys(
    builder: PlanBuilder, observed: Observed, control_plane: ControlPlane, found: BackupDecision
) -> None:
    """Copies of keys of which no backup is listed any more, in the status as it is and as it is to be."""
    listed = (*observed.virtual_cluster.status.backups, *found.backups)
    kept = {rules.keys_ref(control_plane, each.name) for each in listed}
    for ref, live in sorted(observed.objects.items()):
        if ref.kind == "Secret" and ref.name.startswith(rules.KEYS_PREFIX) and ref not in kept:
            builder.steps.append(Remove(ref, live.metadata.uid))
