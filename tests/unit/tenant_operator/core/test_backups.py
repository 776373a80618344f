# SPDX-License-Identifier: Apache-2.0
"""A backup is asked for by an annotation, and the operator may die behind each of its steps."""

from __future__ import annotations

import copy

import pytest

from tenant_operator.model.objects import Object, Ref
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster


def asked(backup: str = "nightly") -> FakeWorld:
    """A tenant that runs, and whose backup was asked for."""
    world = FakeWorld(virtual_cluster())
    world.run()
    ask(world, backup)
    return world


def ask(world: FakeWorld, backup: str) -> None:
    world.cluster["metadata"].setdefault("annotations", {})["vcnode.io/backup-requested"] = backup


def kinds(world: FakeWorld) -> list[Ref]:
    """What backups have made."""
    return sorted(ref for ref in world.objects if "backup" in ref.name)


def key_of(world: FakeWorld) -> str:
    return str(world.cluster["status"]["clusterNamespace"])


def complete(name: str, slot: int) -> Object:
    return {
        "name": name,
        "at": "2027-01-15T08:00:00Z",
        "revision": 1119,
        "bytes": 614400,
        "location": f"slot-{slot}",
        "phase": "Completed",
    }


def test_backup_stands_in_the_status_and_its_keys_are_kept() -> None:
    world = asked()
    world.run()
    assert world.cluster["status"]["backups"] == [complete("nightly", 0)]
    key = key_of(world)
    copy = next(ref for ref in world.objects if ref.name.startswith("encryption-config-backup-"))
    # The Job has ended and is gone.
    assert kinds(world) == [
        Ref("NetworkPolicy", key, "backup"),
        Ref("PersistentVolumeClaim", key, "backups"),
        copy,
    ]
    assert world.objects[copy]["data"] == world.objects[Ref("Secret", key, "encryption-config")]["data"]
    before = world.writes
    assert world.run() == 0
    assert world.writes == before


def test_keys_of_a_replaced_backup_are_removed() -> None:
    world = asked("b0")
    for number in range(6):
        ask(world, f"b{number}")
        world.run()
    listed = [(each["name"], each["location"]) for each in world.cluster["status"]["backups"]]
    assert listed == [("b2", "slot-2"), ("b3", "slot-3"), ("b4", "slot-0"), ("b5", "slot-1")]
    copies = [ref for ref in world.objects if ref.name.startswith("encryption-config-backup-")]
    assert len(copies) == len(listed)


def test_sleeping_tenant_is_saved_when_it_wakes() -> None:
    world = FakeWorld(virtual_cluster())
    world.run()
    annotations = world.cluster["metadata"].setdefault("annotations", {})
    annotations["vcnode.io/sleep-requested-at"] = "2027-01-15T07:00:00Z"
    ask(world, "nightly")
    world.run()
    (entry,) = world.cluster["status"]["backups"]
    assert entry["phase"] == "Running"
    assert "kubectl vc wake acme" in entry["message"]
    annotations["vcnode.io/wake-requested-at"] = "2027-01-15T07:30:00Z"
    world.run()
    assert world.cluster["status"]["backups"] == [complete("nightly", 0)]


def test_store_without_snapshots_is_refused_with_what_to_do() -> None:
    world = FakeWorld(virtual_cluster())
    world.version = {**world.version, "spec": {**world.version["spec"], "datastore": {"type": "kine-sqlite"}}}
    world.version["spec"]["images"] = {**world.version["spec"]["images"], "kine": "k:1"}
    world.run()
    ask(world, "nightly")
    world.run()
    (entry,) = world.cluster["status"]["backups"]
    assert entry["phase"] == "Failed"
    assert "SQLite" in entry["message"]
    (shown,) = (each for each in world.cluster["status"]["conditions"] if each.get("type") == "UpToDate")
    assert (shown["status"], shown["reason"]) == ("False", "BackupUnsupported")
    assert shown["message"] == (
        "backup nightly: spec.datastore.type of ClusterVersion v1.34 is kine-sqlite: kine has no snapshots; "
        "copy the SQLite database while the tenant sleeps, or use etcd. Then remove the annotation "
        "vcnode.io/backup-requested"
    )
    del world.cluster["metadata"]["annotations"]["vcnode.io/backup-requested"]
    world.run()
    (shown,) = (each for each in world.cluster["status"]["conditions"] if each.get("type") == "UpToDate")
    assert shown["status"] == "True"


def _steps() -> int:
    return asked().run()


@pytest.mark.parametrize("most", range(_steps()))
def test_backup_of_an_operator_killed_after_each_step(most: int) -> None:
    world = asked()
    world.run_killed(most)
    whole = asked()
    whole.run()
    assert world.objects.keys() == whole.objects.keys()
    assert world.cluster["status"]["backups"] == whole.cluster["status"]["backups"]


@pytest.mark.parametrize("quota", [128 << 20, 4 << 30])
def test_a_volume_of_backups_keeps_its_size(quota: int) -> None:
    """The API server refuses a smaller one; a larger one, where the class of the volume does."""
    world = asked()
    world.run()
    volume = Ref("PersistentVolumeClaim", key_of(world), "backups")
    before = copy.deepcopy(world.objects[volume]["spec"])
    world.version = copy.deepcopy(world.version)
    world.version["spec"]["classes"] = {"small": {"etcd": {"quotaBytes": quota}}}
    ask(world, "another")
    world.run()
    assert world.objects[volume]["spec"] == before
    assert [each["name"] for each in world.cluster["status"]["backups"]] == ["nightly", "another"]
