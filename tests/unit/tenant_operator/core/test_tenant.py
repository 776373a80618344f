# SPDX-License-Identifier: Apache-2.0
"""A tenant is made step by step, from wherever an operator before left it."""

from __future__ import annotations

import pytest

from tenant_operator.core.conditions import ConditionType
from tenant_operator.model.objects import Ref
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster


def made() -> FakeWorld:
    world = FakeWorld(virtual_cluster())
    world.run()
    return world


def condition(world: FakeWorld, type_: ConditionType) -> tuple[str, str]:
    found = {each["type"]: each for each in world.cluster["status"]["conditions"]}
    return found[type_]["status"], found[type_]["reason"]


def test_tenant_becomes_ready() -> None:
    world = made()
    assert world.cluster["status"]["phase"] == "Running"
    assert condition(world, ConditionType.READY) == ("True", "TenantReady")
    assert world.cluster["status"]["endpoint"] == "https://10.96.0.9:6443"


def test_settled_tenant_is_not_written() -> None:
    world = made()
    before = world.writes
    for _ in range(1_000 // 50):
        assert world.plan().steps == ()
    assert world.writes == before


def test_all_objects_have_their_owner() -> None:
    world = made()
    uid = world.cluster["metadata"]["uid"]
    for ref, value in world.objects.items():
        assert value["metadata"]["labels"]["tenancy.x-k8s.io/vcuid"] == uid, ref
        assert ref.namespace in ("", "tenants", world.cluster["status"]["clusterNamespace"]), ref


def _steps() -> int:
    return FakeWorld(virtual_cluster()).run()


@pytest.mark.parametrize("most", range(_steps()))
def test_operator_killed_after_each_step(most: int) -> None:
    """What a process knows is lost after `most` steps; another one makes the same tenant."""
    world = FakeWorld(virtual_cluster())
    taken = 0
    while taken < most:
        plan = world.plan()
        for step in plan.steps[: most - taken]:
            world.carry_out(step)
        taken += len(plan.steps[: most - taken])
        if taken < most:
            world.finish(plan)
    world.probes.clear()
    world.run()
    assert world.objects.keys() == made().objects.keys()
    assert condition(world, ConditionType.READY) == ("True", "TenantReady")


def test_unknown_version_is_a_condition() -> None:
    world = FakeWorld(virtual_cluster(clusterVersionName="v9"))
    world.run()
    assert world.objects == {}
    assert condition(world, ConditionType.READY) == ("False", "ClusterVersionUnknown")


def test_deleted_object_is_made_again() -> None:
    for ref in list(made().objects):
        world = made()
        if ref.kind == "Namespace" or ref.name.endswith("-ca"):
            continue
        del world.objects[ref]
        world.run()
        assert ref in world.objects


def test_tenant_of_another_provisioner_is_left_alone() -> None:
    cluster = virtual_cluster()
    cluster["status"] = {"phase": "Running", "clusterNamespace": "tenants-70b001-acme"}
    world = FakeWorld(cluster)
    assert world.run() == 0
    assert world.cluster["status"] == {"phase": "Running", "clusterNamespace": "tenants-70b001-acme"}


def test_key_of_root_namespace_is_its_name() -> None:
    world = made()
    key = world.cluster["status"]["clusterNamespace"]
    assert world.objects[Ref("Namespace", "", key)]["metadata"]["annotations"] == {
        "tenancy.x-k8s.io/vcname": "acme",
        "tenancy.x-k8s.io/vcnamespace": "tenants",
        "tenancy.x-k8s.io/vcuid": "3c6ef372-0000-4000-8000-000000000001",
        "tenancy.x-k8s.io/vcrootns": "true",
        "vcnode.io/service-cidrs": "10.32.0.0/24",
    }
