# SPDX-License-Identifier: Apache-2.0
"""What a tenant waits for stands in its conditions."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tenant_operator.core.plan import TenantPlan
from tenant_operator.core.transitions import PUT_BACK, put_back
from tenant_operator.life.deletion import FINALIZER
from tenant_operator.model.objects import Object, Ref
from tests.unit.tenant_operator.core.worlds import VERSION, FakeWorld, virtual_cluster


def settled(world: FakeWorld) -> TenantPlan:
    """The plan after which nothing changes any more."""
    for _ in range(20):
        made = world.plan()
        for step in made.steps:
            world.carry_out(step)
        world.finish(made)
    assert made.steps == ()
    return made


def condition(world: FakeWorld, type_: str) -> Object:
    found: Object = next(each for each in world.cluster["status"]["conditions"] if each["type"] == type_)
    return found


def made() -> FakeWorld:
    world = FakeWorld(virtual_cluster())
    world.run()
    return world


def with_store(**store: str) -> FakeWorld:
    version: Any = copy.deepcopy(VERSION)
    version["spec"]["datastore"] = store
    version["spec"]["images"]["kine"] = "k:1"
    return FakeWorld(virtual_cluster(), version)


@pytest.mark.parametrize("store", ["kine-postgresql", "shared-etcd"])
def test_what_a_new_tenant_waits_for_is_shown(store: str) -> None:
    world = with_store(type=store, secretName="x")
    message = settled(world).waits_for
    assert message
    for type_ in ("Ready", "ControlPlaneAvailable"):
        found = condition(world, type_)
        assert (found["status"], found["message"]) == ("False", message)


def test_namespace_that_ends_is_named() -> None:
    world = made()
    key = world.cluster["status"]["clusterNamespace"]
    for ref in list(world.objects):
        if ref.namespace == key:
            del world.objects[ref]
    world.objects[Ref("Namespace", "", key)]["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    settled(world)
    found = condition(world, "Ready")
    assert found["reason"] == "RootNamespaceEnding"
    assert found["message"].startswith(f"Namespace {key} is being deleted, and with it the store of ")


# As Kubernetes' controllers have them from the API server.
REFUSALS = (
    'pods "a-5d9" is forbidden: exceeded quota: team, used: limits.memory=4Gi',
    'pods "a-5d9" is forbidden: violates PodSecurity "restricted:latest": seccompProfile',
    'pods "a-5d9" is forbidden: maximum memory usage per Container is 128Mi, but limit is 320Mi',
)


@pytest.mark.parametrize("name", ["etcd", "apiserver", "controller-manager"])
@pytest.mark.parametrize("message", REFUSALS)
def test_why_pods_are_not_made_is_shown(name: str, message: str) -> None:
    world = made()
    key = world.cluster["status"]["clusterNamespace"]
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    for ref, value in world.objects.items():
        if ref.kind in ("Deployment", "StatefulSet") and ref.name == name:
            value["status"] = {"observedGeneration": 1, "conditions": [failure]}
    assert world.plan().findings[0].message == (
        f"{name} has 0 of 1 replicas ready; its pods are refused: {message}; change that in namespace {key}"
    )


def test_problem_of_a_cluster_version_names_it() -> None:
    version: Any = copy.deepcopy(VERSION)
    version["spec"]["images"]["etcd"] = ""
    world = FakeWorld(virtual_cluster(), version)
    settled(world)
    assert condition(world, "Ready")["message"].startswith("ClusterVersion v1.34: spec.images.etcd: ")


@pytest.mark.parametrize("phase", ["Running", "Updating"])
@pytest.mark.parametrize("others", [[], ["example.com/other"]])
def test_removed_finalizer_is_put_back(phase: str, others: list[str]) -> None:
    world = made()
    before = dict(world.objects)
    world.cluster["status"]["phase"] = phase
    world.cluster["metadata"]["finalizers"] = list(others)
    cluster, plan = world.observed().virtual_cluster, world.plan()
    assert [each.message for each in put_back(cluster, plan)] == [PUT_BACK]
    settled(world)
    assert world.cluster["metadata"]["finalizers"] == [*others, FINALIZER]
    assert world.objects == before
    assert list(put_back(world.observed().virtual_cluster, world.plan())) == []
    assert condition(world, "Ready")["status"] == "True"


@pytest.mark.parametrize("phase", ["Running", "Updating"])
def test_control_plane_of_another_provisioner_is_left(phase: str) -> None:
    world = FakeWorld(virtual_cluster())
    world.cluster["status"] = {"phase": phase, "clusterNamespace": "tenants-3c6ef3-acme"}
    assert world.plan() == TenantPlan()
