# SPDX-License-Identifier: Apache-2.0
"""Cluster keys of which one continues another, in a whole syncer: no tenant takes another's names."""

import asyncio

import pytest

from daemonkit.kube.resources import NAMESPACES, VIRTUAL_CLUSTERS
from tests.unit.syncer.planes import Plane
from tests.unit.syncer.worlds import EVENTS, World, running

pytestmark = pytest.mark.asyncio


def _make(plane: Plane, namespace: str) -> None:
    plane.cluster.create(NAMESPACES, {"metadata": {"name": namespace}})


def _owner(world: World, super_namespace: str) -> str | None:
    found = world.super.objects(NAMESPACES).get(("", super_namespace))
    return None if found is None else found["metadata"]["annotations"]["tenancy.x-k8s.io/cluster"]


async def test_clusters_whose_keys_continue_each_other_are_synced() -> None:
    """A super namespace is of the longer key, whoever comes first, and the other's Namespace stays up."""
    world = World({"one": "acme", "two": "acme-blue", "three": "rival"})
    async with running(world):
        for namespace in ("blue-x", "green", "blue"):
            _make(world.tenants["one"], namespace)
        await asyncio.sleep(20)
        phases = {name: each["phase"] for name, each in world.status().items()}
        assert phases == {"one": "Synced", "two": "Synced", "three": "Synced"}
        assert _owner(world, "acme-green") == "acme"
        assert _owner(world, "acme-blue") is None, "the root namespace of the other"
        assert _owner(world, "acme-blue-x") is None
        texts = {each["message"] for each in world.tenants["one"].objects(EVENTS).values()}
        assert any("is not free; choose another name" in each for each in texts)
        assert not any("acme-blue" in each for each in texts)
        _make(world.tenants["two"], "x")
        await asyncio.sleep(20)
        assert _owner(world, "acme-blue-x") == "acme-blue"


async def test_a_namespace_that_is_there_stays_when_a_longer_key_comes() -> None:
    world = World({"one": "acme", "two": "acme-blue"})
    world.end_tenant("two")
    async with running(world):
        _make(world.tenants["one"], "blue-x")
        await asyncio.sleep(20)
        assert _owner(world, "acme-blue-x") == "acme"
        world.make_tenant("two")
        _make(world.tenants["two"], "x")
        _make(world.tenants["one"], "blue-y")
        await asyncio.sleep(40)
        assert _owner(world, "acme-blue-x") == "acme", "what exists is nobody's orphan"
        assert _owner(world, "acme-blue-y") is None
        world.end_tenant("two")
        await asyncio.sleep(40)
        assert _owner(world, "acme-blue-y") == "acme", "the key is gone, and a patrol has looked again"


async def test_a_cluster_that_does_not_run_yet_has_its_names() -> None:
    world = World({"one": "acme", "two": "acme-blue"})
    cluster = world.super.storage.get(VIRTUAL_CLUSTERS, "tenants", "two")
    cluster["status"]["phase"] = "Pending"
    world.super.storage.put(VIRTUAL_CLUSTERS, cluster)
    async with running(world):
        _make(world.tenants["one"], "blue-x")
        await asyncio.sleep(20)
        assert _owner(world, "acme-blue-x") is None
