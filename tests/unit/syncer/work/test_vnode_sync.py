# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from daemonkit.kube.resources import NODES, SERVICES
from syncer.config import VnAgentConfig
from syncer.vnodes.controller import VNodes
from syncer.vnodes.desired import AgentAddress
from tests.unit.syncer.worlds import synced_tenant

pytestmark = pytest.mark.asyncio


async def test_all_nodes_are_looked_at_again_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of vn-agent's Service changed: 5 000 nodes took 0.13 s in one step."""
    async with synced_tenant(vn_agent=VnAgentConfig(address=AgentAddress.SERVICE)) as (world, _):
        for number in range(1_000):
            world.super.storage.put(NODES, {"metadata": {"name": f"n{number}"}})
        await asyncio.sleep(5)
        seen = list[object]()
        monkeypatch.setattr(VNodes, "node_changed", lambda _, node: seen.append(node))
        service = {"metadata": {"namespace": "vc-manager", "name": "vn-agent"}}
        world.super.storage.put(SERVICES, service | {"spec": {"clusterIP": "10.96.0.9"}})
        most = 0
        while len(seen) < 1_000:
            before = len(seen)
            await asyncio.sleep(0)  # pace: iterations are counted
            most = max(most, len(seen) - before)
        assert most <= 100
