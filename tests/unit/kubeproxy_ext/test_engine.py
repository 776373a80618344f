# SPDX-License-Identifier: Apache-2.0
"""The daemon without sockets: real parts, a stand-in API server and bridge, virtual time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonkit.kube.client import UnreachableError
from daemonkit.kube.resources import ENDPOINT_SLICES, NAMESPACES, NODES, SERVICES
from daemonkit.metrics import Counter
from daemonkit.tasks import Tasks
from daemonkit.testing.kube_storage import Storage
from daemonkit.testing.kube_transport import StorageTransport
from kata_bridge.api.messages import ResultCode
from kubeproxy_ext.core.pace import GAP_S
from kubeproxy_ext.delivery import Push
from kubeproxy_ext.engine import GRACE_S, Engine
from kubeproxy_ext.metrics import Metrics
from kubeproxy_ext.push import Handlers, Pusher
from kubeproxy_ext.ranges import ServiceRanges
from kubeproxy_ext.report import Report
from kubeproxy_ext.saved_state import Restored, SavedState, TenantState
from kubeproxy_ext.service import turns
from kubeproxy_ext.testing.fake_bridge import FakeBridge
from kubeproxy_ext.watch import Watch
from ruleset.document import Ruleset
from tenancy import keys

pytestmark = pytest.mark.asyncio

HOLD_S = 600.0
WALL = 1_800_000_000.0


class Node:
    """One node: `storage` is the super cluster, `bridge` has the guests."""

    def __init__(self, storage: Storage | None = None, saved: dict[str, TenantState] | None = None) -> None:
        self.storage = storage or Storage()
        self.transport = StorageTransport(self.storage)
        self.bridge = FakeBridge()
        self.saved = saved
        self.tasks = Tasks("test")
        self.metrics = Metrics()
        clock = asyncio.get_running_loop().time
        started = clock()
        self.woken = asyncio.Event()
        self.engine = Engine(
            "n1",
            ServiceRanges(("10.96.0.0/16",), {}),
            HOLD_S,
            self.metrics,
            now=clock,
            wall=lambda: WALL + round(clock() - started, 2),
            wake=self.woken.set,
            send=self._send,
            ask_saved=None if saved is None else self._restore,
        )
        engine = self.engine
        handlers = Handlers(
            engine.present,
            engine.gone,
            engine.synced,
            engine.lost,
            engine.answered,
            engine.failed,
            engine.done,
        )
        self.pusher = Pusher(lambda: self.bridge, handlers, self.tasks, lambda: 0.5)
        self.watch = Watch(
            self.transport, "n1", engine.feed, engine.world, self.woken.set, self.tasks, clock=clock
        )
        engine.sources = self.watch
        self.report = Report(engine, self.watch, self.pusher)
        self.storage.put(NODES, {"metadata": {"name": "n1"}})

    def _send(self, push: Push) -> None:
        self.pusher.push(push)

    def _restore(self, tenant: str) -> None:
        state = (self.saved or {}).get(tenant)
        self.engine.restored(tenant, None if state is None else Restored(state, 60.0))

    def put_tenant(self, tenant: str) -> None:
        annotations = {keys.CLUSTER: tenant, keys.NAMESPACE: "default"}
        metadata = {"name": f"{tenant}-default", "annotations": annotations}
        self.storage.put(NAMESPACES, {"metadata": metadata})

    def put(self, tenant: str, name: str, ip: str, *endpoints: str) -> None:
        port = {"name": "p", "protocol": "TCP", "port": 80}
        spec = {"clusterIP": ip, "ports": [port]}
        metadata = {"name": name, "namespace": f"{tenant}-default"}
        self.storage.put(SERVICES, {"metadata": metadata, "spec": spec})
        self.put_slice(tenant, name, *endpoints)

    def put_slice(self, tenant: str, name: str, *endpoints: str) -> None:
        labels = {"kubernetes.io/service-name": name}
        self.storage.put(
            ENDPOINT_SLICES,
            {
                "metadata": {"name": f"{name}-1", "namespace": f"{tenant}-default", "labels": labels},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [ip]} for ip in endpoints],
                "ports": [{"name": "p", "port": 8080}],
            },
        )

    def text(self, guest: str) -> str:
        held = self.bridge.held(guest)
        return "" if held is None else "".join(document.text() for document in held.documents)

    def snapshot(self, tenant: str) -> TenantState:
        feed = self.engine.feed
        names = sorted(feed.tenants.get(tenant, ()))
        return TenantState(
            tenant,
            [feed.namespaces[name] for name in names],
            [each for name in names for each in feed.services(name)],
            [each for name in names for each in feed.slices(name)],
            self.watch.node,
        )

    @contextlib.asynccontextmanager
    async def running(self, seconds: float = 1.0) -> AsyncIterator[None]:
        self.watch.start()
        self.tasks.spawn(self.pusher.run(), "bridge")
        self.tasks.spawn(turns(self.engine, self.woken, asyncio.get_running_loop().time), "turns")
        await asyncio.sleep(seconds)
        try:
            yield
        finally:
            assert await self.tasks.close(5.0) == ()


def node() -> Node:
    made = Node()
    for number, tenant in enumerate(("a", "b")):
        made.put_tenant(tenant)
        made.put(tenant, "web", f"10.96.{number}.1", f"10.{number}.0.1")
    return made


async def test_the_first_change_goes_out_at_once_and_what_follows_together() -> None:
    it = node()
    it.bridge.add("g", "a")
    async with it.running():
        times: list[float] = []
        now = asyncio.get_running_loop().time
        original = it.pusher.push

        def push(each: Push) -> None:
            times.append(now())
            original(each)

        it.pusher.push = push  # type: ignore[method-assign, assignment] # a spy
        started = now()
        for number in range(10):
            it.put_slice("a", "web", f"10.0.0.{number}")
            await asyncio.sleep(0.004)
        await asyncio.sleep(1)
        assert len(times) == 2
        assert times[0] - started < 0.01
        assert times[1] - times[0] == pytest.approx(GAP_S, abs=0.002)
        assert "10.0.0.9:8080" in it.text("g")


async def test_nothing_is_sent_before_everything_has_been_listed() -> None:
    it = node()
    it.bridge.add("g", "a")
    # Namespaces and the node answer, and what comes after them does not for a while.
    it.transport.failures = []
    async with it.running(0.0):
        await asyncio.sleep(0.012)
        # More than can be met in a second, however short the pauses between them are drawn.
        it.transport.failures = [UnreachableError("x")] * 1000
        await asyncio.sleep(1)
        assert it.bridge.received == []
        status = it.report.status(0.0)
        assert status["tenants"] == {
            "a": {"knowledge": "unknown", "serviceCIDRs": ("10.96.0.0/16",), "lastKnownAgeSeconds": None}
        }
        assert not it.report.readiness().is_ready
        it.transport.failures = []
        await asyncio.sleep(120)
        assert "10.96.0.1" in it.text("g")
        assert it.report.readiness().is_ready


async def test_a_new_guest_of_a_known_tenant_does_not_wait_for_its_turn() -> None:
    it = node()
    it.bridge.add("g1", "a")
    async with it.running():
        renders = it.engine.groups.renders
        it.put_slice("a", "web", "10.0.0.5")
        await asyncio.sleep(0.011)
        it.bridge.add("g2", "a", ips=("10.244.0.7",))
        await asyncio.sleep(0.001)
        assert it.text("g2") != ""
        await asyncio.sleep(1)
        assert it.text("g1") == it.text("g2")
        assert it.engine.groups.renders == renders + 1


async def test_guests_change_and_go() -> None:
    it = node()
    it.bridge.add("g1", "a")
    it.bridge.add("g2", "b")
    async with it.running():
        assert len(it.engine.groups) == 2
        it.bridge.remove("g2")
        it.bridge.change("g1", networks=("blue",))
        await asyncio.sleep(1)
        assert "10.96.0.1" not in it.text("g1")
        assert (len(it.engine.groups), list(it.engine.asked)) == (1, ["g1"])
        await asyncio.sleep(300)
        assert list(it.engine.tenants) == ["a"]


async def test_an_api_server_that_is_away_leaves_known_guests_alone_and_gives_new_ones_what_is_known() -> (
    None
):
    first = node()
    first.bridge.add("g1", "a")
    async with first.running():
        saved = {"a": first.snapshot("a")}
    it = Node(first.storage, saved)
    it.bridge = first.bridge
    it.transport.failures = [UnreachableError("x")] * 12
    it.bridge.received.clear()
    it.bridge.add("g2", "a")
    it.bridge.add("g3", "b")
    async with it.running(0.0):
        await asyncio.sleep(GRACE_S - 0.1)
        assert it.bridge.received == []
        await asyncio.sleep(0.3)
        assert [each.guest for each in it.bridge.received] == ["g2"]
        assert it.text("g2") == it.text("g1")
        status = it.report.status(it.engine.tenants["a"].restored_at + 5.0)
        assert status["tenants"] == {
            "a": {"knowledge": "last known", "serviceCIDRs": ("10.96.0.0/16",), "lastKnownAgeSeconds": 65.0},
            "b": {"knowledge": "unknown", "serviceCIDRs": ("10.96.0.0/16",), "lastKnownAgeSeconds": None},
        }
        it.put("a", "new", "10.96.0.9", "10.0.0.9")
        await asyncio.sleep(60)
        assert all("10.96.0.9" in it.text(guest) for guest in ("g1", "g2"))
        assert it.engine.tenants["a"].knowledge == "heard"


async def test_saved_services_that_are_gone_are_gone_when_the_api_server_is_heard() -> None:
    first = node()
    first.put("a", "old", "10.96.0.8", "10.0.0.8")
    first.bridge.add("g1", "a")
    async with first.running():
        saved = {"a": first.snapshot("a")}
    first.storage.delete(SERVICES, "a-default", "old")
    first.storage.delete(ENDPOINT_SLICES, "a-default", "old-1")
    it = Node(first.storage, saved)
    it.bridge.add("g2", "a")
    it.transport.failures = [UnreachableError("x")] * 8
    async with it.running(GRACE_S + 0.1):
        assert "10.96.0.8" in it.text("g2")
        await asyncio.sleep(60)
        assert "10.96.0.8" not in it.text("g2")
        assert "10.96.0.1" in it.text("g2")


async def test_a_first_list_with_endpoints_and_without_services_is_not_believed() -> None:
    first = node()
    first.bridge.add("g1", "a")
    async with first.running():
        saved = {"a": first.snapshot("a")}
    first.storage.delete(SERVICES, "a-default", "web")
    it = Node(first.storage, {})
    it.bridge = first.bridge
    before = it.text("g1")
    async with it.running(100.0):
        assert it.text("g1") == before
        assert it.engine.tenants["a"].knowledge == "held"
        assert not it.report.readiness().is_ready
        await asyncio.sleep(HOLD_S)
        assert "10.96.0.1" not in it.text("g1")
    # With saved state the rest goes on, too.
    it = Node(first.storage, saved)
    it.bridge.add("g2", "a")
    async with it.running(100.0):
        assert "10.96.0.1" in it.text("g2")
        assert [held.services for held in it.engine.brake.held] == [frozenset({"web"})]
        it.storage.delete(ENDPOINT_SLICES, "a-default", "web-1")
        await asyncio.sleep(1)
        assert "10.96.0.1" not in it.text("g2")
        assert it.engine.brake.held == frozenset()


async def test_a_slow_guest_holds_up_nobody_else() -> None:
    it = node()
    it.bridge.add("g1", "a")
    it.bridge.add("g2", "b")
    async with it.running():
        it.bridge.delay_s = 30.0
        it.put_slice("a", "web", "10.0.0.5")
        await asyncio.sleep(0.1)
        it.bridge.delay_s = 0.0
        it.put_slice("b", "web", "10.0.0.6")
        it.put_slice("a", "web", "10.0.0.7")
        await asyncio.sleep(0.2)
        assert "10.0.0.6" in it.text("g2")
        assert "10.0.0.7" not in it.text("g1")
        await asyncio.sleep(31)
        assert "10.0.0.7" in it.text("g1")


async def test_a_bridge_that_is_away_is_looked_for_and_told_everything() -> None:
    it = node()
    it.bridge.add("g1", "a")
    async with it.running():
        it.bridge.forget_everything()
        it.put_slice("a", "web", "10.0.0.5")
        await asyncio.sleep(10)
        assert "10.0.0.5" in it.text("g1")
        assert it.pusher.problem == ""
        # All of it is the bridge's to repair from again.
        assert it.bridge.guests["g1"].desired is not None


async def test_a_refusal_is_reported_once() -> None:
    it = node()
    guest = it.bridge.add("g1", "a")
    guest.refusals = [(ResultCode.REFUSED, "line 3: -j X")] * 3
    async with it.running():
        page = it.report.explain({"guest": "g1"}, 0.0)
        assert page.status == 200
        assert b"REFUSED: line 3: -j X" in page.body
        await asyncio.sleep(700)
        assert "10.96.0.1" not in it.text("g1")
        await asyncio.sleep(300)
        assert "10.96.0.1" in it.text("g1")


Act = tuple[str, int, int]
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["put", "slice", "delete", "relist", "guest"]), st.integers(0, 4), st.integers(0, 3)
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(ACTS)
async def test_no_event_of_one_tenant_changes_a_byte_of_what_anothers_guests_are_sent(
    acts: list[Act],
) -> None:
    async def play(do: Callable[[Node, Act], None]) -> list[bytes]:
        it = node()
        it.bridge.add("g1", "a")
        async with it.running():
            it.bridge.add("g2", "b")
            for number, act in enumerate(acts):
                do(it, act)
                await asyncio.sleep(0.03)
                # Meanwhile the first tenant lives its own life.
                if number % 3 == 0:
                    it.put_slice("a", "web", f"10.0.0.{number}")
                    await asyncio.sleep(0.2)
            await asyncio.sleep(1)
            return [each.data for each in it.bridge.of("g1")]

    alone = await play(lambda _node, _act: None)
    crowded = await play(_act)
    assert crowded == alone


def _act(it: Node, act: Act) -> None:
    what, number, other = act
    match what:
        case "put":
            it.put("b", f"s{number}", f"10.96.1.{number + 1}", *(f"10.1.{other}.{i}" for i in range(other)))
        case "slice":
            it.put_slice("b", f"s{number}", f"10.1.9.{other}")
        case "delete":
            if ("b-default", f"s{number}") in it.engine.world._cluster.services:  # noqa: SLF001 - to know
                it.storage.delete(SERVICES, "b-default", f"s{number}")
        case "relist":
            it.storage.bump()
        case "guest":
            it.bridge.add(f"b{number}", "b", ips=(f"10.244.1.{other}",))


async def test_saved_state_is_of_what_was_heard(tmp_path: Path) -> None:
    it = node()
    it.bridge.add("g1", "a")
    async with it.running():
        saved = SavedState(tmp_path, it.snapshot, Counter(), wall=lambda: WALL, now=lambda: 0.0)
        saved.prepare()
        taken = it.engine.take_to_save()
        assert taken == {"a"}
        saved.changed(taken)
        await saved.keep({"a": 0.0})
        restored = await saved.load("a")
        assert restored is not None
        assert [each.metadata.name for each in restored.state.services] == ["web"]
        assert it.engine.take_to_save() == frozenset()


async def test_a_guest_may_come_to_share_rules_that_are_older_than_its_own() -> None:
    it = node()
    it.bridge.add("g1", "a", ips=("10.244.0.7",))
    async with it.running():
        # Without an address it is prepared for both families; with one it shares g1's rules.
        it.bridge.add("g2", "a", ips=())
        await asyncio.sleep(1)
        assert len(it.bridge.held("g2").documents) == 2  # type: ignore[union-attr] # it has rules
        it.bridge.change("g2", ips=("10.244.0.8",))
        await asyncio.sleep(5)
        assert it.text("g2") == it.text("g1") != ""
        assert [each.result.code for each in it.bridge.of("g2")] == [ResultCode.APPLIED] * 2


async def test_a_clock_that_was_set_back_before_a_restart_holds_nothing_up() -> None:
    it = node()
    known = it.bridge.add("g", "a")
    known.desired = known.held = Ruleset(1 << 60, "f" * 64, ())
    async with it.running():
        await asyncio.sleep(3)
        assert "10.0.0.1:8080" in it.text("g")
        assert it.bridge.held("g").generation == (1 << 60) + 1  # type: ignore[union-attr] # it has rules


async def test_a_guest_that_claims_a_generation_beyond_all_moves_nothing() -> None:
    it = node()
    it.bridge.add("good", "a")
    async with it.running():
        it.bridge.add("bad", "a", generation=0)
        await asyncio.sleep(1)
        for claimed in ((1 << 64) - 1, 1 << 63, 1 << 62):
            known = it.bridge.guests["bad"]
            known.held = Ruleset(claimed, "f" * 64, ())
            it.bridge.tell("bad")
            it.put_slice("a", "web", f"10.0.0.{claimed % 199}")
            await asyncio.sleep(2)
            assert f"10.0.0.{claimed % 199}:8080" in it.text("good")
            assert it.bridge.held("good").generation < 1 << 53  # type: ignore[union-attr] # it has rules
