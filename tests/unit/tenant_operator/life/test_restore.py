# SPDX-License-Identifier: Apache-2.0
"""Going back to a backup: phase by phase, and interrupted anywhere."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenant_operator.life import backup, restore, store_jobs
from tenant_operator.life.restore import MemberVolume, RestoreDecision, RestoreFacts
from tenant_operator.life.store_jobs import JobState
from tenant_operator.model.cluster_version import DatastoreSpec
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import BackupStatus, RestoreStatus
from tests.unit.tenant_operator import control_planes


def on_volume(**changes: Any) -> ControlPlane:
    images = msgspec.structs.replace(control_planes.IMAGES, backup="")
    release = msgspec.structs.replace(control_planes.RELEASE, images=images)
    return control_planes.control_plane(release=release, **changes)


CONTROL_PLANE = on_volume()
KEY = CONTROL_PLANE.key
NIGHTLY = BackupStatus("nightly", "2026-11-29T00:00:00Z", 7, 9, "slot-1", "Completed")
WEEKLY = BackupStatus("weekly", "2026-11-22T00:00:00Z", 5, 9, "slot-2", "Completed")
TOKEN = restore.token_of(CONTROL_PLANE, 1)
KEYS = backup.keys_ref(CONTROL_PLANE, "nightly")
CLAIM = Ref("PersistentVolumeClaim", KEY, "data-etcd-0")
JOB = Ref("Job", KEY, "restore-etcd-0")


def facts(**changes: Any) -> RestoreFacts:
    found = RestoreFacts(
        CONTROL_PLANE, "nightly", "", None, (NIGHTLY,), has_run=True, keys=KEYS, has_keys=True, pods=3
    )
    return msgspec.structs.replace(found, **changes)


def decided(**changes: Any) -> RestoreDecision:
    return restore.decide(facts(**changes), control_planes.INPUTS)


def in_phase(phase: str, **changes: Any) -> RestoreStatus:
    return msgspec.structs.replace(RestoreStatus("nightly", phase, 1, "slot-1"), **changes)


READ = JobState("c", is_complete=True)


def test_a_snapshot_is_read_before_anything_stops() -> None:
    found = decided()
    assert found.restore is not None
    assert (found.restore.phase, found.restore.count, found.is_active) == ("Checking", 1, False)
    checking = in_phase("Checking", message="m")
    found = decided(restore=checking)
    assert (found.restore, found.is_active, found.needs_snapshot) == (checking, False, True)
    job = next(each for each in found.manifests if each["kind"] == "Job")
    assert job["metadata"]["name"] == "restore-check-1"
    claims = [each.get("persistentVolumeClaim") for each in job["spec"]["template"]["spec"]["volumes"]]
    assert {"claimName": "backups"} in claims
    assert not any(claim and claim["claimName"].startswith("data-") for claim in claims)
    assert decided(restore=checking, check=JobState("c")).manifests == ()
    found = decided(restore=checking, check=JobState("c", is_failed=True))
    assert found.restore is not None
    assert (found.reason, found.restore.phase, found.is_active) == ("RestoreRefused", "Refused", False)
    assert f"kubectl logs -n {KEY} job/restore-check-1 " in found.message


@pytest.mark.parametrize("check", [None, READ, JobState("c", is_failed=True)])
@pytest.mark.parametrize("requested", ["", "weekly", "unknown"])
def test_a_request_is_taken_back_while_its_snapshot_is_read(requested: str, check: JobState | None) -> None:
    found = decided(restore=in_phase("Checking"), requested=requested, backups=(NIGHTLY, WEEKLY), check=check)
    assert not found.is_active
    restored = (found.restore.backup, found.restore.phase) if found.restore else ("", "")
    expected = {"": ("", ""), "weekly": ("weekly", "Checking"), "unknown": ("unknown", "Refused")}
    assert restored == expected[requested]


def test_deletions_are_held_before_anything_stops() -> None:
    message = "backup nightly waits for the end of the control plane's pods"
    assert decided(restore=in_phase("Checking"), check=READ) == RestoreDecision(
        "RestoreStopping",
        message,
        RestoreStatus("nightly", "Stopping", 1, "slot-1", message, TOKEN),
        hold_token=TOKEN,
    )
    found = decided(restore=in_phase("Stopping"))
    assert (found.is_stopped, found.hold_token, found.manifests) == (True, TOKEN, ())


def test_nothing_is_written_while_a_pod_is_left() -> None:
    found = decided(restore=in_phase("Stopping"), pods=1)
    assert found.message == "backup nightly waits for the end of 1 pods of the control plane"
    found = decided(restore=in_phase("Stopping"), pods=0)
    assert found.restore is not None
    assert (found.restore.phase, found.is_stopped) == ("Restoring", True)


OLD, NEW = MemberVolume("old"), MemberVolume("new", TOKEN)


@pytest.mark.parametrize(
    ("volumes", "jobs", "removed", "made"),
    [
        ({"etcd-0": OLD}, {}, ((CLAIM, "old"),), []),
        ({"etcd-0": MemberVolume("old", is_ending=True)}, {}, (), []),
        ({}, {}, (), ["PersistentVolumeClaim"]),
        ({"etcd-0": NEW}, {}, (), ["Job"]),
        ({"etcd-0": NEW}, {"etcd-0": JobState("j")}, (), []),
        # A Job that failed, one of a former restore, and one whose volume a person removed.
        ({"etcd-0": NEW}, {"etcd-0": JobState("j", is_failed=True)}, ((CLAIM, "new"), (JOB, "j")), []),
        ({"etcd-0": OLD}, {"etcd-0": JobState("j", is_complete=True)}, ((CLAIM, "old"), (JOB, "j")), []),
        ({}, {"etcd-0": JobState("j", is_complete=True)}, ((JOB, "j"),), []),
    ],
)
def test_a_member_gets_a_new_volume_and_one_job(
    volumes: dict[str, MemberVolume],
    jobs: dict[str, JobState],
    removed: tuple[tuple[Ref, str], ...],
    made: list[str],
) -> None:
    found = decided(restore=in_phase("Restoring"), pods=0, volumes=volumes, jobs=jobs)
    assert found.restore is not None
    assert (found.restore.phase, found.is_stopped, found.removed) == ("Restoring", True, removed)
    assert [each["kind"] for each in found.manifests] == ["NetworkPolicy", *made]


def test_members_follow_each_other() -> None:
    three = on_volume(replicas=3)
    volumes = {"etcd-0": MemberVolume("a", restore.token_of(three, 1))}
    jobs = {"etcd-0": JobState("j", is_complete=True)}
    found = decided(control_plane=three, restore=in_phase("Restoring"), volumes=volumes, jobs=jobs)
    assert [each["metadata"]["name"] for each in found.manifests] == ["backup", "data-etcd-1"]


def test_keys_of_the_backup_are_read_before_the_store_changes() -> None:
    found = decided(restore=in_phase("Stopping"), pods=0, has_keys=False)
    assert found.restore is not None
    assert (found.restore.phase, found.is_stopped) == ("Stopping", True)
    assert (found.keys_to_add, found.mark) == (KEYS, TOKEN)


def test_the_control_plane_starts_once_all_members_are_written() -> None:
    done = {"volumes": {"etcd-0": NEW}, "jobs": {"etcd-0": JobState("j", is_complete=True)}}
    found = decided(restore=in_phase("Restoring"), pods=0, **done)
    assert found.restore is not None
    assert (found.restore.phase, found.is_stopped) == ("Starting", True)
    found = decided(restore=in_phase("Starting"), **done)
    assert (found.reason, found.is_stopped) == ("RestoreStarting", False)
    found = decided(restore=in_phase("Starting"), is_available=True, **done)
    message = (
        "the tenant has what the backup has. vc-syncer keeps what it made since; to delete that, annotate "
        f"VirtualCluster tenants/acme with vcnode.io/release-held={TOKEN}"
    )
    assert found == RestoreDecision(
        "Restored",
        message,
        in_phase("Completed", message=message, hold=TOKEN),
        hold_token=TOKEN,
        removed=((JOB, "j"),),
    )


def test_a_completed_restore_is_not_begun_again() -> None:
    completed = in_phase("Completed")
    found = decided(restore=completed)
    assert not found.is_active
    assert (found.reason, found.restore, found.is_stopped) == ("Restored", completed, False)


def test_the_same_backup_can_be_asked_for_again() -> None:
    """With the next number, so that revisions rise once more."""
    found = decided(restore=in_phase("Completed"), requested="")
    assert (found.reason, found.restore) == ("NotRequested", RestoreStatus(count=1))
    found = decided(restore=RestoreStatus(count=1))
    assert found.restore is not None
    assert (found.restore.count, found.hold_token) == (2, "")
    found = decided(restore=found.restore, check=READ)
    assert found.hold_token == restore.token_of(CONTROL_PLANE, 2)


def test_what_has_begun_is_completed_without_its_request() -> None:
    for phase in ("Stopping", "Restoring", "Starting"):
        assert decided(restore=in_phase(phase), requested="").reason != "NotRequested"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"requested": "unknown"},
            "backup unknown: status.backups has no complete one of this name; there are: nightly",
        ),
        (
            {"backups": (BackupStatus("nightly", location="slot-1", phase="Running"),)},
            "backup nightly: status.backups has no complete one of this name; there are: none",
        ),
        (
            {"control_plane": on_volume(datastore=DatastoreSpec(size=""))},
            "backup nightly: ClusterVersion v1.34 keeps etcd in no volume: set spec.datastore.size",
        ),
        (
            {"control_plane": on_volume(datastore=DatastoreSpec("shared-etcd"))},
            "backup nightly: spec.datastore.type of ClusterVersion v1.34 is shared-etcd: a snapshot of a "
            "shared etcd has all tenants; the operator of that etcd must save it",
        ),
        (
            {"requested": "", "restore_from": "nightly", "has_run": False},
            "backup nightly: it is on a volume of another tenant's root namespace, and a new one cannot read "
            "it; name spec.images.backup in the ClusterVersion, which keeps backups elsewhere",
        ),
    ],
)
def test_what_cannot_be_restored_stops_nothing(changes: dict[str, Any], message: str) -> None:
    backup = message.removeprefix("backup ").partition(":")[0]
    refused = RestoreStatus(backup, "Refused", message=message)
    is_new = not changes.get("has_run", True)
    assert decided(**changes) == RestoreDecision("RestoreRefused", message, refused, is_stopped=is_new)


@pytest.mark.parametrize("phase", ["Stopping", "Restoring", "Starting"])
@pytest.mark.parametrize("requested", ["", "nightly", "weekly", "unknown"])
@pytest.mark.parametrize("failed", [False, True])
def test_another_backup_replaces_one_that_is_not_written(phase: str, requested: str, *, failed: bool) -> None:
    jobs = {"etcd-0": JobState("j", is_failed=True)} if failed else {}
    found = decided(
        restore=in_phase(phase), requested=requested, backups=(NIGHTLY, WEEKLY), jobs=jobs, pods=0
    )
    assert found.restore is not None
    if requested == "weekly" and phase != "Starting":
        assert (found.restore.backup, found.restore.location) == ("weekly", "slot-2")
        assert (found.restore.phase, found.restore.count, found.is_stopped) == ("Stopping", 2, True)
        assert found.hold_token == restore.token_of(CONTROL_PLANE, 2)
    else:
        assert (found.restore.backup, found.restore.count) == ("nightly", 1)


ELSEWHERE = control_planes.CONTROL_PLANE


@pytest.mark.parametrize("location", [*store_jobs.slots(), store_jobs.object_key(ELSEWHERE, "nightly")])
@pytest.mark.parametrize("is_elsewhere", [False, True])
@pytest.mark.parametrize("has_snapshots", [False, True])
def test_a_snapshot_that_cannot_be_read_stops_nothing(
    location: str, *, is_elsewhere: bool, has_snapshots: bool
) -> None:
    found = decided(
        control_plane=ELSEWHERE if is_elsewhere else CONTROL_PLANE,
        backups=(msgspec.structs.replace(NIGHTLY, location=location),),
        has_snapshots=has_snapshots,
    )
    is_readable = is_elsewhere != store_jobs.is_on_volume(location) and (is_elsewhere or has_snapshots)
    assert (found.reason, found.is_active) == (
        "RestoreChecking" if is_readable else "RestoreRefused",
        False,
    )


def test_refused_request_stays_refused_until_it_changes() -> None:
    """A backup of that name may be made months later."""
    refused = RestoreStatus("nightly", "Refused", 1, message="it has no complete one")
    assert decided(restore=refused) == RestoreDecision("RestoreRefused", refused.message, refused)
    for found in (
        decided(restore=msgspec.structs.replace(refused, backup="weekly")),
        decided(restore=decided(restore=refused, requested="").restore),
    ):
        assert found.restore is not None
        assert (found.restore.phase, found.restore.count) == ("Checking", 2)


@pytest.mark.parametrize("restored", ["Completed", "Refused", ""])
@pytest.mark.parametrize("requested", ["nightly", "weekly", ""])
@pytest.mark.parametrize("released", ["", "another", TOKEN])
def test_deletions_are_held_until_a_person_lets_go(restored: str, requested: str, released: str) -> None:
    before = RestoreStatus("nightly" if restored else "", restored, 1, hold=TOKEN)
    found = decided(restore=before, requested=requested, released=released)
    assert found.restore is not None
    held = restore.token_of(CONTROL_PLANE, 2) if found.restore.phase == "Stopping" else TOKEN
    expected = "" if (released, held) == (TOKEN, TOKEN) else held
    assert (found.hold_token, found.restore.hold) == (expected, expected)


def test_a_new_tenant_begins_with_a_backup_once() -> None:
    new: dict[str, Any] = {
        "control_plane": ELSEWHERE,
        "requested": "",
        "restore_from": "nightly",
        "backups": (),
        "has_run": False,
        "source": "uid-of-another",
        "pods": 0,
    }
    for key, value, text in (
        ("source", "", "spec.restoreFrom.uid does not name"),
        ("keys", None, "no VirtualCluster of namespace tenants with UID uid-of-another has the keys"),
    ):
        refused = decided(**(new | {key: value}))
        assert (refused.reason, refused.is_stopped) == ("RestoreRefused", True)
        assert text in refused.message
    found = decided(**new)
    assert found.restore is not None
    assert (found.restore.location, found.restore.phase, found.hold_token) == (
        "tenants/uid-of-another/nightly",
        "Stopping",
        "",
    )
    # Nothing starts before the status has it: it would begin empty.
    assert found.is_stopped
    completed = in_phase("Completed", location="tenants/uid-of-another/nightly")
    again = decided(**(new | {"restore": completed}))
    assert (again.restore, again.is_stopped) == (completed, False)
    again = decided(**(new | {"restore": completed, "has_run": True}))
    assert (again.reason, again.restore) == ("NotRequested", RestoreStatus(count=1))


class TenantWorld:
    """Pods, volumes and Jobs of one tenant. The operator may die behind each effect of a plan."""

    def __init__(self, replicas: int) -> None:
        self.control_plane = on_volume(replicas=replicas)
        self.status: RestoreStatus | None = None
        self.hold = ""
        self.has_keys = False
        self.is_running = True
        self.volumes = {f"etcd-{n}": MemberVolume(f"old-{n}") for n in range(replicas)}
        self.content = {f"old-{n}": "old" for n in range(replicas)}
        self.jobs: dict[str, JobState] = {}
        self.check: JobState | None = None
        self.made = 0

    def reconcile(self, reaches: int) -> RestoreDecision:
        found = restore.decide(
            RestoreFacts(
                self.control_plane,
                "nightly",
                "",
                self.status,
                (NIGHTLY,),
                has_run=True,
                keys=KEYS,
                has_keys=self.has_keys,
                pods=3 if self.is_running else 0,
                is_available=self.is_running,
                volumes=self.volumes,
                jobs=self.jobs,
                check=self.check,
            ),
            control_planes.INPUTS,
        )
        effects: list[Callable[[], None]] = [partial(self._hold, found), partial(self._scale, found)]
        effects += [partial(self._add_keys, found)]
        effects += [partial(self._remove, ref) for ref, _ in found.removed]
        effects += [partial(self._make, each) for each in found.manifests]
        effects += [partial(self._report, found)]
        for each in effects[:reaches]:
            each()
        return found

    def _hold(self, found: RestoreDecision) -> None:
        self.hold = found.hold_token or self.hold

    def _add_keys(self, found: RestoreDecision) -> None:
        self.has_keys |= found.keys_to_add is not None

    def _scale(self, found: RestoreDecision) -> None:
        if found.is_stopped and self.is_running:
            assert self.hold
        if not found.is_stopped and not self.is_running:
            assert {self.content[each.uid] for each in self.volumes.values()} == {"backup"}
            assert len(self.volumes) == self.control_plane.size.etcd.replicas
        self.is_running = not found.is_stopped

    def _remove(self, ref: Ref) -> None:
        member = ref.name.removeprefix("data-").removeprefix("restore-")
        if member.startswith("check-"):
            self.check = None
        elif ref.kind == "Job":
            self.jobs.pop(member, None)
        else:
            assert not self.is_running
            self.volumes.pop(member, None)

    def _make(self, manifest: dict[str, Any]) -> None:
        member = manifest["metadata"]["name"].removeprefix("data-").removeprefix("restore-")
        if manifest["kind"] == "PersistentVolumeClaim":
            self.made += 1
            token = manifest["metadata"]["annotations"]["vcnode.io/restore-token"]
            self.volumes[member] = MemberVolume(f"new-{self.made}", token)
            self.content[f"new-{self.made}"] = ""
        elif member.startswith("check-"):
            assert self.is_running
            self.check = READ
        elif manifest["kind"] == "Job":
            self.jobs.setdefault(member, JobState("uid", location="slot-1"))

    def _report(self, found: RestoreDecision) -> None:
        self.status = found.restore

    def work(self, outcome: str) -> None:
        """Pods of Jobs go on."""
        for member, job in self.jobs.items():
            volume = self.volumes.get(member)
            if job.is_complete or job.is_failed or volume is None or outcome == "goes on":
                continue
            assert not self.is_running
            is_written = self.content[volume.uid] == "" and outcome == "ends"
            # etcdutl refuses what is not empty, and leaves a part when it is killed.
            self.content[volume.uid] = "backup" if is_written else "part"
            self.jobs[member] = msgspec.structs.replace(job, is_complete=is_written, is_failed=not is_written)


@given(
    st.sampled_from([1, 3]),
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["ends", "fails", "goes on"])), max_size=80),
)
def test_every_interruption_ends_with_the_backup(replicas: int, history: list[tuple[int, str]]) -> None:
    world = TenantWorld(replicas)
    steps = iter(history)
    for _ in range(200):
        reaches, outcome = next(steps, (99, "ends"))
        found = world.reconcile(reaches)
        world.work(outcome)
        if found.reason == "Restored" and world.status == found.restore and world.is_running:
            break
    assert world.status is not None
    assert (world.status.phase, world.status.count) == ("Completed", 1)
    assert {world.content[each.uid] for each in world.volumes.values()} == {"backup"}
    assert world.has_keys
    assert world.hold == restore.token_of(world.control_plane, 1)
