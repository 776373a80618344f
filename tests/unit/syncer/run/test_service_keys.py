# SPDX-License-Identifier: Apache-2.0
"""Cluster keys of which one continues another, in a whole syncer: no tenant takes another's names."""

import asyncio

import pytest

from daemonkit.kube.resources import NAMESPACES
from tests.unit.syncer.worlds import Plane, World, running

pytestmark = pytest.mark.asyncio


def _make(plane: Plane, namespace: str) -> None:
    plane.cluster.create(NAMESPACES, {"metadata": {"name": namespace}})


async def test_clusters_whose_keys_continue_each_other_are_synced() -> None:
    """One super namespace is of who had it first, and the other tenant's Namespace stays up."""
    world = World({"one": "acme", "two": "acme-blue", "three": "rival"})
    async with running(world):
        _make(world.tenants["two"], "x")
        await asyncio.sleep(20)
        _make(world.tenants["one"], "blue-x")
        await asyncio.sleep(20)
        phases = {name: each["phase"] for name, each in world.status().items()}
        assert phases == {"one": "Synced", "two": "Synced", "three": "Synced"}
        owner = world.super.objects(NAMESPACES)["", "acme-blue-x"]["metadata"]["annotations"]
        assert owner["tenancy.x-k8s.io/cluster"] == "acme-blue"
