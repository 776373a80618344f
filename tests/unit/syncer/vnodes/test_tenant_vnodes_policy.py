# SPDX-License-Identifier: Apache-2.0
"""vNodes of a tenant whose SyncPolicy is not known: what it would decide stays as it is."""

import asyncio
from typing import Any

import pytest

from daemonkit.kube.resources import NODES
from syncer.core.objects import Object
from syncer.core.plan import Wait
from syncer.vnodes.desired import UNSCHEDULABLE, VNodePolicy, VNodeScope
from syncer.vnodes.tenant_vnodes import TenantVNodes
from tests.unit.syncer.vnodes.environment import BUILT_IN, VNodesEnvironment, own_node, super_node

pytestmark = pytest.mark.asyncio

OPEN = VNodePolicy(
    labels=frozenset({"zone", "kubernetes.io/os"}),
    taints=frozenset({"gpu"}),
    resources={"cpu": "2"},
    is_schedulable=True,
)
WAITS = Wait("VNodeNotReady", "node node-7 is made once the SyncPolicy of the tenant is known")


def _super_node(**more: Any) -> Object:
    node = super_node(taints=[{"key": "gpu", "effect": "NoSchedule"}], **more)
    node["metadata"]["labels"]["zone"] = "a"
    return node


async def _after_a_restart(env: VNodesEnvironment, policy: VNodePolicy) -> tuple[TenantVNodes, Object]:
    """A tenant whose vNode, as it is now, was made by a policy that this process does not know."""
    env.vnodes.node_changed(_super_node())
    assert await env.tenant(policy=policy).ensure("node-7") is None
    shown = env.node()
    assert shown is not None
    tenant = env.vnodes.add_tenant("a", env.planes["a"], None)
    tenant.mark_synced()
    env.take_requests()
    return tenant, shown


async def test_no_vnode_is_made_before_its_policy_is_known() -> None:
    """It would show what the built-in policy shows, be that more or less."""
    async with VNodesEnvironment() as env:
        env.vnodes.node_changed(_super_node())
        tenant = env.tenant(policy=None)
        tenant.pod_bound("node-7", "p")
        assert await tenant.ensure("node-7") == WAITS
        await asyncio.sleep(200)
        assert env.node() is None
        tenant.set_policy(OPEN)
        assert await tenant.ensure("node-7") is None
        node = env.node()
        assert node is not None
        assert node["metadata"]["labels"]["zone"] == "a"
        assert "unschedulable" not in node["spec"]


@pytest.mark.parametrize("policy", [OPEN, BUILT_IN], ids=["open", "built-in"])
async def test_what_an_unknown_policy_decides_stays(policy: VNodePolicy) -> None:
    """Labels, taints, capacity and whether it is schedulable. Pods are bound to it, and it has its Lease."""
    async with VNodesEnvironment() as env:
        tenant, shown = await _after_a_restart(env, policy)
        tenant.tenant_node_changed("node-7", shown)
        tenant.pod_bound("node-7", "p")
        assert await tenant.ensure("node-7") is None
        before = env.lease()
        env.now += 100
        await asyncio.sleep(30)
        assert env.node() == shown
        assert env.lease() != before


async def test_the_state_of_the_node_needs_no_policy() -> None:
    """A vNode whose node is cordoned, or not ready, shows that all the same, and is written once."""
    async with VNodesEnvironment() as env:
        tenant, shown = await _after_a_restart(env, OPEN)
        tenant.pod_bound("node-7", "p")
        env.vnodes.node_changed(_super_node(ready="False", unschedulable=True))
        await asyncio.sleep(5)
        node = env.node()
        assert node is not None
        assert node["status"]["conditions"][0]["status"] == "False"
        assert node["spec"]["unschedulable"] is True
        assert {each["key"] for each in node["spec"]["taints"]} == {"gpu", UNSCHEDULABLE}
        assert node["metadata"]["labels"] == shown["metadata"]["labels"]
        assert node["status"]["capacity"] == {"cpu": "2"}
        env.take_requests()
        tenant.tenant_node_changed("node-7", node)
        await asyncio.sleep(30)
        assert env.take_requests() == []
        tenant.set_policy(OPEN)
        await asyncio.sleep(5)
        env.vnodes.node_changed(_super_node())
        await asyncio.sleep(5)
        node = env.node()
        assert node is not None
        assert node["spec"] == shown["spec"]


async def test_no_vnode_is_removed_before_its_policy_is_known() -> None:
    """One without pods may be there as the policy shows all nodes."""
    async with VNodesEnvironment() as env:
        tenant, shown = await _after_a_restart(env, OPEN)
        tenant.tenant_node_changed("node-7", shown)
        await asyncio.sleep(600)
        assert env.node() == shown
        tenant.set_policy(VNodePolicy(scope=VNodeScope.ALL))
        await asyncio.sleep(600)
        assert env.node() is not None
        tenant.set_policy(BUILT_IN)
        await asyncio.sleep(600)
        assert env.node() is None


async def test_a_vnode_without_pods_has_its_lease_before_its_policy() -> None:
    """Else the tenant's control plane takes each node for dead that `scope: All` shows."""
    async with VNodesEnvironment() as env:
        tenant, shown = await _after_a_restart(env, VNodePolicy(scope=VNodeScope.ALL))
        tenant.tenant_node_changed("node-7", shown)
        await asyncio.sleep(30)
        before = env.lease()
        env.now += 100
        await asyncio.sleep(30)
        assert env.lease() != before
        # And it shows what becomes of its node.
        env.vnodes.node_changed(_super_node(ready="False"))
        await asyncio.sleep(5)
        node = env.node()
        assert node is not None
        assert node["status"]["conditions"][0]["status"] == "False"
        # The tenant may delete it: it is not made again.
        env.planes["a"].storage.delete(NODES, "", "node-7")
        tenant.tenant_node_changed("node-7", None)
        await asyncio.sleep(600)
        assert env.node() is None
        assert env.failed == []


@pytest.mark.parametrize("of", ["", "uid-of-another", "uid-node-7"])
async def test_a_forged_vnode_has_no_lease_before_its_policy(of: str) -> None:
    """By a Lease the tenant would learn which names super nodes have: only we know their UIDs."""
    async with VNodesEnvironment() as env:
        tenant = env.tenant(policy=None)
        env.put(own_node(label=True, of=of))
        node = env.node()
        assert node is not None
        tenant.tenant_node_changed("node-7", node)
        await asyncio.sleep(60)
        assert (env.lease() is not None) == (of == "uid-node-7")
        assert of == "uid-node-7" or env.node() == node


async def test_a_node_of_the_tenant_stays_its_own_without_a_policy() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant(policy=None)
        env.put(own_node())
        before = env.node()
        tenant.pod_bound("node-7", "p")
        await asyncio.sleep(100)
        assert env.node() == before
