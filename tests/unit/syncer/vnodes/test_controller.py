# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from daemonkit.kube.client import UnreachableError
from daemonkit.kube.resources import NODES
from syncer.vnodes.lease import LEASE_NAMESPACE, LEASES
from tests.steps import finish
from tests.unit.syncer.vnodes.environment import VNodesEnvironment, super_node

pytestmark = pytest.mark.asyncio


def renewed(env: VNodesEnvironment, key: str = "a", name: str = "node-7") -> str:
    lease = env.lease(key, name)
    return "" if lease is None else str(lease["spec"]["renewTime"])


async def count_renewals(env: VNodesEnvironment, seconds: float, key: str = "a") -> int:
    env.planes[key].requests.clear()
    await asyncio.sleep(seconds)
    return len([each for each in env.planes[key].requests if each.startswith("PATCH") and "leases" in each])


async def test_lease_is_made_and_renewed_every_10_s() -> None:
    async with VNodesEnvironment() as env:
        env.tenant().pod_bound("node-7", "p1")
        await asyncio.sleep(20)
        lease, node = env.lease(), env.node()
        assert lease is not None
        assert node is not None
        assert lease["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Node", "name": "node-7", "uid": node["metadata"]["uid"]}
        ]
        assert lease["spec"]["leaseDurationSeconds"] == 40
        assert await count_renewals(env, 100) == 10
        assert env.take_requests() == []


async def test_renewals_are_later_each_time_whatever_the_clock() -> None:
    async with VNodesEnvironment() as env:
        env.tenant().pod_bound("node-7", "p1")
        await asyncio.sleep(20)
        before = renewed(env)
        env.now -= 3600
        await asyncio.sleep(10)
        assert renewed(env) > before


@pytest.mark.parametrize("ready", ["False", "Unknown"])
async def test_lease_of_a_node_that_is_not_ready_expires(ready: str) -> None:
    async with VNodesEnvironment() as env:
        env.tenant().pod_bound("node-7", "p1")
        await asyncio.sleep(20)
        env.vnodes.node_changed(super_node(ready=ready))
        assert await count_renewals(env, 100) == 0
        env.vnodes.node_changed(super_node())
        assert await count_renewals(env, 100) == 10


async def test_lease_expires_while_the_agent_is_silent() -> None:
    async with VNodesEnvironment() as env:
        env.tenant().pod_bound("node-7", "p1")
        await asyncio.sleep(20)
        env.probe.silent = {"192.0.2.7"}
        await asyncio.sleep(10)
        assert await count_renewals(env, 20) == 0
        node = env.node()
        assert node is not None
        assert node["status"]["conditions"][0]["status"] == "True"
        await asyncio.sleep(30)
        node = env.node()
        assert node is not None
        assert node["status"]["conditions"] == [
            {
                "type": "Ready",
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "vn-agent of the node does not answer",
                "lastHeartbeatTime": "h1",
                "lastTransitionTime": "2025-11-25T13:00:00Z",
            }
        ]
        env.probe.silent.clear()
        await asyncio.sleep(11)
        node = env.node()
        assert node is not None
        assert node["status"]["conditions"][0]["status"] == "True"
        assert await count_renewals(env, 100) == 10


async def test_node_whose_agent_has_no_address_expires() -> None:
    async with VNodesEnvironment() as env:
        node = super_node()
        node["status"]["addresses"] = []
        env.vnodes.node_changed(node)
        env.tenant().pod_bound("node-7", "p1")
        await asyncio.sleep(60)
        assert env.lease() is None
        found = env.node()
        assert found is not None
        assert found["status"]["conditions"][0]["status"] == "Unknown"
        assert env.probe.probed == []


async def test_one_probe_a_node_serves_all_tenants() -> None:
    async with VNodesEnvironment() as env:
        env.vnodes.node_changed(super_node("node-8", "192.0.2.8"))
        for number in range(30):
            tenant = env.tenant(f"t{number}")
            tenant.pod_bound("node-7", "p1")
        await asyncio.sleep(100.5)
        assert set(env.probe.probed) == {"192.0.2.7"}
        assert len(env.probe.probed) == 11


async def test_probes_are_spread_and_bounded() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        for number in range(100):
            env.vnodes.node_changed(super_node(f"node-{number}", f"192.0.2.{number}"))
            tenant.pod_bound(f"node-{number}", "p1")
        counts = []
        for _ in range(30):
            await asyncio.sleep(1)
            counts.append(len(env.probe.probed))
            env.probe.probed.clear()
        assert counts == [10] * 30


async def test_probing_ends_with_the_last_vnode() -> None:
    async with VNodesEnvironment() as env:
        env.tenant("a").pod_bound("node-7", "p1")
        env.tenant("b").pod_bound("node-7", "p1")
        finish(env.vnodes.remove_tenant("a"))
        env.probe.probed.clear()
        await asyncio.sleep(20)
        assert env.probe.probed
        finish(env.vnodes.remove_tenant("b"))
        env.probe.probed.clear()
        await asyncio.sleep(60)
        assert env.probe.probed == []


async def test_agent_that_moves_is_probed_there() -> None:
    async with VNodesEnvironment() as env:
        env.tenant().pod_bound("node-7", "p1")
        await asyncio.sleep(20)
        env.vnodes.node_changed(super_node(address="192.0.2.77"))
        env.probe.probed.clear()
        await asyncio.sleep(20)
        assert set(env.probe.probed) == {"192.0.2.77"}
        node = env.node()
        assert node is not None
        assert node["status"]["addresses"] == [{"type": "InternalIP", "address": "192.0.2.77"}]


async def test_tenants_are_due_at_different_times() -> None:
    async with VNodesEnvironment() as env:
        for number in range(100):
            env.tenant(f"t{number}").pod_bound("node-7", "p1")
        await asyncio.sleep(20)
        for plane in env.planes.values():
            plane.requests.clear()
        counts = []
        for _ in range(10):
            await asyncio.sleep(1)
            counts.append(sum(len(plane.requests) for plane in env.planes.values()))
            for plane in env.planes.values():
                plane.requests.clear()
        assert sum(counts) == 100
        assert max(counts) <= 20


async def test_unreachable_tenant_costs_one_renewal_an_interval() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        for number in range(5):
            env.vnodes.node_changed(super_node(f"node-{number}"))
            tenant.pod_bound(f"node-{number}", "p1")
        await asyncio.sleep(20)
        env.planes["a"].failures = [UnreachableError("x")] * 1000
        assert await count_renewals(env, 100) == 10
        env.planes["a"].failures = []
        assert await count_renewals(env, 100) == 50


async def test_node_is_looked_at_when_its_lease_is_gone() -> None:
    """Where the engine has no watch of the tenant's Nodes: a Lease goes with its Node."""
    async with VNodesEnvironment() as env:
        env.tenant().pod_bound("node-7", "p1")
        await asyncio.sleep(20)
        storage = env.planes["a"].storage
        storage.delete(NODES, "", "node-7")
        storage.delete(LEASES, LEASE_NAMESPACE, "node-7")
        await asyncio.sleep(20)
        assert env.node() is not None
        assert env.lease() is not None
