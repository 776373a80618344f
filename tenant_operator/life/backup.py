# SPDX-License-Identifier: Apache-2.0
"""Backups of a tenant's store: what is done next for the one that was asked for, and which are kept. Pure.

A backup is a snapshot of etcd at one revision, restored on trial before it counts. It lies in one of a few
slots of a volume in the root namespace, or elsewhere by the program of `spec.images.backup`. The status names
a slot's new owner before the Job starts, and no two Jobs run at a time: so no entry names a snapshot that was
replaced, wherever the operator is interrupted. With a backup goes a copy of the keys with which the store is
encrypted: a rotation may drop them, and without them its Secrets are lost.
"""

from collections.abc import Mapping

import msgspec

from tenant_operator.datastores.sql import database_name
from tenant_operator.life import store_jobs
from tenant_operator.life.requests import text_of
from tenant_operator.life.store_jobs import JobState
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object, Ref
from tenant_operator.model.virtual_cluster import BackupStatus

RUNNING, COMPLETED, FAILED = "Running", "Completed", "Failed"
UNSUPPORTED = "BackupUnsupported"
"""The reason of a decision on a store that the operator does not save."""
RETRY_S = 300.0
"""A Job that failed is made anew after it, for ever."""
KEYS_PREFIX = f"{names.ENCRYPTION_CONFIG}-{store_jobs.BACKUP_PREFIX}"
"""With it begin the names of the Secrets with copies of keys."""
# By the type of a datastore that the operator does not save.
_REMEDIES = {
    "kine-sqlite": "kine has no snapshots; copy the SQLite database while the tenant sleeps, or use etcd",
    "kine-postgresql": "kine has no snapshots; run pg_dump of database {database} on the shared server",
    "shared-etcd": "a snapshot of a shared etcd has all tenants; the operator of that etcd must save it",
}
# What is kept elsewhere is listed for so long; the storage has rules of its own.
_MAX_LISTED = 32


class BackupFacts(msgspec.Struct, frozen=True):
    """`job` is the one of `store_jobs.backup_job_ref`, `others` are those of other backups.

    `log_problem`: why the log of `job` cannot be read. `is_available`: the store has a quorum. `has_keys`:
    the copy of keys is there, and as those of the store.
    """

    control_plane: ControlPlane
    requested: str
    backups: tuple[BackupStatus, ...]
    is_available: bool
    job: JobState | None = None
    has_keys: bool = True
    others: Mapping[Ref, JobState] = {}
    log_problem: str = ""


class BackupDecision(msgspec.Struct, frozen=True):
    """`backups` are for the status. `manifests` are applied once the status has them.

    `removed`: the Job, by its UID. `reads_log_of`: a Job whose container VERIFY is to be read into
    `JobState.report`. `copies_keys_to`: the Secret that gets the keys which encrypt the store now, before the
    manifests are applied.
    """

    reason: str
    message: str
    backups: tuple[BackupStatus, ...]
    manifests: tuple[Object, ...] = ()
    removed: tuple[tuple[Ref, str], ...] = ()
    reads_log_of: Ref | None = None
    copies_keys_to: Ref | None = None
    check_at_s: float | None = None


def problem_of(control_plane: ControlPlane) -> str:
    """Why the operator cannot save this store; empty if it can."""
    kind = control_plane.release.datastore.type
    remedy = _REMEDIES.get(kind, "").format(database=database_name(control_plane.uid))
    version = control_plane.release.name
    return f"spec.datastore.type of ClusterVersion {version} is {kind}: {remedy}" if remedy else ""


def keys_ref(control_plane: ControlPlane, backup: str) -> Ref:
    """The Secret with the keys that a backup's Secrets are encrypted with."""
    job = store_jobs.backup_job_ref(control_plane, backup).name
    return Ref("Secret", control_plane.key, f"{names.ENCRYPTION_CONFIG}-{job}")


def decide(facts: BackupFacts, inputs: ManifestInputs, now_s: float) -> BackupDecision:
    """What is next for the backup that was asked for."""
    name, entry = facts.requested, _entry(facts)
    ref = store_jobs.backup_job_ref(facts.control_plane, name)
    others = tuple((other, each.uid) for other, each in sorted(facts.others.items()))
    if not name:
        return BackupDecision("NotRequested", "no backup was asked for", _complete(facts), removed=others)
    if entry is not None and entry.phase == COMPLETED:
        removed = others if facts.job is None else (*others, (ref, facts.job.uid))
        return BackupDecision(
            "BackupCompleted", f"backup {name} is complete", _complete(facts), removed=removed
        )
    problem = problem_of(facts.control_plane)
    if problem:
        return _unsupported(facts, problem)
    if others:
        message = f"backup {name} waits for the end of {others[0][0]}, which is of another backup"
        return BackupDecision("BackupRunning", message, _with(facts, entry, message), removed=others)
    if facts.job is None:
        return _begin(facts, entry, inputs)
    if facts.job.is_failed:
        return _failed(facts, ref, facts.job, "its Job failed; `kubectl logs` of its pods shows why", now_s)
    if not facts.job.is_complete:
        message = f"backup {name} waits for {ref}"
        return BackupDecision("BackupRunning", message, _with(facts, entry, message))
    if facts.job.report is None:
        problem = f", which cannot be read: {facts.log_problem}" if facts.log_problem else ""
        message = f"backup {name} waits for the log of {ref}{problem}"
        return BackupDecision("BackupRunning", message, _with(facts, entry, message), reads_log_of=ref)
    if not facts.has_keys:
        return _failed(facts, ref, facts.job, "the keys of its Secrets changed meanwhile", now_s)
    report = store_jobs.report_of(facts.job.report)
    if report is None:
        return _failed(facts, ref, facts.job, "etcdutl finds no key in the snapshot", now_s)
    done = BackupStatus(
        name, text_of(facts.job.ended_s), report.revision, report.total_size, facts.job.location, COMPLETED
    )
    return BackupDecision("BackupCompleted", f"backup {name} is complete", _replaced(facts, done))


def _begin(facts: BackupFacts, entry: BackupStatus | None, inputs: ManifestInputs) -> BackupDecision:
    control_plane, name = facts.control_plane, facts.requested
    if control_plane.is_asleep:
        message = f"backup {name} waits for the tenant to wake: `kubectl vc wake {control_plane.name}`"
        return BackupDecision("Asleep", message, _with(facts, entry, message))
    if not facts.is_available:
        message = f"backup {name} waits for its etcd to be ready"
        return BackupDecision("StoreNotReady", message, _with(facts, entry, message))
    if entry is None or not entry.location:
        location = _free_location(facts)
        begun = BackupStatus(name, location=location, phase=RUNNING, message=f"backup {name} begins")
        return BackupDecision("BackupRunning", begun.message, _replaced(facts, begun))
    ref = store_jobs.backup_job_ref(control_plane, name)
    job = store_jobs.backup_job(control_plane, name, entry.location)
    volumes = () if control_plane.release.images.backup else (store_jobs.backup_volume(control_plane),)
    message = f"backup {name} waits for {ref}"
    return BackupDecision(
        "BackupRunning",
        message,
        _with(facts, entry, message),
        manifests=(*volumes, store_jobs.network_policy(control_plane, inputs), job),
        copies_keys_to=keys_ref(control_plane, name),
    )


def _failed(facts: BackupFacts, ref: Ref, job: JobState, why: str, now_s: float) -> BackupDecision:
    again_s = job.ended_s + RETRY_S
    message = f"backup {facts.requested}: {why}; it is tried again at {text_of(again_s)}"
    entry = BackupStatus(facts.requested, location=job.location, phase=FAILED, message=message)
    is_due = now_s >= again_s
    return BackupDecision(
        "BackupFailed",
        message,
        _replaced(facts, entry),
        removed=((ref, job.uid),) if is_due else (),
        check_at_s=None if is_due else again_s,
    )


def _unsupported(facts: BackupFacts, problem: str) -> BackupDecision:
    entry = BackupStatus(facts.requested, phase=FAILED, message=problem)
    return BackupDecision(UNSUPPORTED, problem, _replaced(facts, entry))


def _entry(facts: BackupFacts) -> BackupStatus | None:
    return next((each for each in facts.backups if each.name == facts.requested), None)


def _with(facts: BackupFacts, entry: BackupStatus | None, message: str) -> tuple[BackupStatus, ...]:
    location = facts.job.location if facts.job is not None else ""
    before = entry or BackupStatus(facts.requested, location=location)
    return _replaced(facts, msgspec.structs.replace(before, phase=RUNNING, message=message))


def _replaced(facts: BackupFacts, entry: BackupStatus) -> tuple[BackupStatus, ...]:
    """The list with this entry at its end, without what was in its place, and without what was given up."""
    kept = [
        each
        for each in _complete(facts)
        if each.name != entry.name and (not entry.location or each.location != entry.location)
    ]
    return (*kept[-(_MAX_LISTED - 1) :], entry)


def _complete(facts: BackupFacts) -> tuple[BackupStatus, ...]:
    return tuple(each for each in facts.backups if each.phase == COMPLETED)


def _free_location(facts: BackupFacts) -> str:
    """An unused slot, or that of the oldest backup: entries are in order."""
    if facts.control_plane.release.images.backup:
        return store_jobs.object_key(facts.control_plane, facts.requested)
    slots = store_jobs.slots()
    used = [each.location for each in facts.backups if each.location in slots]
    return next((slot for slot in slots if slot not in used), used[0] if used else slots[0])
