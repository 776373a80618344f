# SPDX-License-Identifier: Apache-2.0
"""A tenant on a shared PostgreSQL: nothing starts before its database, and nothing is forgotten before that
is gone."""

from __future__ import annotations

import msgspec
import pytest

from tenant_operator.core.steps import DropDatabase, MakeDatabase
from tenant_operator.model.objects import Object, Ref
from tests.unit.tenant_operator.core.worlds import SETTINGS, FakeWorld, virtual_cluster

SERVER = Ref("Secret", "vcnode-system", "postgresql")
IMAGES = {"apiServer": "a:1", "controllerManager": "c:1", "kine": "k:1"}


def _version(replicas: int = 1) -> Object:
    return {
        "metadata": {"name": "v1.34"},
        "spec": {
            "kubernetesVersion": "1.34.4",
            "images": IMAGES,
            "datastore": {"type": "kine-postgresql", "secretName": SERVER.name},
            "classes": {"small": {"apiServer": {"replicas": replicas}}},
        },
    }


def _world() -> FakeWorld:
    settings = msgspec.structs.replace(SETTINGS, store_cidrs=("198.51.100.0/28",))
    return FakeWorld(virtual_cluster(), version=_version(), settings=settings)


def _made() -> FakeWorld:
    world = _world()
    world.run()
    return world


def _deleted() -> FakeWorld:
    world = _made()
    world.cluster["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    return world


def _run_while_away(world: FakeWorld) -> None:
    """Until nothing else can be done: the server takes no statement, and what follows it is not done."""
    for _ in range(30):
        made = world.plan()
        for step in made.steps:
            if isinstance(step, MakeDatabase | DropDatabase):
                break
            world.carry_out(step)
        world.finish(made)


def _names(world: FakeWorld) -> set[str]:
    return {ref.name for ref in world.objects}


def _is_ready(world: FakeWorld) -> bool:
    conditions = {each["type"]: each["status"] for each in world.cluster["status"]["conditions"]}
    return bool(conditions["Ready"] == "True")


def test_tenant_has_a_database_of_its_own() -> None:
    world = _made()
    assert _is_ready(world)
    key, uid = world.cluster["status"]["clusterNamespace"], world.cluster["metadata"]["uid"]
    credential = world.objects[Ref("Secret", key, "store-credentials")]
    annotations = credential["metadata"]["annotations"]
    assert annotations["vcnode.io/database"] == f"vcnode-system postgresql t_{uid.replace('-', '')}"
    assert annotations["vcnode.io/database-connections"] == "20"
    assert Ref("StatefulSet", key, "etcd") not in world.objects


def test_nothing_starts_before_its_database_is_made() -> None:
    world = _world()
    _run_while_away(world)
    assert "apiserver" not in {ref.name for ref in world.objects if ref.kind == "Deployment"}
    uid = world.cluster["metadata"]["uid"]
    name = f"t_{uid.replace('-', '')}"
    assert (
        world.plan().waits_for == f"database and role {name} on the server of Secret vcnode-system/postgresql"
    )
    world.run()
    assert _is_ready(world)


def test_more_api_servers_get_more_connections() -> None:
    """Nothing waits for that: the server may be away."""
    world = _made()
    world.version = _version(replicas=2)
    (step,) = (each for each in world.plan().steps if isinstance(each, MakeDatabase))
    assert (step.server, step.connections) == (SERVER, 30)
    _run_while_away(world)
    world.run()
    assert _is_ready(world)


def test_deletion_leaves_nothing() -> None:
    world = _deleted()
    steps = []
    for _ in range(30):
        made = world.plan()
        for step in made.steps:
            world.carry_out(step)
            steps.append(step)
        world.finish(made)
    assert [each.server for each in steps if isinstance(each, DropDatabase)] == [SERVER]
    assert world.objects == {}
    assert world.cluster["metadata"]["finalizers"] == []


@pytest.mark.parametrize("after_s", [1.0, 5_000.0])
def test_deletion_waits_for_a_server_that_is_away(after_s: float) -> None:
    """As long as it takes; but no key lives that long."""
    world = _deleted()
    world.now_s += after_s
    _run_while_away(world)
    assert {"store-credentials", world.cluster["status"]["clusterNamespace"]} <= _names(world)
    assert ("cluster-ca" in _names(world)) == (after_s < 600.0)
    assert world.cluster["metadata"]["finalizers"] == ["vcnode.io/vc-operator"]
    message = world.cluster["status"]["message"]
    assert "waiting for the server of Secret vcnode-system/postgresql to drop database and role t_" in message
    world.run()
    assert world.objects == {}
    assert world.cluster["metadata"]["finalizers"] == []


def _steps() -> int:
    return _world().run()


@pytest.mark.parametrize("most", range(_steps()))
def test_operator_killed_after_each_step(most: int) -> None:
    world = _world()
    world.run_killed(most)
    assert world.objects.keys() == _made().objects.keys()
    assert _is_ready(world)
