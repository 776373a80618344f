# SPDX-License-Identifier: Apache-2.0
"""One backup from its request to its entry in the status; and which snapshots are kept."""

import datetime as dt
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenant_operator.datastores.sql import database_name
from tenant_operator.life import backup, store_jobs
from tenant_operator.life.backup import BackupDecision, BackupFacts
from tenant_operator.life.store_jobs import JobState
from tenant_operator.model.cluster_version import DatastoreSpec
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import BackupStatus
from tests.unit.tenant_operator import control_planes

NOW_S = dt.datetime(2026, 11, 30, 8, 0, tzinfo=dt.UTC).timestamp()
REPORT = '{"hash":7,"revision":1119,"totalKey":208,"totalSize":614400,"version":"3.7.0"}'
KEY = control_planes.CONTROL_PLANE.key


def on_volume(**changes: Any) -> ControlPlane:
    images = msgspec.structs.replace(control_planes.IMAGES, backup="")
    release = msgspec.structs.replace(control_planes.RELEASE, images=images)
    return control_planes.control_plane(release=release, **changes)


CONTROL_PLANE = on_volume()
JOB = store_jobs.backup_job_ref(CONTROL_PLANE, "nightly")


def decided(
    *backups: BackupStatus,
    requested: str = "nightly",
    job: JobState | None = None,
    control_plane: ControlPlane = CONTROL_PLANE,
    is_available: bool = True,
    now_s: float = NOW_S,
    **more: Any,
) -> BackupDecision:
    facts = BackupFacts(control_plane, requested, backups, is_available, job, **more)
    return backup.decide(facts, control_planes.INPUTS, now_s)


def done(name: str, slot: int) -> BackupStatus:
    return BackupStatus(name, "2026-11-29T00:00:00Z", 7, 9, f"slot-{slot}", "Completed")


def test_without_a_request_nothing_happens() -> None:
    kept = (done("old", 0),)
    assert decided(*kept, requested="") == BackupDecision("NotRequested", "no backup was asked for", kept)


def test_the_status_has_the_slot_before_the_job_starts() -> None:
    found = decided(done("old", 0))
    begun = BackupStatus("nightly", location="slot-1", phase="Running", message="backup nightly begins")
    assert found == BackupDecision("BackupRunning", "backup nightly begins", (done("old", 0), begun))
    found = decided(*found.backups)
    assert [(each["kind"], each["metadata"]["name"]) for each in found.manifests] == [
        ("PersistentVolumeClaim", "backups"),
        ("NetworkPolicy", "backup"),
        ("Job", JOB.name),
    ]
    assert found.copies_keys_to == Ref("Secret", KEY, f"encryption-config-{JOB.name}")
    assert found.message == f"backup nightly waits for Job {KEY}/{JOB.name}"


def test_a_complete_job_is_read_and_ends_as_an_entry() -> None:
    entry = BackupStatus("nightly", location="slot-0", phase="Running")
    job = JobState("uid", is_complete=True, ended_s=NOW_S, location="slot-0")
    assert decided(entry, job=job).reads_log_of == JOB
    found = decided(entry, job=msgspec.structs.replace(job, report=REPORT))
    complete = BackupStatus("nightly", "2026-11-30T08:00:00Z", 1119, 614400, "slot-0", "Completed")
    assert found == BackupDecision("BackupCompleted", "backup nightly is complete", (complete,))
    found = decided(complete, job=job)
    assert (found.reason, found.removed) == ("BackupCompleted", ((JOB, "uid"),))
    assert decided(complete).removed == ()


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (JobState("uid", is_failed=True), "its Job failed; `kubectl logs` of its pods shows why"),
        (JobState("uid", is_complete=True, report="nonsense"), "etcdutl finds no key in the snapshot"),
    ],
)
def test_a_failed_backup_is_tried_again_later(job: JobState, why: str) -> None:
    job = msgspec.structs.replace(job, ended_s=NOW_S, location="slot-3")
    message = f"backup nightly: {why}; it is tried again at 2026-11-30T08:05:00Z"
    failed = BackupStatus("nightly", location="slot-3", phase="Failed", message=message)
    assert decided(job=job) == BackupDecision("BackupFailed", message, (failed,), check_at_s=NOW_S + 300)
    assert decided(failed, job=job, now_s=NOW_S + 300).removed == ((JOB, "uid"),)
    # Then it begins again, in its slot.
    again = decided(failed, now_s=NOW_S + 301)
    assert (again.reason, again.backups[0].location, len(again.manifests)) == ("BackupRunning", "slot-3", 3)


def test_keys_that_changed_meanwhile_fail_a_backup() -> None:
    """A Secret of the snapshot may be encrypted with a key that the copy does not have."""
    entry = BackupStatus("nightly", location="slot-0", phase="Running")
    job = JobState("uid", is_complete=True, ended_s=NOW_S, location="slot-0", report=REPORT)
    found = decided(entry, job=job, has_keys=False)
    assert (found.reason, found.backups[0].phase) == ("BackupFailed", "Failed")
    assert "keys of its Secrets changed" in found.message


def test_log_that_cannot_be_read_is_named() -> None:
    entry = BackupStatus("nightly", location="slot-0", phase="Running")
    job = JobState("uid", is_complete=True, ended_s=NOW_S, location="slot-0")
    found = decided(entry, job=job, log_problem="403 Forbidden: pods/log")
    assert (
        found.message
        == f"backup nightly waits for the log of {JOB}, which cannot be read: 403 Forbidden: pods/log"
    )


def test_job_of_another_backup_ends_first() -> None:
    """It may still write into its slot."""
    other = store_jobs.backup_job_ref(CONTROL_PLANE, "former")
    given_up = BackupStatus("former", location="slot-0", phase="Running")
    found = decided(given_up, done("old", 1), others={other: JobState("u", location="slot-0")})
    waiting = BackupStatus("nightly", phase="Running", message=found.message)
    assert (found.removed, found.manifests) == (((other, "u"),), ())
    assert found.backups == (done("old", 1), waiting)
    found = decided(given_up, done("old", 1), requested="", others={other: JobState("u")})
    assert (found.backups, found.removed) == ((done("old", 1),), ((other, "u"),))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"control_plane": on_volume(is_asleep=True)}, "Asleep"),
        ({"is_available": False}, "StoreNotReady"),
    ],
)
def test_a_backup_waits_for_a_store_that_serves(changes: dict[str, Any], reason: str) -> None:
    found = decided(**changes)
    assert (found.reason, found.manifests) == (reason, ())
    assert found.backups == (BackupStatus("nightly", phase="Running", message=found.message),)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("kine-sqlite", "SQLite"),
        ("kine-postgresql", f"pg_dump of database {database_name(CONTROL_PLANE.uid)}"),
        ("shared-etcd", "all tenants"),
    ],
)
def test_other_stores_are_refused_with_what_to_do(kind: str, text: str) -> None:
    found = decided(control_plane=on_volume(datastore=DatastoreSpec(kind)))
    assert (found.reason, found.backups[0].phase, found.manifests) == ("BackupUnsupported", "Failed", ())
    assert text in found.message
    assert f"spec.datastore.type of ClusterVersion {CONTROL_PLANE.release.name} is {kind}: " in found.message
    assert backup.problem_of(CONTROL_PLANE) == ""


def test_the_oldest_slot_is_taken_and_its_entry_goes_first() -> None:
    kept = tuple(done(name, slot) for name, slot in (("a", 2), ("b", 0), ("c", 1), ("d", 3)))
    found = decided(*kept)
    assert [(each.name, each.location) for each in found.backups] == [
        ("b", "slot-0"),
        ("c", "slot-1"),
        ("d", "slot-3"),
        ("nightly", "slot-2"),
    ]


def test_the_list_of_what_is_kept_elsewhere_is_bounded() -> None:
    kept = tuple(
        BackupStatus(f"b{number}", location=f"tenants/b{number}", phase="Completed") for number in range(100)
    )
    found = decided(*kept, control_plane=control_planes.CONTROL_PLANE)
    assert (len(found.backups), found.backups[-1].location) == (32, f"tenants/{CONTROL_PLANE.uid}/nightly")


class StoreWorld:
    """A volume with slots, a Job that writes one, and an operator that dies anywhere."""

    def __init__(self) -> None:
        self.status: tuple[BackupStatus, ...] = ()
        self.slots: dict[str, str] = {}
        self.job: JobState | None = None
        self.of = ""
        self.now_s = NOW_S

    def reconcile(self, requested: str, reaches: int) -> str:
        """One reconcile, of which so many effects take place: the status, then steps."""
        job = self.job if self.of == requested else None
        others = {}
        if self.job is not None and job is None:
            others = {store_jobs.backup_job_ref(CONTROL_PLANE, self.of): self.job}
        facts = BackupFacts(CONTROL_PLANE, requested, self.status, is_available=True, job=job, others=others)
        found = backup.decide(facts, control_planes.INPUTS, self.now_s)
        if reaches > 0:
            self.status = found.backups
        if reaches > 1 and found.manifests:
            location = found.manifests[-1]["metadata"]["annotations"]["vcnode.io/backup-location"]
            self.job, self.of = JobState("uid", location=location), requested
        if reaches > 1 and found.removed:
            self.job = None
        if reaches > 1 and found.reads_log_of is not None and self.job is not None:
            self.job = msgspec.structs.replace(self.job, report=REPORT)
        self.now_s += 60
        return found.reason

    def work(self, outcome: str) -> None:
        """The Job's pod goes on. A snapshot replaces the former one as a whole."""
        if self.job is None or self.job.is_complete or self.job.is_failed:
            return
        if outcome == "fails":
            self.job = msgspec.structs.replace(self.job, is_failed=True, ended_s=self.now_s)
        elif outcome == "ends":
            self.slots[self.job.location] = self.of
            self.job = msgspec.structs.replace(self.job, is_complete=True, ended_s=self.now_s)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["ends", "fails", "goes on"])), max_size=60))
def test_no_entry_ever_names_a_snapshot_of_another(history: list[tuple[int, str]]) -> None:
    """Ten backups follow each other, whatever fails and wherever the operator is killed."""
    world = StoreWorld()
    steps = iter(history)
    for number in range(10):
        name = f"b{number}"
        for _ in range(100):
            reaches, outcome = next(steps, (2, "ends"))
            reason = world.reconcile(name, reaches)
            world.work(outcome)
            if outcome == "fails":
                world.reconcile("given-up", reaches)
            for each in world.status:
                if each.phase == "Completed":
                    assert world.slots[each.location] == each.name
            if reason == "BackupCompleted" and world.job is None:
                break
        assert reason == "BackupCompleted"
    assert [each.name for each in world.status] == ["b6", "b7", "b8", "b9"]
