# SPDX-License-Identifier: Apache-2.0
import asyncio
from typing import Any

import pytest

from daemonkit.fairness.scheduler import Account, TenantScheduler
from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.resources import NODES, Status
from devkit.syncer.fake_control_plane import FakeControlPlane
from syncer.core.objects import Object
from syncer.core.plan import Conflict, Wait
from syncer.vnodes.desired import VNodePolicy, VNodeScope
from syncer.vnodes.tenant_vnodes import MAX_WITHOUT_NODE
from tests.pump import steps
from tests.steps import finish
from tests.unit.syncer.vnodes.environment import VNodesEnvironment, own_node, super_node
from tests.waiting import until

pytestmark = pytest.mark.asyncio

ALL = VNodePolicy(scope=VNodeScope.ALL, node_labels={"kubernetes.io/os": "linux"})
PATH = "/api/v1/nodes/node-7"
CREATED = [f"GET {PATH}", "POST /api/v1/nodes"]


def ready_of(node: Object | None) -> str:
    assert node is not None
    return str(node["status"]["conditions"][0]["status"])


async def test_vnode_is_made_once_for_all_callers() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        outcomes = await asyncio.gather(*(tenant.ensure("node-7") for _ in range(20)))
        assert outcomes == [None] * 20
        assert env.take_requests() == CREATED
        assert await tenant.ensure("node-7") is None
        assert env.take_requests() == []
        node = env.node()
        assert node is not None
        assert node["metadata"]["annotations"] == {"vcnode.io/vnode-of": "uid-node-7"}
        assert node["spec"]["unschedulable"] is True
        assert node["status"]["addresses"] == [{"type": "InternalIP", "address": "192.0.2.7"}]


async def test_caller_that_gives_up_does_not_end_the_others() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        env.planes["a"].delay_s = 1.0
        first = env.tasks.spawn(tenant.ensure("node-7"), "first")
        second = env.tasks.spawn(tenant.ensure("node-7"), "second")
        await asyncio.sleep(0.5)
        first.cancel()
        assert await second is None


@pytest.mark.parametrize(
    "change",
    [{"spec": 5}, {"spec": {"taints": True}}, {"status": 1.5}, {"status": {"conditions": 1.5}}],
    ids=str,
)
async def test_invalid_node_of_the_tenant_fails_alone(change: Object) -> None:
    """A tenant's API server answers what it likes; a task that fails would end the daemon for all tenants."""
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        node = own_node(of="uid-node-7", label=True) | change
        env.put(node)
        tenant.pod_bound("node-7", "p")
        tenant.tenant_node_changed("node-7", node)
        assert await tenant.ensure("node-7") == Wait(
            "VNodeNotReady", "node node-7: the tenant's API server answers with no valid Node"
        )
        env.put(own_node(of="uid-node-7", label=True))
        await asyncio.sleep(20)
        assert await tenant.ensure("node-7") is None


async def test_node_of_very_many_values_is_not_read() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        env.put(own_node(of="uid-node-7", label=True) | {"spec": {"taints": [0] * 200_001}})
        assert await tenant.ensure("node-7") == Wait(
            "VNodeNotReady", "node node-7: the tenant's API server does not answer"
        )


async def test_labels_that_are_none_are_no_vnode() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        tenant.tenant_node_changed(
            "node-7", {"metadata": {"name": "node-7", "labels": "x", "annotations": 5}}
        )
        assert env.take_requests() == []


async def test_node_of_the_tenant_is_a_conflict() -> None:
    """Upstream filled it with the real node's addresses; we leave it, and the pod unbound."""
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        env.put(own_node())
        before = env.node()
        outcome = await tenant.ensure("node-7")
        assert outcome == Conflict("Node node-7 is the tenant's own, so the tenant has no vNode of that name")
        assert tenant.conflicts() == {"node-7": outcome.message}
        await asyncio.sleep(600)
        assert env.node() == before
        assert env.lease() is None


async def test_conflict_ends_with_the_tenants_node() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        env.put(own_node())
        tenant.pod_bound("node-7", "p1")
        await asyncio.sleep(5)
        env.planes["a"].storage.delete(NODES, "", "node-7")
        tenant.tenant_node_changed("node-7", None)
        await asyncio.sleep(1)
        assert ready_of(env.node()) == "True"
        assert tenant.conflicts() == {}


async def test_vnode_of_the_go_syncer_is_adopted_where_pods_run() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        env.put(own_node(label=True))
        tenant.tenant_node_changed("node-7", env.node())
        await asyncio.sleep(300)
        assert env.take_requests() == []
        tenant.pod_bound("node-7", "p1")
        await asyncio.sleep(1)
        assert env.take_requests() == [f"GET {PATH}", f"PATCH {PATH}", f"PATCH {PATH}/status"]
        node = env.node()
        assert node is not None
        assert node["metadata"]["annotations"] == {"vcnode.io/vnode-of": "uid-node-7"}
        assert node["status"]["capacity"] == {"cpu": "4"}


@pytest.mark.parametrize("of", ["", "uid-node-7", "forged"])
async def test_tenant_learns_of_no_node_by_making_one(of: str) -> None:
    """Whether a super node of that name exists or not, the same becomes of a forged vNode."""
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        histories = []
        for name in ("node-7", "node-8"):
            env.put(own_node(name, label=True, of=of))
            tenant.tenant_node_changed(name, env.node(name=name))
            await asyncio.sleep(100)
            found = env.node(name=name)
            assert found is not None
            assert found["status"] == {"capacity": {"cpu": "1"}}
            assert env.lease(name=name) is None
            await asyncio.sleep(100)
            histories.append((env.node(name=name) is None, [r.split()[0] for r in env.take_requests()]))
        assert histories[0] == histories[1]
        assert histories[0] == ((True, ["GET", "DELETE"]) if of else (False, []))


async def test_changes_of_the_super_node_go_up() -> None:
    async with VNodesEnvironment() as env:
        for key in ("a", "b"):
            env.tenant(key).pod_bound("node-7", "p1")
        await asyncio.sleep(5)
        for key in ("a", "b"):
            env.take_requests(key)
        env.vnodes.node_changed(super_node(ready="Unknown"))
        await asyncio.sleep(5)
        for key in ("a", "b"):
            assert ready_of(env.node(key)) == "Unknown"
            assert env.take_requests(key) == [f"GET {PATH}", f"PATCH {PATH}/status"]


async def test_heartbeats_cost_no_request() -> None:
    """S15: upstream asked the API server once a heartbeat, tenant and node."""
    async with VNodesEnvironment() as env:
        env.tenant().pod_bound("node-7", "p1")
        await asyncio.sleep(5)
        env.take_requests()
        for beat in range(100):
            node = super_node()
            node["status"]["conditions"][0]["lastHeartbeatTime"] = f"h{beat}"
            env.vnodes.node_changed(node)
            await asyncio.sleep(10)
        assert env.take_requests() == []


async def test_change_that_is_not_shown_is_not_written() -> None:
    async with VNodesEnvironment() as env:
        env.tenant().pod_bound("node-7", "p1")
        await asyncio.sleep(5)
        env.take_requests()
        node = super_node()
        node["metadata"]["labels"]["secret"] = "x"
        env.vnodes.node_changed(node)
        await asyncio.sleep(60)
        assert env.take_requests() == []


async def test_edits_of_vnodes_are_repaired() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        tenant.pod_bound("node-7", "p1")
        await asyncio.sleep(5)
        edited = env.node()
        assert edited is not None
        edited["spec"] = {"podCIDR": "10.0.0.0/24"}
        edited["metadata"]["labels"]["own"] = "1"
        env.put(edited)
        env.take_requests()
        tenant.tenant_node_changed("node-7", env.node())
        await asyncio.sleep(1)
        assert env.take_requests() == [f"GET {PATH}", f"PATCH {PATH}"]
        repaired = env.node()
        assert repaired is not None
        assert repaired["spec"]["unschedulable"] is True
        assert repaired["metadata"]["labels"]["own"] == "1"
        tenant.tenant_node_changed("node-7", repaired)
        tenant.tenant_node_changed("node-7", edited)  # comes late
        await asyncio.sleep(1)
        assert env.take_requests() == []


async def test_deleted_vnode_is_made_again_while_it_is_used() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        tenant.pod_bound("node-7", "p1")
        await asyncio.sleep(5)
        env.planes["a"].storage.delete(NODES, "", "node-7")
        tenant.tenant_node_changed("node-7", None)
        await asyncio.sleep(1)
        assert env.node() is not None


async def test_idle_vnode_is_removed_after_the_grace() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        tenant.pod_bound("node-7", "p1")
        tenant.pod_bound("node-7", "p2")
        await asyncio.sleep(300)
        tenant.pod_gone("node-7", "p1")
        await asyncio.sleep(300)
        assert env.node() is not None
        tenant.pod_gone("node-7", "p2")
        await asyncio.sleep(119)
        assert env.node() is not None
        await asyncio.sleep(12)
        assert env.node() is None
        env.take_requests()
        await asyncio.sleep(600)
        assert env.take_requests() == []


async def test_use_within_the_grace_keeps_the_vnode() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        assert await tenant.ensure("node-7") is None
        await asyncio.sleep(100)
        assert await tenant.ensure("node-7") is None
        await asyncio.sleep(100)
        tenant.pod_bound("node-7", "p1")
        await asyncio.sleep(1000)
        assert env.node() is not None


async def test_pod_that_comes_while_the_vnode_is_deleted_gets_another() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        assert await tenant.ensure("node-7") is None
        first = env.node()
        await asyncio.sleep(115)
        env.planes["a"].delay_s = 3.0
        await until(lambda: f"DELETE {PATH}" in env.planes["a"].requests)
        assert await tenant.ensure("node-7") is None
        second = env.node()
        assert first is not None
        assert second is not None
        assert first["metadata"]["uid"] != second["metadata"]["uid"]


async def test_vnode_made_anew_by_another_is_not_deleted() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        assert await tenant.ensure("node-7") is None
        env.planes["a"].storage.delete(NODES, "", "node-7")
        env.put(own_node())
        await asyncio.sleep(300)
        assert env.node() is not None


async def test_nothing_is_removed_before_pods_are_known() -> None:
    async with VNodesEnvironment() as env:
        env.tenant("b")
        plane = env.planes["b"]
        plane.storage.put(NODES, own_node(label=True, of="uid-node-7"))
        tenant = env.vnodes.add_tenant("b", plane, VNodePolicy())
        tenant.tenant_node_changed("node-7", env.node("b"))
        await asyncio.sleep(600)
        assert env.node("b") is not None
        tenant.mark_synced()
        await asyncio.sleep(11)
        assert env.node("b") is None


async def test_vnode_goes_with_its_super_node() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        tenant.pod_bound("node-7", "p1")
        await asyncio.sleep(5)
        env.vnodes.node_gone("node-7")
        await asyncio.sleep(5)
        assert env.node() is None
        assert await tenant.ensure("node-7") == Wait(
            "VNodeNotReady", "node node-7 is not known in the super cluster"
        )
        env.vnodes.node_changed(super_node())
        await asyncio.sleep(1)
        assert env.node() is not None


async def test_pods_are_bound_once_the_super_node_is_known() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        assert await tenant.ensure("node-9") == Wait(
            "VNodeNotReady", "node node-9 is not known in the super cluster"
        )
        env.vnodes.node_changed(super_node("node-9"))
        assert await tenant.ensure("node-9") is None


async def test_all_nodes_that_the_policy_selects() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant(policy=ALL)
        env.vnodes.node_changed(super_node("node-8"))
        other = super_node("node-9")
        other["metadata"]["labels"] = {"kubernetes.io/os": "windows"}
        env.vnodes.node_changed(other)
        await asyncio.sleep(1)
        assert [env.node(name=f"node-{n}") is not None for n in (7, 8, 9)] == [True, True, False]
        await asyncio.sleep(600)
        assert env.node(name="node-8") is not None
        tenant.pod_bound("node-7", "p1")
        tenant.set_policy(VNodePolicy())
        await asyncio.sleep(200)
        assert [env.node(name=f"node-{n}") is not None for n in (7, 8, 9)] == [True, False, False]


async def test_other_policy_changes_vnodes() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        tenant.pod_bound("node-7", "p1")
        await asyncio.sleep(5)
        tenant.set_policy(VNodePolicy(resources={"cpu": "2"}, is_schedulable=True))
        await asyncio.sleep(1)
        node = env.node()
        assert node is not None
        assert node["status"]["capacity"] == {"cpu": "2"}
        assert node["spec"] == {"taints": []}


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (UnreachableError("x"), "node node-7: the tenant's API server does not answer"),
        (ApiError(Status(503, "x", "y")), "node node-7: the tenant's API server answers 503"),
        (ApiError(Status(403, "x", "y")), "node node-7: the tenant's API server answers 403"),
    ],
)
async def test_failures_are_retried_with_backoff(failure: Exception, message: str) -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        env.planes["a"].failures = [failure] * 3
        tenant.pod_bound("node-7", "p1")
        assert await tenant.ensure("node-7") == Wait("VNodeNotReady", message)
        # Those who come within the backoff cost nothing.
        assert await tenant.ensure("node-7") == Wait("VNodeNotReady", message)
        assert env.take_requests() == [f"GET {PATH}"]
        await asyncio.sleep(60)
        assert await tenant.ensure("node-7") is None


async def test_conflicting_write_is_read_again() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        env.put(own_node(label=True))
        plane = env.planes["a"]
        plane.delay_s = 1.0
        ensured = env.tasks.spawn(tenant.ensure("node-7"), "ensure")
        await asyncio.sleep(1.5)
        plane.failures = [ApiError(Status(409))]
        assert await ensured is None
        assert ready_of(env.node()) == "True"


async def test_few_requests_at_a_time() -> None:
    async with VNodesEnvironment() as env:
        for number in range(50):
            env.vnodes.node_changed(super_node(f"node-{number}"))
        tenant = env.tenant()
        env.planes["a"].delay_s = 0.1
        await asyncio.gather(*(tenant.ensure(f"node-{n}") for n in range(50)))
        assert env.planes["a"].most_in_flight <= 5  # four of vNodes, and one of Leases


async def test_tenant_that_hangs_holds_up_nobody() -> None:
    async with VNodesEnvironment() as env:
        hanging, other = env.tenant("h"), env.tenant("o")
        env.planes["h"].delay_s = 65.0
        hanging.pod_bound("node-7", "p1")
        other.pod_bound("node-7", "p1")
        await asyncio.sleep(15)
        assert ready_of(env.node("o")) == "True"
        assert env.lease("o") is not None


async def test_error_in_a_renewal_of_leases_fails_alone() -> None:
    """A task that fails would end the daemon for all tenants."""
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        tenant.pod_bound("node-7", "p1")
        await asyncio.sleep(15)
        before = env.lease()
        env.planes["a"].failures = [OverflowError("int too large to convert to float")]
        env.now += 30
        await asyncio.sleep(25)
        assert env.planes["a"].failures == []
        assert env.failed == []
        assert env.vnodes.counts.renewals_failed == 1
        assert env.lease() != before


async def test_removed_tenant_is_left_alone() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        tenant.pod_bound("node-7", "p1")
        await asyncio.sleep(15)
        env.planes["a"].delay_s = 5.0
        waiting = env.tasks.spawn(tenant.ensure("node-8"), "ensure")
        await asyncio.sleep(1)
        finish(env.vnodes.remove_tenant("a"))
        assert await waiting == Wait("VNodeNotReady", "the tenant is not synced any more")
        env.planes["a"].requests.clear()
        env.vnodes.node_changed(super_node(ready="False"))
        await asyncio.sleep(300)
        assert env.planes["a"].requests == []
        assert env.node() is not None


async def test_node_that_was_replaced_meanwhile_is_not_deleted() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        assert await tenant.ensure("node-7") is None
        await asyncio.sleep(115)
        env.planes["a"].delay_s = 3.0
        await until(lambda: f"DELETE {PATH}" in env.planes["a"].requests)
        env.planes["a"].storage.delete(NODES, "", "node-7")
        env.put(own_node())
        await asyncio.sleep(300)
        assert env.node() is not None


async def test_node_that_was_replaced_meanwhile_is_not_patched() -> None:
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        env.put(own_node(label=True))
        env.planes["a"].delay_s = 3.0
        tenant.pod_bound("node-7", "p1")
        await until(lambda: f"PATCH {PATH}" in env.planes["a"].requests)
        env.planes["a"].storage.delete(NODES, "", "node-7")
        env.put(own_node())
        before = env.node()
        assert isinstance(await tenant.ensure("node-7"), Conflict)
        assert env.node() == before


class _ChargedPlane(FakeControlPlane):
    """`is_charged` has for each request whether the account's coroutine makes it."""

    def __init__(self, account: Account) -> None:
        super().__init__()
        self.account = account
        self.is_charged: list[bool] = []

    async def request(self, *args: Any, **more: Any) -> bytes:
        self.is_charged.append(self.account.is_in_step)
        return await super().request(*args, **more)


async def test_a_tenant_pays_for_its_vnodes() -> None:
    """Its API server decides how often each is read, and what it answers: up to 3 MB at a time."""
    async with VNodesEnvironment() as env:
        account = TenantScheduler().open("a")
        plane = _ChargedPlane(account)
        tenant = env.vnodes.add_tenant("a", plane, VNodePolicy(), account.run)
        tenant.mark_synced()
        tenant.pod_bound("node-7", "p")
        await asyncio.sleep(30)
        node = own_node(label=True)
        tenant.tenant_node_changed(
            "node-7", node | {"metadata": node["metadata"] | {"resourceVersion": "99"}}
        )
        await asyncio.sleep(30)
        assert {each.split()[0] for each in plane.requests} == {"GET", "POST", "PATCH"}
        assert set(plane.is_charged) == {True}


async def test_forged_vnodes_are_looked_after_up_to_a_bound() -> None:
    """Each tick visited all forged Nodes in one step of 29 ms, and other tenants waited."""
    async with VNodesEnvironment() as env:
        tenant = env.tenant()
        forged = 2 * MAX_WITHOUT_NODE
        for number in range(forged):
            tenant.tenant_node_changed(f"n{number}", own_node(f"n{number}", label=True, of="x"))
        assert steps(tenant.tick) < 100 * MAX_WITHOUT_NODE
        # Those that are looked after are removed, and then others may be.
        await asyncio.sleep(300)
        assert len({each for each in env.take_requests() if each.startswith("GET")}) == MAX_WITHOUT_NODE + 1
        tenant.tenant_node_changed("n0", own_node("n0", label=True, of="x"))
        await asyncio.sleep(300)
        assert env.take_requests() == ["GET /api/v1/nodes/n0"]


async def test_a_policy_is_applied_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 000 nodes took 30 ms at once, for each tenant of a SyncPolicy."""
    async with VNodesEnvironment() as env:
        for number in range(2_000):
            env.vnodes.node_changed(super_node(f"n{number}", address=""))
        tenant = env.tenant()
        shown = list[str]()

        def note(_: VNodePolicy, node: Object) -> bool:
            shown.append(node["metadata"]["name"])
            return False

        monkeypatch.setattr(VNodePolicy, "covers", note)
        tenant.set_policy(VNodePolicy(scope=VNodeScope.ALL))
        assert 0 < len(shown) <= 1_000
        await asyncio.sleep(1)
        assert len(shown) == 2_001
