# SPDX-License-Identifier: Apache-2.0
"""Cluster keys of which one continues another, in a whole syncer: no tenant takes another's names."""

import asyncio

import pytest

from daemonkit.kube.resources import NAMESPACES, VIRTUAL_CLUSTERS
from tests.unit.syncer.worlds import Plane, World, running

pytestmark = pytest.mark.asyncio


def _problem(world: World, name: str) -> str:
    conditions = world.super.storage.get(VIRTUAL_CLUSTERS, "tenants", name)["status"].get("conditions", [])
    return next((each["message"] for each in conditions if each["reason"] == "ClusterKeyTaken"), "")


def _make(plane: Plane, namespace: str) -> None:
    plane.cluster.create(NAMESPACES, {"metadata": {"name": namespace}})


async def test_a_tenant_whose_key_continues_anothers_is_refused() -> None:
    world = World({"one": "acme", "two": "acme-blue", "three": "rival"})
    async with running(world):
        _make(world.tenants["one"], "blue-x")
        _make(world.tenants["two"], "x")
        await asyncio.sleep(20)
        phases = {name: each["phase"] for name, each in world.status().items()}
        assert phases == {"one": "Synced", "two": "Unusable", "three": "Synced"}
        assert _problem(world, "two").startswith(
            "cluster key acme-blue and that of another tenant begin alike"
        )
        assert _problem(world, "one") == ""


async def test_the_longer_key_is_refused_also_where_it_is_found_first() -> None:
    """Each replica decides so by all keys: another order would be another answer."""
    world = World({"first": "acme-blue", "second": "acme"})
    async with running(world):
        await asyncio.sleep(20)
        phases = {name: each["phase"] for name, each in world.status().items()}
        assert phases == {"first": "Unusable", "second": "Synced"}


async def test_a_later_tenant_with_a_shorter_key_is_refused() -> None:
    world = World({"two": "acme-blue"})
    async with running(world):
        await asyncio.sleep(20)
        world.keys["one"] = "acme"
        squatter = world.make_tenant("one")
        await asyncio.sleep(10)
        _make(squatter, "blue-x")
        _make(world.tenants["two"], "x")
        await asyncio.sleep(20)
        assert "begin alike" in _problem(world, "one")
        owner = world.super.objects(NAMESPACES)["", "acme-blue-x"]["metadata"]["annotations"]
        assert owner["tenancy.x-k8s.io/cluster"] == "acme-blue"
