# SPDX-License-Identifier: Apache-2.0
"""A tenant goes back to a backup, or a new one begins with it, wherever the operator is killed."""

from __future__ import annotations

import json

import pytest

from tenant_operator.core.steps import AddEncryptionKeys
from tenant_operator.model.objects import Object, Ref
from tenant_operator.pki import issuing, rotating
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster

RESTORE = "vcnode.io/restore-requested"
HOLD = "vcnode.io/hold-deletions"


def annotations_of(world: FakeWorld) -> Object:
    found: Object = world.cluster["metadata"].setdefault("annotations", {})
    return found


def key_of(world: FakeWorld) -> str:
    return str(world.cluster["status"]["clusterNamespace"])


def saved() -> FakeWorld:
    """A tenant with a backup and the volume of its member, as its StatefulSet makes it."""
    world = FakeWorld(virtual_cluster())
    world.run()
    annotations_of(world)["vcnode.io/backup-requested"] = "nightly"
    world.run()
    key = key_of(world)
    labels = world.objects[Ref("StatefulSet", key, "etcd")]["metadata"]["labels"]
    metadata = {"name": "data-etcd-0", "namespace": key, "uid": "old", "generation": 1, "labels": labels}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
    world.objects[Ref("PersistentVolumeClaim", key, "data-etcd-0")] = claim
    return world


def asked() -> FakeWorld:
    world = saved()
    annotations_of(world)[RESTORE] = "nightly"
    return world


def key_names(world: FakeWorld) -> list[str]:
    """Of encryption at rest; the first one writes."""
    value = json.loads(world.data(Ref("Secret", key_of(world), "encryption-config"))["config.yaml"])
    return [each["name"] for each in value["resources"][0]["providers"][0]["secretbox"]["keys"]]


def replicas(world: FakeWorld) -> list[int]:
    kinds = ("Deployment", "StatefulSet")
    return [value["spec"]["replicas"] for ref, value in world.objects.items() if ref.kind in kinds]


def once(world: FakeWorld) -> None:
    """One plan with all its steps, while no Job ends and no pod starts."""
    plan = world.plan()
    for step in plan.steps:
        world.carry_out(step)
    world.finish(plan)


def check_restored(world: FakeWorld) -> None:
    restore = world.cluster["status"]["restore"]
    assert (restore["phase"], restore["backup"], restore["count"]) == ("Completed", "nightly", 1)
    assert f"vcnode.io/release-held={annotations_of(world)[HOLD]}" in restore["message"]
    claim = world.objects[Ref("PersistentVolumeClaim", key_of(world), "data-etcd-0")]
    assert claim["metadata"]["uid"] != "old"
    assert replicas(world) == [1, 1, 1]
    conditions = {each.get("type"): each["status"] for each in world.cluster["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert [ref for ref in world.objects if ref.kind == "Job"] == []


def test_tenant_goes_back_to_its_backup() -> None:
    world = asked()
    world.run()
    check_restored(world)
    before = world.writes
    assert world.run() == 0
    assert world.writes == before


def test_deletions_are_held_before_the_control_plane_stops() -> None:
    world = asked()
    while 0 not in replicas(world):
        made = world.plan()
        for step in made.steps:
            world.carry_out(step)
        world.finish(made)
        assert 0 not in replicas(world) or HOLD in annotations_of(world)
    assert world.cluster["status"]["phase"] == "Running"
    assert {each["reason"] for each in world.cluster["status"]["conditions"]} >= {"RestoreStopping"}


def test_keys_of_the_backup_are_read_after_the_restore() -> None:
    world = asked()
    key = key_of(world)
    config = Ref("Secret", key, "encryption-config")
    (old,) = key_names(world)
    # A rotation since.
    data, annotations = rotating.new_encryption_config()
    made = issuing.secret_of(key, config.name, data, {}, annotations)
    world.objects[config]["data"] = made["data"]
    world.objects[config]["metadata"]["annotations"] = made["metadata"]["annotations"]
    (new,) = key_names(world)
    # As the operator that rotated it has it.
    del world.cluster["status"]["keys"]
    world.run()
    check_restored(world)
    assert key_names(world) == [new, old]


def test_unknown_backup_is_refused_and_stops_nothing() -> None:
    world = saved()
    annotations_of(world)[RESTORE] = "weekly"
    world.run()
    restore = world.cluster["status"]["restore"]
    assert restore["phase"] == "Refused"
    assert "there are: nightly" in restore["message"]
    assert replicas(world) == [1, 1, 1]
    assert HOLD not in annotations_of(world)
    # The same backup can be asked for after the request was taken back.
    del annotations_of(world)[RESTORE]
    world.run()
    assert world.cluster["status"]["restore"] == {}


def up_to_date(world: FakeWorld) -> tuple[str, str, str]:
    found = next(each for each in world.cluster["status"]["conditions"] if each.get("type") == "UpToDate")
    return found["status"], found["reason"], found["message"]


def test_a_later_backup_does_not_carry_out_what_was_refused() -> None:
    world = saved()
    annotations_of(world)[RESTORE] = "weekly"
    world.run()
    status, reason, message = up_to_date(world)
    assert (status, reason) == ("False", "RestoreRefused")
    assert "metadata.annotations[vcnode.io/restore-requested]: backup weekly: " in message
    annotations_of(world)["vcnode.io/backup-requested"] = "weekly"
    world.run()
    assert [each["name"] for each in world.cluster["status"]["backups"]] == ["nightly", "weekly"]
    claim = Ref("PersistentVolumeClaim", key_of(world), "data-etcd-0")
    assert world.objects[claim]["metadata"]["uid"] == "old"
    assert up_to_date(world) == (status, reason, message)
    del annotations_of(world)[RESTORE]
    world.run()
    assert up_to_date(world)[0] == "True"
    annotations_of(world)[RESTORE] = "weekly"
    world.run()
    assert world.cluster["status"]["restore"]["phase"] == "Completed"


def test_all_refused_requests_are_in_one_condition() -> None:
    world = saved()
    annotations_of(world).update(
        {RESTORE: "weekly", "vcnode.io/revoke-cluster-ca": "x", "vcnode.io/confirm-upgrade": "v9"}
    )
    world.run()
    status, reason, message = up_to_date(world)
    assert (status, reason) == ("False", "RequestInvalid")
    for name in ("restore-requested", "revoke-cluster-ca", "confirm-upgrade"):
        assert f"metadata.annotations[vcnode.io/{name}]: " in message
    assert [each["annotation"] for each in world.cluster["status"]["refusedRequests"]] == [
        "vcnode.io/confirm-upgrade",
        "vcnode.io/revoke-cluster-ca",
    ]
    for name in (RESTORE, "vcnode.io/revoke-cluster-ca", "vcnode.io/confirm-upgrade"):
        del annotations_of(world)[name]
    world.run()
    assert up_to_date(world)[0] == "True"
    assert "refusedRequests" not in world.cluster["status"]


def test_restore_can_be_asked_for_again() -> None:
    world = asked()
    world.run()
    first = annotations_of(world)[HOLD]
    del annotations_of(world)[RESTORE]
    world.run()
    assert world.cluster["status"]["restore"] == {"count": 1, "hold": first}
    annotations_of(world)[RESTORE] = "nightly"
    world.run()
    assert world.cluster["status"]["restore"]["count"] == 2
    assert annotations_of(world)[HOLD] != first


def test_sleeping_tenant_sleeps_again_after_its_restore() -> None:
    world = saved()
    annotations_of(world)["vcnode.io/sleep-requested-at"] = "2027-01-15T07:00:00Z"
    world.run()
    annotations_of(world)[RESTORE] = "nightly"
    world.run()
    assert world.cluster["status"]["restore"]["phase"] == "Completed"
    assert replicas(world) == [0, 0, 0]


def _steps() -> int:
    return asked().run()


@pytest.mark.parametrize("most", range(_steps()))
def test_a_replace_of_the_object_releases_nothing(most: int) -> None:
    """`kubectl replace` with name and spec alone, after each step: all annotations are gone."""
    world = asked()
    for _ in range(most):
        for step in world.plan().steps[:1]:
            world.carry_out(step)
        world.finish(world.plan())
    has_begun = world.cluster["status"].get("restore", {}).get("hold", "")
    world.cluster["metadata"]["annotations"] = {}
    world.run()
    held = world.cluster["status"].get("restore", {}).get("hold", "")
    assert (annotations_of(world).get(HOLD, ""), held) == (has_begun, has_begun)


def test_most_steps_of_a_restore_are_held() -> None:
    """All behind those that read the snapshot, while nothing is stopped."""
    world = asked()
    for _ in range(4):
        once(world)
        restore = world.cluster["status"]["restore"]
        if restore["phase"] != "Checking":
            break
        assert replicas(world) == [1, 1, 1]
        assert "hold" not in restore
        world.make_ready()
    assert restore["phase"] == "Stopping"
    assert restore["hold"]


def test_a_snapshot_that_cannot_be_read_costs_nothing() -> None:
    world = asked()
    for _ in range(4):
        once(world)
        for ref, job in world.objects.items():
            if ref.name == "restore-check-1":
                job["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    world.run()
    assert world.cluster["status"]["restore"]["phase"] == "Refused"
    assert (
        world.objects[Ref("PersistentVolumeClaim", key_of(world), "data-etcd-0")]["metadata"]["uid"] == "old"
    )
    assert replicas(world) == [1, 1, 1]
    conditions = {each.get("type"): each for each in world.cluster["status"]["conditions"]}
    assert (conditions["Ready"]["status"], conditions["UpToDate"]["reason"]) == ("True", "RestoreRefused")
    assert "job/restore-check-1" in conditions["UpToDate"]["message"]


def test_who_releases_deletions_ends_the_hold_for_good() -> None:
    world = asked()
    world.run()
    annotations_of(world)["vcnode.io/release-held"] = annotations_of(world)[HOLD]
    world.run()
    world.cluster["metadata"]["annotations"] = {}
    world.run()
    assert annotations_of(world) == {}
    assert world.cluster["status"]["restore"] == {"count": 1}


@pytest.mark.parametrize("most", range(_steps()))
def test_restore_of_an_operator_killed_after_each_step(most: int) -> None:
    world = asked()
    world.run_killed(most)
    check_restored(world)


def copy_of(source: FakeWorld, uid: str, name: str = "copy") -> FakeWorld:
    """A new tenant that begins with the backup of another one."""
    cluster = virtual_cluster(name, restoreFrom={"backup": "nightly", "uid": uid})
    cluster["metadata"]["uid"] = "3c6ef372-0000-4000-8000-00000000000b"
    return FakeWorld(cluster, version=source.version, source_objects=source.objects)


def elsewhere() -> FakeWorld:
    """One whose backups are kept by a program."""
    world = FakeWorld(virtual_cluster())
    images = {**world.version["spec"]["images"], "backup": "b:1"}
    world.version = {**world.version, "spec": {**world.version["spec"], "images": images}}
    world.run()
    annotations_of(world)["vcnode.io/backup-requested"] = "nightly"
    world.run()
    return world


def test_new_tenant_begins_with_the_backup_of_another() -> None:
    source = elsewhere()
    uid = source.cluster["metadata"]["uid"]
    world = copy_of(source, uid)
    locations, phases, homes = set(), set(), set()
    for _ in range(60):
        made = world.plan()
        homes |= {each.namespace for each in made.steps if isinstance(each, AddEncryptionKeys)}
        for step in made.steps:
            world.carry_out(step)
        locations |= {
            value["metadata"]["annotations"]["vcnode.io/backup-location"]
            for ref, value in world.objects.items()
            if ref.kind == "Job"
        }
        # No API server runs before the store has the backup.
        phase = world.cluster.get("status", {}).get("restore", {}).get("phase", "")
        phases.add(phase)
        assert phases & {"Starting", "Completed"} or 1 not in replicas(world)
        world.finish(made)
    world.run()
    assert phases >= {"Stopping", "Restoring", "Starting", "Completed"}
    assert world.cluster["status"]["restore"] == {"count": 1}
    assert world.cluster["status"]["phase"] == "Running"
    assert locations == {f"tenants/{uid}/nightly"}
    # The edge compares the ages of both.
    assert homes == {"tenants"}
    assert HOLD not in annotations_of(world)
    own, read = key_names(world)
    assert [read] == key_names(source) != [own]


CREDENTIALS = Ref("Secret", "vcnode-system", "backup-credentials")


def given() -> tuple[FakeWorld, FakeWorld]:
    """A tenant that makes a backup, and one that begins with another, with a credential for the program."""
    source = elsewhere()
    assert Ref("Secret", key_of(source), CREDENTIALS.name) not in source.objects
    worlds = source, copy_of(source, source.cluster["metadata"]["uid"])
    for world in worlds:
        secret = issuing.secret_of(CREDENTIALS.namespace, CREDENTIALS.name, {"TOKEN": b"t"}, {}, {})
        world.objects[CREDENTIALS] = secret
    annotations_of(source)["vcnode.io/backup-requested"] = "weekly"
    return worlds


@pytest.mark.parametrize("which", [0, 1])
def test_program_for_backups_has_its_credentials(which: int) -> None:
    """Those of the operator's namespace, as long as a Job runs, and no longer: they open all backups."""
    world = given()[which]
    jobs = 0
    for _ in range(60):
        made = world.plan()
        for step in made.steps:
            world.carry_out(step)
        key = world.cluster.get("status", {}).get("clusterNamespace", "")
        copy = Ref("Secret", key, CREDENTIALS.name)
        if any(ref.kind == "Job" and "status" not in value for ref, value in world.objects.items()):
            jobs += 1
            assert world.data(copy) == {"TOKEN": b"t"}
        world.finish(made)
    assert jobs
    assert copy not in world.objects


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("most", range(1, 30, 7))
def test_no_credential_stays_of_a_killed_operator(which: int, most: int) -> None:
    world = given()[which]
    for _ in range(most):
        made = world.plan()
        for step in made.steps[:1]:
            world.carry_out(step)
        world.finish(made)
    world.run_killed(1)
    assert Ref("Secret", key_of(world), CREDENTIALS.name) not in world.objects
    assert CREDENTIALS in world.objects


def test_recreated_tenant_sees_nothing_of_the_first() -> None:
    """Of the same name: it is not asked for, and another namespace's UID is refused."""
    source = elsewhere()
    world = FakeWorld(virtual_cluster(), version=source.version)
    world.cluster["metadata"]["uid"] = "3c6ef372-0000-4000-8000-00000000000b"
    world.run()
    assert "backups" not in world.cluster["status"] or world.cluster["status"]["backups"] == []
    assert "restore" not in world.cluster["status"]


def test_backup_of_another_namespace_is_refused() -> None:
    source = elsewhere()
    world = copy_of(source, source.cluster["metadata"]["uid"])
    world.cluster["metadata"]["namespace"] = "others"
    world.run()
    assert world.cluster["status"]["restore"]["phase"] == "Refused"
    assert "no VirtualCluster of namespace others" in world.cluster["status"]["restore"]["message"]
    assert replicas(world) == []


def test_tenant_that_is_created_asleep_wakes() -> None:
    """It has no workload while it sleeps: its keys are made before the first one."""
    world = FakeWorld(virtual_cluster())
    annotations_of(world)["vcnode.io/sleep-requested-at"] = "2027-01-15T07:00:00Z"
    world.run()
    assert replicas(world) == []
    annotations_of(world)["vcnode.io/wake-requested-at"] = "2027-01-15T07:30:00Z"
    world.run()
    assert replicas(world) == [1, 1, 1]
    conditions = {each.get("type"): each["status"] for each in world.cluster["status"]["conditions"]}
    assert conditions["Ready"] == "True"
