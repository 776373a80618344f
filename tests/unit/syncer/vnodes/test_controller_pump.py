# SPDX-License-Identifier: Apache-2.0
"""Work for all vNodes grows as the nodes, the tenants, their pods and their Nodes do, and no faster."""

import asyncio

from syncer.vnodes.desired import VNodePolicy, VNodeScope
from tests.pump import Sizes, steps, superlinear
from tests.steps import finish
from tests.unit.conftest import VirtualTimeLoop
from tests.unit.syncer.vnodes.environment import VNodesEnvironment, own_node, super_node

# More than two turns of the timer.
_TURNS_S = 25.0
_NODES, _USED, _PODS, _TENANTS, _LEFT, _OWN = (
    "nodes",
    "used nodes",
    "pods",
    "tenants",
    "left vNodes",
    "own Nodes",
)


async def _serve(sizes: Sizes, policy: VNodePolicy) -> None:
    """From a start to the removal of all vNodes: the first tenant has what is pumped."""

    def numbers(place: str) -> range:
        return range(1 + sizes.get(place, 0))

    async with VNodesEnvironment() as env:
        others = [env.tenant(f"other-{n}") for n in numbers(_TENANTS)]
        tenant = env.tenant("a", policy)
        for n in numbers(_NODES):
            env.vnodes.node_changed(super_node(f"unused-{n}"))
        for n in numbers(_USED):
            env.vnodes.node_changed(super_node(f"used-{n}", f"192.0.2.{n % 250}"))
            tenant.pod_bound(f"used-{n}", f"u-{n}")
        for n in numbers(_PODS):
            tenant.pod_bound("node-7", f"p-{n}")
        for n in numbers(_LEFT):
            node = own_node(f"left-{n}", label=True, of="gone")
            env.put(node)
            tenant.tenant_node_changed(f"left-{n}", node)
        for n in numbers(_OWN):
            tenant.tenant_node_changed(f"own-{n}", own_node(f"own-{n}"))
        await asyncio.sleep(_TURNS_S)
        for each in (tenant, *others):
            each.set_policy(VNodePolicy(labels=frozenset({"a.example/"})))
        for n in numbers(_NODES):
            env.vnodes.node_gone(f"unused-{n}")
        for n in numbers(_USED):
            tenant.pod_gone(f"used-{n}", f"u-{n}")
            env.vnodes.node_gone(f"used-{n}")
        for n in numbers(_PODS):
            tenant.pod_gone("node-7", f"p-{n}")
        tenant.conflicts()
        await asyncio.sleep(_TURNS_S)
        for n in numbers(_TENANTS):
            finish(env.vnodes.remove_tenant(f"other-{n}"))
        assert env.failed == []


def _work(sizes: Sizes, policy: VNodePolicy) -> int:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(_serve({}, policy))  # what is made once
        return steps(lambda: runner.run(_serve(sizes, policy)))


def test_work_for_vnodes_is_no_product_of_two_lists() -> None:
    places = (_NODES, _USED, _PODS, _TENANTS, _LEFT, _OWN)
    for policy in (VNodePolicy(), VNodePolicy(scope=VNodeScope.ALL)):

        def measure(sizes: Sizes, policy: VNodePolicy = policy) -> int:
            return _work(sizes, policy)

        assert superlinear(measure, places, first=8, noise=1_000) == []
