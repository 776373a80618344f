# SPDX-License-Identifier: Apache-2.0
"""Going back to a backup: `life.restore` decides, here are its facts and steps."""

from collections.abc import Mapping

import msgspec

from tenancy import keys
from tenant_operator.core.backups import credentials_of, job_state
from tenant_operator.core.conditions import ConditionType, fails
from tenant_operator.core.live import LiveObject
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder, TenantPlan
from tenant_operator.core.steps import AddEncryptionKeys, PatchCluster, Remove
from tenant_operator.core.workloads import pods_of, workloads
from tenant_operator.core.writes import apply_all
from tenant_operator.life import restore as rules
from tenant_operator.life import store_jobs
from tenant_operator.life.backup import keys_ref
from tenant_operator.life.restore import MemberVolume, RestoreDecision, RestoreFacts
from tenant_operator.life.store_jobs import JobState
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Ref

_AWAITED_S = 1.0
# A new tenant that is refused may begin later, once another tenant's backup is complete.
_REFUSED_S = 30.0


def decide(
    observed: Observed, control_plane: ControlPlane, inputs: ManifestInputs, requested: str, *, has_run: bool
) -> RestoreDecision:
    """What is next. Nothing stops before vc-syncer is asked to hold deletions."""
    found = rules.decide(_facts(observed, control_plane, inputs, requested, has_run=has_run), inputs)
    annotations = observed.virtual_cluster.metadata.annotations
    if not found.hold_token or annotations.get(keys.HOLD_DELETIONS) == found.hold_token:
        return msgspec.structs.replace(found, hold_token="")
    before = observed.virtual_cluster.status.restore
    if before is None or before.phase != rules.STOPPING:
        return found
    return RestoreDecision(found.reason, found.message, before, hold_token=found.hold_token)


def settle(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    inputs: ManifestInputs,
    found: RestoreDecision,
) -> None:
    """Steps of a decision, beside those that stop or start the control plane."""
    meta = observed.virtual_cluster.metadata
    if found.hold_token:
        annotations = {**meta.annotations, keys.HOLD_DELETIONS: found.hold_token}
        patch = {"resourceVersion": meta.resource_version, "annotations": annotations}
        builder.steps.append(PatchCluster({"metadata": patch}))
        builder.look_again(_AWAITED_S)
    if found.keys_to_add is not None:
        target = Ref("Secret", control_plane.key, names.ENCRYPTION_CONFIG)
        namespace = control_plane.namespace if found.keys_to_add.namespace != control_plane.key else ""
        step = AddEncryptionKeys(found.keys_to_add, target, control_plane.labels, found.mark, namespace)
        builder.steps.append(step)
    if any(each["kind"] == "Job" for each in found.manifests):
        builder.steps += credentials_of(control_plane, inputs)
    apply_all(builder, observed, found.manifests)
    for ref, uid in found.removed:
        live = observed.objects.get(ref)
        if live is None or not live.is_ending:
            builder.steps.append(Remove(ref, uid))
    if found.reason == "RestoreRefused" and found.is_stopped:
        builder.look_again(_REFUSED_S)
    if found.is_active:
        builder.wait(found.message)


def with_restore(made: TenantPlan, found: RestoreDecision) -> TenantPlan:
    """The plan with the restore in the status, and in the conditions of a tenant that does not serve because
    of it."""
    findings = made.findings
    if found.is_active:
        at_rest = (ConditionType.READY, ConditionType.CONTROL_PLANE_AVAILABLE)
        findings = tuple(
            fails(each.type, found.reason, found.message) if each.type in at_rest else each
            for each in findings
        )
    return msgspec.structs.replace(made, findings=findings, restore=found.restore)


def _facts(
    observed: Observed,
    control_plane: ControlPlane,
    inputs: ManifestInputs,
    requested: str,
    *,
    has_run: bool,
) -> RestoreFacts:
    status, spec = observed.virtual_cluster.status, observed.virtual_cluster.spec
    asked = spec.restore_from
    # A store that has started is never begun anew, though a client emptied the status.
    is_new = asked is not None and (status.restore is not None or not inputs.has_started_store)
    released = observed.virtual_cluster.metadata.annotations.get(keys.RELEASE_HELD, "")
    begun = status.restore if status.restore is not None and status.restore.phase in rules.ACTIVE else None
    backup = (
        begun.backup if begun is not None else (requested if has_run else (asked.backup if asked else ""))
    )
    mark = rules.token_of(control_plane, begun.count if begun is not None else 0)
    config = observed.live("Secret", control_plane.key, names.ENCRYPTION_CONFIG)
    own = _members(observed, control_plane)
    parts = workloads(observed, control_plane)
    source = asked.uid if asked is not None else ""
    return RestoreFacts(
        control_plane,
        requested,
        asked.backup if asked is not None and is_new else "",
        status.restore,
        tuple(status.backups),
        has_run=has_run,
        source=source,
        released=released,
        keys=_keys(observed, control_plane, backup, "" if has_run else source),
        has_keys=config is not None and config.metadata.annotations.get(keys.RESTORE_TOKEN) == mark,
        has_snapshots=observed.live("PersistentVolumeClaim", control_plane.key, store_jobs.BACKUPS)
        is not None,
        pods=pods_of(parts),
        is_available=all(each.is_available and each.is_observed and each.desired for each in parts),
        volumes={
            member: MemberVolume(
                live.metadata.uid, live.metadata.annotations.get(keys.RESTORE_TOKEN, ""), live.is_ending
            )
            for member, live in own["PersistentVolumeClaim"].items()
        },
        jobs={member: job_state(observed, live) for member, live in own["Job"].items()},
        check=_check(observed, control_plane),
    )


def _check(observed: Observed, control_plane: ControlPlane) -> JobState | None:
    restore = observed.virtual_cluster.status.restore
    ref = store_jobs.check_job_ref(control_plane, restore.count if restore is not None else 0)
    return job_state(observed, observed.objects[ref]) if ref in observed.objects else None


def _members(observed: Observed, control_plane: ControlPlane) -> Mapping[str, Mapping[str, LiveObject]]:
    """Claims and Jobs of the members, by kind and member."""
    found: dict[str, dict[str, LiveObject]] = {"PersistentVolumeClaim": {}, "Job": {}}
    for member in store_jobs.members(control_plane):
        claim = Ref("PersistentVolumeClaim", control_plane.key, store_jobs.claim_of(member))
        for ref in (claim, store_jobs.restore_job_ref(control_plane, member)):
            if ref in observed.objects:
                found[ref.kind][member] = observed.objects[ref]
    return found


def _keys(observed: Observed, control_plane: ControlPlane, backup: str, source: str) -> Ref | None:
    """The Secret with the keys of a backup: of this tenant, or of the VirtualCluster with the UID `source`,
    which must be of the same namespace."""
    name = keys_ref(control_plane, backup).name
    if not source:
        ref = Ref("Secret", control_plane.key, name)
        return ref if ref in observed.objects else None
    roots = {
        ref.name
        for ref, live in observed.source_objects.items()
        if ref.kind == "Namespace"
        and live.metadata.annotations.get(keys.VC_NAMESPACE) == control_plane.namespace
        and live.metadata.annotations.get(keys.VC_UID) == source
    }
    found = (ref for ref in observed.source_objects if ref.kind == "Secret" and ref.name == name)
    return next((ref for ref in found if ref.namespace in roots), None)
