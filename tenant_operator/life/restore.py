# SPDX-License-Identifier: Apache-2.0
"""Goes back to a backup, in the same tenant or as a new one: what is done next. Pure.

The status has the phase, and each phase may be interrupted and begun again:

- `Checking`: a Job reads the snapshot and restores it on trial, while the tenant serves. If the Job fails,
  the restore is refused, and the tenant keeps its store. A new tenant has no store and skips this phase.
- `Stopping`: the control plane is scaled to nothing, so that no client writes. From before that on, vc-syncer
  holds deletions: the tenant will lack what was made since the backup, and the super cluster has the last
  copies that run. A person lets go of them by the token (`vcnode.io/release-held`). The keys of the backup
  are added to those that read.
- `Restoring`: each member gets a new volume, marked by the token, and a Job that writes the snapshot into it.
  etcdutl refuses a directory that is not empty: a Job that failed takes its volume along, and both are made
  anew.
- `Starting`: the control plane runs again.
- `Completed`. Until a person lets go of the deletions, the status has the token (`hold`), and the annotation
  is written again whenever it is missing: a replace of the VirtualCluster drops all its annotations.
- `Refused`, which stops nothing. A request by annotation stays refused until it is taken back or changes: a
  backup that is made of that name months later must not stop the tenant. A new tenant, which has nothing to
  lose, is judged again with each plan.

Revisions are raised with each restore (`store_jobs.BUMP`), so that no watch or list outside takes old state
for new. A restore that has begun is completed although its annotation is gone: half a store is none. The name
of another complete backup begins with that one: a snapshot that cannot be read is tried for ever.
"""

import hashlib
from collections.abc import Mapping

import msgspec

from tenancy import keys
from tenant_operator.life import store_jobs
from tenant_operator.life.backup import COMPLETED, problem_of
from tenant_operator.life.store_jobs import JobState
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object, Ref
from tenant_operator.model.virtual_cluster import BackupStatus, RestoreStatus

CHECKING, STOPPING, RESTORING, STARTING = "Checking", "Stopping", "Restoring", "Starting"
REFUSED = "Refused"
ACTIVE = (STOPPING, RESTORING, STARTING)


class MemberVolume(msgspec.Struct, frozen=True):
    """The claim of a member's volume. `token` is its annotation RESTORE_TOKEN."""

    uid: str
    token: str = ""
    is_ending: bool = False


class RestoreFacts(msgspec.Struct, frozen=True):
    """`requested` is the annotation, which counts once the tenant `has_run`, and `restore_from` the spec's
    field, which counts before it.

    `source` is the UID of the VirtualCluster that made the backup of the spec's field. `keys` is the Secret
    with the keys of the backup, if it is there; `has_keys`: they are among those that read. `has_snapshots`:
    the claim of the volume for them is there, which no program needs that keeps them elsewhere. `pods` counts
    those of API server, controller manager and etcd. `volumes` and `jobs` are by member; `check` is the Job
    that reads the snapshot first. `released` is the annotation RELEASE_HELD.
    """

    control_plane: ControlPlane
    requested: str
    restore_from: str
    restore: RestoreStatus | None
    backups: tuple[BackupStatus, ...]
    has_run: bool
    source: str = ""
    released: str = ""
    keys: Ref | None = None
    has_keys: bool = False
    has_snapshots: bool = True
    pods: int = 0
    is_available: bool = False
    volumes: Mapping[str, MemberVolume] = {}
    jobs: Mapping[str, JobState] = {}
    check: JobState | None = None


class RestoreDecision(msgspec.Struct, frozen=True):
    """`restore` is for the status. What else there is to do counts once the status has it.

    `is_stopped`: no workload has a pod. `hold_token`: the VirtualCluster's annotation HOLD_DELETIONS; empty
    leaves it as it is. `keys_to_add`: a Secret with keys by which the store's Secrets are read, too; `mark`
    is of this restore.
    """

    reason: str
    message: str
    restore: RestoreStatus | None
    is_stopped: bool = False
    hold_token: str = ""
    manifests: tuple[Object, ...] = ()
    removed: tuple[tuple[Ref, str], ...] = ()
    keys_to_add: Ref | None = None
    mark: str = ""

    @property
    def is_active(self) -> bool:
        """Whether the tenant does not serve because of it."""
        return self.is_stopped or (self.restore is not None and self.restore.phase in ACTIVE)

    @property
    def needs_snapshot(self) -> bool:
        """Whether no new backup may take the place of an old one."""
        return self.is_active or (self.restore is not None and self.restore.phase == CHECKING)


def token_of(control_plane: ControlPlane, restores: int) -> str:
    """Names one restore of one tenant; no two have the same."""
    return hashlib.sha256(f"{control_plane.uid}/{restores}".encode()).hexdigest()[:16]


def decide(facts: RestoreFacts, inputs: ManifestInputs) -> RestoreDecision:
    """What is next."""
    restore = facts.restore
    if restore is not None and restore.phase in ACTIVE:
        if _is_other_requested(facts, restore):
            return _begun(facts, facts.requested, restore.count + 1, is_stopped=True)
        return _next_phase(facts, restore, inputs)
    if restore is not None and restore.phase == CHECKING:
        if facts.requested == restore.backup and not _problem(facts, restore.backup):
            return _checked(facts, restore, inputs)
        # Nothing has begun.
        restore = RestoreStatus(count=restore.count, hold=restore.hold)
    if restore is not None and restore.hold and restore.hold == facts.released:
        restore = msgspec.structs.replace(restore, hold="")
    hold = "" if restore is None else restore.hold
    wanted = facts.requested if facts.has_run else facts.restore_from
    if restore is not None and restore.phase == COMPLETED and restore.backup == wanted:
        message = f"the tenant was restored from backup {wanted}"
        return RestoreDecision("Restored", message, restore, hold_token=hold, removed=_jobs(facts))
    if not wanted:
        message, without = "no restore was asked for", _without_request(restore)
        return RestoreDecision("NotRequested", message, without, hold_token=hold)
    if restore is not None and (restore.phase, restore.backup) == (REFUSED, wanted) and facts.has_run:
        return RestoreDecision("RestoreRefused", restore.message, restore, hold_token=hold)
    problem = _problem(facts, wanted)
    count = 0 if restore is None else restore.count
    if problem:
        message = f"backup {wanted}: {problem}"
        refused = RestoreStatus(wanted, REFUSED, count, message=message, hold=hold)
        # A new tenant does not begin empty in its place.
        return RestoreDecision(
            "RestoreRefused", message, refused, is_stopped=not facts.has_run, hold_token=hold
        )
    if facts.has_run:
        message = f"backup {wanted} waits for its snapshot to be read"
        checking = RestoreStatus(wanted, CHECKING, count + 1, _location(facts, wanted), message, hold)
        return RestoreDecision("RestoreChecking", message, checking, hold_token=hold)
    return _begun(facts, wanted, count + 1, is_stopped=True)


def _checked(facts: RestoreFacts, restore: RestoreStatus, inputs: ManifestInputs) -> RestoreDecision:
    """The Job that reads the snapshot, and what follows from its end."""
    control_plane, job = facts.control_plane, facts.check
    if job is not None and job.is_complete:
        # It is not stopped before the status has it: a person who reads the token knows what for.
        return _begun(facts, restore.backup, restore.count, is_stopped=False)
    if job is not None and job.is_failed:
        ref = store_jobs.check_job_ref(control_plane, restore.count)
        message = (
            f"backup {restore.backup}: its snapshot cannot be read, and the tenant serves on: kubectl logs "
            f"-n {ref.namespace} job/{ref.name} --all-containers; to try again, remove the annotation first"
        )
        refused = msgspec.structs.replace(restore, phase=REFUSED, message=message)
        return RestoreDecision("RestoreRefused", message, refused, hold_token=restore.hold)
    manifests = (
        store_jobs.network_policy(control_plane, inputs),
        store_jobs.check_job(control_plane, restore.location, restore.count),
    )
    return RestoreDecision(
        "RestoreChecking",
        restore.message,
        restore,
        hold_token=restore.hold,
        manifests=manifests if job is None else (),
    )


def _begun(facts: RestoreFacts, wanted: str, count: int, *, is_stopped: bool) -> RestoreDecision:
    message = f"backup {wanted} waits for the end of the control plane's pods"
    begun = RestoreStatus(wanted, STOPPING, count, _location(facts, wanted), message)
    begun = msgspec.structs.replace(begun, hold=_hold_token(facts, begun))
    return RestoreDecision("RestoreStopping", message, begun, is_stopped=is_stopped, hold_token=begun.hold)


def _is_other_requested(facts: RestoreFacts, restore: RestoreStatus) -> bool:
    """Whether another backup is asked for, and can be gone back to, before the store has this one."""
    is_other = facts.has_run and facts.requested not in ("", restore.backup)
    return is_other and restore.phase in (STOPPING, RESTORING) and not _problem(facts, facts.requested)


def _problem(facts: RestoreFacts, wanted: str) -> str:
    control_plane = facts.control_plane
    problem = problem_of(control_plane)
    if problem:
        return problem
    if not control_plane.release.datastore.size:
        version = f"ClusterVersion {control_plane.release.name}"
        return f"{version} keeps etcd in no volume: set spec.datastore.size"
    is_elsewhere = bool(control_plane.release.images.backup)
    if not facts.has_run and not is_elsewhere:
        return (
            "it is on a volume of another tenant's root namespace, and a new one cannot read it; name "
            "spec.images.backup in the ClusterVersion, which keeps backups elsewhere"
        )
    if not facts.has_run and not facts.source:
        return "spec.restoreFrom.uid does not name the VirtualCluster that made it; its metadata.uid is that"
    if not facts.has_run and facts.keys is None:
        return (
            f"no VirtualCluster of namespace {control_plane.namespace} with UID {facts.source} has the keys"
            " of its Secrets: they end with the VirtualCluster, unless its spec.volumes is Retain"
        )
    if facts.has_run and not _location(facts, wanted):
        known = [each.name for each in facts.backups if each.phase == COMPLETED]
        return f"status.backups has no complete one of this name; there are: {', '.join(known[:8]) or 'none'}"
    if facts.keys is None:
        return "the Secret with the keys of its Secrets is missing in the root namespace: restore that first"
    return _place_problem(facts, _location(facts, wanted), is_elsewhere=is_elsewhere)


def _place_problem(facts: RestoreFacts, location: str, *, is_elsewhere: bool) -> str:
    """Why the snapshot cannot be where the Job would look for it: the store is gone by then."""
    claim = f"PersistentVolumeClaim {facts.control_plane.key}/{store_jobs.BACKUPS}"
    version = f"ClusterVersion {facts.control_plane.release.name}"
    if store_jobs.is_on_volume(location) and is_elsewhere:
        return (
            f"it was made before {version} had spec.images.backup, and is in {claim}: name a ClusterVersion "
            "without that field for the restore"
        )
    if not store_jobs.is_on_volume(location) and not is_elsewhere:
        return f"it was made by a program that {version} does not name any more: set spec.images.backup"
    if not is_elsewhere and not facts.has_snapshots:
        return f"{claim} with all snapshots is gone: restore that first"
    return ""


def _location(facts: RestoreFacts, wanted: str) -> str:
    for each in facts.backups:
        if each.name == wanted and each.phase == COMPLETED:
            return each.location
    return "" if facts.has_run else store_jobs.object_key(facts.control_plane, wanted, facts.source)


def _without_request(restore: RestoreStatus | None) -> RestoreStatus | None:
    """The count, and what is held: the same backup can be asked for again."""
    if restore is None or not restore.backup:
        return restore
    return RestoreStatus(count=restore.count, hold=restore.hold)


def _hold_token(facts: RestoreFacts, restore: RestoreStatus) -> str:
    # A new tenant has nothing in the super cluster that could be deleted.
    return token_of(facts.control_plane, restore.count) if facts.has_run else ""


def _next_phase(facts: RestoreFacts, restore: RestoreStatus, inputs: ManifestInputs) -> RestoreDecision:
    token = _hold_token(facts, restore)
    restore = msgspec.structs.replace(restore, hold=token)
    if restore.phase == STOPPING:
        if facts.pods:
            message = f"backup {restore.backup} waits for the end of {facts.pods} pods of the control plane"
            status = msgspec.structs.replace(restore, message=message)
            return RestoreDecision("RestoreStopping", message, status, is_stopped=True, hold_token=token)
        if not facts.has_keys:
            message = f"backup {restore.backup} waits for the keys of its Secrets"
            status = msgspec.structs.replace(restore, message=message)
            return RestoreDecision(
                "RestoreStopping",
                message,
                status,
                is_stopped=True,
                hold_token=token,
                keys_to_add=facts.keys,
                mark=token_of(facts.control_plane, restore.count),
            )
        after = msgspec.structs.replace(restore, phase=RESTORING, message="no pod is left")
        return RestoreDecision("Restoring", after.message, after, is_stopped=True, hold_token=token)
    if restore.phase == RESTORING:
        return _writing(facts, restore, inputs, token)
    if not facts.is_available:
        message = f"backup {restore.backup} is written, and waits for the control plane to be ready"
        status = msgspec.structs.replace(restore, message=message)
        return RestoreDecision("RestoreStarting", message, status, hold_token=token)
    done = msgspec.structs.replace(restore, phase=COMPLETED, message=_held(facts, token))
    return RestoreDecision("Restored", done.message, done, hold_token=token, removed=_jobs(facts))


def _held(facts: RestoreFacts, token: str) -> str:
    if not token:
        return "the tenant has what the backup has"
    name = f"{facts.control_plane.namespace}/{facts.control_plane.name}"
    return (
        "the tenant has what the backup has. vc-syncer keeps what it made since; to delete that, annotate "
        f"VirtualCluster {name} with vcnode.io/release-held={token}"
    )


def _writing(
    facts: RestoreFacts, restore: RestoreStatus, inputs: ManifestInputs, token: str
) -> RestoreDecision:
    """One step for each member; the next phase once all have the snapshot."""
    control_plane = facts.control_plane
    mark = token_of(control_plane, restore.count)
    manifests: list[Object] = []
    removed: list[tuple[Ref, str]] = []
    waits: list[str] = []
    for member in store_jobs.members(control_plane):
        if waits:
            break  # one at a time: the snapshots' volume may be attached to one node alone
        volume, job = facts.volumes.get(member), facts.jobs.get(member)
        claim = Ref("PersistentVolumeClaim", control_plane.key, store_jobs.claim_of(member))
        ref = store_jobs.restore_job_ref(control_plane, member)
        is_new = volume is not None and volume.token == mark and not volume.is_ending
        if job is not None and (job.is_failed or not is_new):
            # Of a former restore, or its volume was removed: the Job first, so that it shows what is left.
            waits.append(f"another try, as {ref} failed" if job.is_failed and is_new else str(claim))
            if volume is not None and not volume.is_ending:
                removed.append((claim, volume.uid))
            removed.append((ref, job.uid))
        elif volume is None:
            waits.append(str(claim))
            manifests.append(store_jobs.data_volume(control_plane, member, mark))
        elif not is_new:
            waits.append(f"the end of {claim}")
            if not volume.is_ending:
                removed.append((claim, volume.uid))
        elif job is None:
            waits.append(str(ref))
            manifests.append(store_jobs.restore_job(control_plane, member, restore.location, restore.count))
        elif not job.is_complete:
            waits.append(str(ref))
    if waits:
        message = f"backup {restore.backup} waits for {waits[0]}"
        if facts.has_run:
            message += f"; to go back to another one, name it in {keys.RESTORE_REQUESTED}"
        status = msgspec.structs.replace(restore, message=message)
        policy = store_jobs.network_policy(control_plane, inputs)
        return RestoreDecision(
            "Restoring",
            message,
            status,
            is_stopped=True,
            hold_token=token,
            manifests=(policy, *manifests),
            removed=tuple(removed),
        )
    after = msgspec.structs.replace(restore, phase=STARTING, message="all members have the backup")
    return RestoreDecision("RestoreStarting", after.message, after, is_stopped=True, hold_token=token)


def _jobs(facts: RestoreFacts) -> tuple[tuple[Ref, str], ...]:
    """All that are left."""
    control_plane = facts.control_plane
    found = [
        (store_jobs.restore_job_ref(control_plane, member), job.uid)
        for member, job in sorted(facts.jobs.items())
    ]
    if facts.check is not None and facts.restore is not None:
        found.append((store_jobs.check_job_ref(control_plane, facts.restore.count), facts.check.uid))
    return tuple(found)
