# SPDX-License-Identifier: Apache-2.0
"""Tenants of VirtualClusters are served by the replica that holds them."""

import asyncio

import pytest

from daemonkit.kube.resources import NAMESPACES
from syncer.config import LeaseConfig, ShardingConfig
from tests.unit.syncer.worlds import World, running


@pytest.mark.asyncio
async def test_virtual_clusters_are_served_once_held() -> None:
    world = World({"one": "red"}, ShardingConfig(LeaseConfig("kube-system", "vc-syncer")))
    async with running(world):
        await asyncio.sleep(60)
        assert ("", "red-default") in world.super.objects(NAMESPACES)
        assert world.status()["one"]["phase"] == "Synced"


@pytest.mark.asyncio
async def test_virtual_clusters_of_no_lease_are_left_alone() -> None:
    """The Leases' namespace does not exist, so this replica holds nobody."""
    world = World({"one": "red"}, ShardingConfig(LeaseConfig("absent", "vc-syncer")))
    async with running(world):
        await asyncio.sleep(60)
        assert ("", "red-default") not in world.super.objects(NAMESPACES)
        assert world.status() == {}
