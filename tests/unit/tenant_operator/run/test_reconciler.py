# SPDX-License-Identifier: Apache-2.0
"""A VirtualCluster is reconciled against a fake super cluster, which may refuse a step with any text."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from daemonkit.kube.client import ApiError
from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import Key, Status
from daemonkit.tasks import Tasks
from tenancy import keys
from tenant_operator.core.live import LiveObject
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.plan import Settings
from tenant_operator.core.probes import NODES_PODS, NodesProbe
from tenant_operator.core.steps import Apply, is_in_tenant
from tenant_operator.defaults.desired import builtin_files
from tenant_operator.edge.builtin_manifests import builtin_manifests
from tenant_operator.edge.executor import Executor
from tenant_operator.edge.surroundings import OperatorSurroundings
from tenant_operator.edge.write_gate import GatedClient
from tenant_operator.metrics import OperatorMetrics
from tenant_operator.model.cluster_version import ClusterVersion
from tenant_operator.model.objects import Object, Ref, ref_of
from tenant_operator.model.virtual_cluster import VirtualCluster
from tenant_operator.run.probe_queue import ProbeQueue
from tenant_operator.run.queue import ReconcileQueue
from tenant_operator.run.reconciler import LONGEST_START_S, MAX_IN_TENANTS, Reconciler
from tests.unit.fake_clock import FakeClock
from tests.unit.tenant_operator.core import worlds
from tests.unit.tenant_operator.core.kept_fields import kept
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster

pytestmark = pytest.mark.asyncio

ACME: Key = ("tenants", "acme")


@dataclass
class FakeSuper:
    """The super cluster of a world: its watches and its writes. `refuse` says which objects it does not
    take."""

    world: FakeWorld
    reconciler: Any = None
    refused: set[Ref] = field(default_factory=set)
    node_addresses: tuple[str, ...] = ()
    tries: int = 0
    statuses: int = 0

    def __post_init__(self) -> None:
        version = msgspec.convert(self.world.version, ClusterVersion)
        self.versions = SimpleNamespace(objects={("", "v1.34"): version})
        self.defaults = SimpleNamespace(objects={})

    @property
    def clusters(self) -> SimpleNamespace:
        return SimpleNamespace(objects={ACME: msgspec.convert(self.world.cluster, VirtualCluster)})

    def overlapping(self, cluster: VirtualCluster) -> tuple[VirtualCluster, ...]:
        return (cluster,)

    def of(self, cluster: VirtualCluster) -> dict[Ref, Any]:
        assert cluster.metadata.uid == self.world.cluster["metadata"]["uid"]
        return dict(self.world.observed().objects)

    def get(self, ref: Ref) -> LiveObject | None:
        found = self.world.objects.get(ref)
        return None if found is None else kept(ref, found)

    def pack(self, cluster: VirtualCluster) -> None:
        pass

    async def apply(self, manifest: Object) -> Object:
        ref = ref_of(manifest)
        if ref in self.refused:
            self.tries += 1
            text = f"read tcp 10.0.0.1:{40000 + self.tries}->10.0.0.2:9443: reset, used: pods={self.tries}"
            raise ApiError(Status(code=500, reason="InternalError", message=text))
        self.world.carry_out(Apply(manifest))
        self.reconciler.note_owned(self.world.cluster["metadata"]["uid"])
        return self.world.objects[ref]

    async def patch(self, ref: Ref, patch: Object, subresource: str = "") -> Object:
        assert (ref, subresource) == (Ref("VirtualCluster", *ACME), "status")
        self.statuses += 1
        self.world.cluster["status"] |= patch["status"]
        self.reconciler.note_cluster(ACME)
        return self.world.cluster


class FakeProber:
    """Nodes do not answer while `silent_at` is the time."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.silent_at: FakeClock | None = None
        self.asked: list[float] = []

    async def run(self, probe: Any) -> ProbeResult:
        if self.silent_at is None:
            facts = {NODES_PODS: probe.pods} if isinstance(probe, NodesProbe) else {}
            return ProbeResult(is_ok=True, at=worlds.NOW + self.clock.now, facts=facts)
        self.asked += [self.silent_at.now] if probe.name == "nodes" else []
        return ProbeResult(is_ok=probe.name != "nodes", at=worlds.NOW + self.silent_at.now, detail="silent")


def open_nothing(access: Access) -> GatedClient:
    raise AssertionError(access)


class ReconcilePlace:
    """One worker of a Reconciler over a tenant that is made."""

    def __init__(self) -> None:
        self.world = FakeWorld(virtual_cluster())
        self.world.run()
        self.clock = FakeClock(0.0)
        self.super = FakeSuper(self.world)
        self.queue = ReconcileQueue(self.clock, lambda: 1.0)
        self.metrics = OperatorMetrics()
        outside = self.outside = OperatorSurroundings(
            monotonic=self.clock, wall=lambda: worlds.NOW + self.clock.now
        )
        parts: Any = self.super
        self.prober = FakeProber(self.clock)
        prober: Any = self.prober
        self.probes = ProbeQueue(prober, self.queue, self.clock)
        executor = Executor(parts, self.metrics, outside.wall, open_nothing, open_nothing)
        self.reconciler = self.super.reconciler = self.of(executor, worlds.SETTINGS)

    def of(self, executor: Executor, settings: Settings) -> Reconciler:
        parts: Any = self.super
        found = Reconciler(
            settings, parts, parts, executor, self.probes, self.queue, self.metrics, self.outside
        )
        found.note_cluster(ACME)
        return found

    async def work(self, most: int = 50) -> int:
        """Reconcile what is due now; returns how often."""
        for count in range(most):
            task = Tasks("worker").spawn(self.queue.take(), "take")
            for _ in range(3):
                await asyncio.sleep(0)
            if not task.done():
                task.cancel()
                return count
            key = task.result()
            self.queue.done(key, has_failed=await self.reconciler.reconcile(key))
        raise AssertionError(f"reconciled {most} times without an end")

    def lose(self, ref: Ref) -> None:
        """It was deleted, and cannot be made again."""
        del self.world.objects[ref]
        self.super.refused.add(ref)

    @property
    def uid(self) -> str:
        found: str = self.world.cluster["metadata"]["uid"]
        return found

    @property
    def ready(self) -> Object:
        return next(each for each in self.world.cluster["status"]["conditions"] if each["type"] == "Ready")


def policy(place: ReconcilePlace) -> Ref:
    return Ref("NetworkPolicy", place.world.cluster["status"]["clusterNamespace"], "default-deny")


@pytest.mark.parametrize("is_writing", [False, True])
async def test_failing_step_is_tried_by_its_backoff(*, is_writing: bool) -> None:
    """Its text differs at each try, and another object may be written before it each time."""
    place = ReconcilePlace()
    await place.work()
    place.lose(policy(place))
    before, refs = place.super.statuses, sorted(ref for ref in place.world.objects if ref.kind == "Service")
    place.reconciler.note_owned(place.world.cluster["metadata"]["uid"])
    tries = []
    for second in range(130):
        place.clock.now = float(second)
        if is_writing:
            place.world.objects[refs[0]]["metadata"]["labels"] = {}
        count = place.super.tries
        await place.work()
        tries += [second] * (place.super.tries - count)
    assert tries == [0, 1, 3, 7, 15, 31, 63, 127]
    # Condition UpToDate at first, and Ready once it lasts.
    assert place.super.statuses - before == 2


async def test_spec_change_is_tried_at_once() -> None:
    place = ReconcilePlace()
    await place.work()
    place.lose(policy(place))
    for second in range(40):
        place.clock.now = float(second)
        await place.work()
    place.super.refused.clear()
    place.world.cluster["metadata"]["generation"] += 1
    place.reconciler.note_cluster(ACME)
    await place.work()
    assert policy(place) in place.world.objects
    assert place.ready["status"] == "True"


async def test_nodes_that_stay_silent_are_asked_ever_later() -> None:
    place = ReconcilePlace()
    await place.work()
    place.prober.silent_at = place.clock
    place.reconciler.forget_all()
    place.queue.add(ACME)
    plans = 0
    for second in range(2_000):
        place.clock.now = float(second)
        plans += await place.work()
    waits = [after - before for before, after in itertools.pairwise(place.prober.asked)]
    assert waits == [*[1.0] * 8, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, *[300.0] * 4]
    assert plans < 4 * len(waits)


async def test_some_workers_are_free_of_all_tenants() -> None:
    """Who finds no slot waits for one without a worker."""
    place, held = ReconcilePlace(), asyncio.Event()
    carried_out: list[int] = []

    class HeldExecutor:
        async def carry_out(self, _: Any, steps: Sequence[Any]) -> tuple[tuple[()], dict[Ref, str]]:
            carried_out.append(len(steps))
            if any(map(is_in_tenant, steps)):
                await held.wait()
            return (), {}

    executor: Any = HeldExecutor()
    settings = msgspec.structs.replace(worlds.SETTINGS, builtin=builtin_files(builtin_manifests()))
    reconciler = place.of(executor, settings)
    (state,) = reconciler.states.values()
    state.probes |= {name: ProbeResult(is_ok=True, at=worlds.NOW) for name in ("syncer", "nodes", "served")}
    others = [(f"other-{number}", "acme") for number in range(MAX_IN_TENANTS)]
    assert all(map(reconciler.slots.take, others))
    assert await place.queue.take() == ACME
    assert await reconciler.reconcile(ACME) is None
    place.queue.done(ACME, has_failed=None)
    assert carried_out == [0]
    reconciler.slots.give_back(others[0])
    # It has a slot, which nobody else gets.
    assert not reconciler.slots.take(others[0])
    assert await place.queue.take() == ACME
    task = Tasks("reconcilers").spawn(reconciler.reconcile(ACME), "worker")
    for _ in range(8):
        await asyncio.sleep(0)
    assert (task.done(), carried_out) == (False, [0, 0, 1])
    # Also while its tenant hangs it has answers.
    assert {"syncer", "nodes"} <= reconciler.states[place.uid].probes.keys()
    held.set()
    assert await task is False
    place.queue.done(ACME, has_failed=False)
    assert reconciler.slots.take(others[0])


async def test_a_deletion_waits_for_no_tenant() -> None:
    """Its API server never answers."""
    place, carried_out = ReconcilePlace(), []

    class HeldExecutor:
        async def carry_out(self, _: Any, steps: Sequence[Any]) -> tuple[tuple[()], dict[Ref, str]]:
            carried_out.append([is_in_tenant(each) for each in steps])
            if any(map(is_in_tenant, steps)):
                await asyncio.Event().wait()
            return (), {}

    executor: Any = HeldExecutor()
    settings = msgspec.structs.replace(worlds.SETTINGS, builtin=builtin_files(builtin_manifests()))
    reconciler = place.of(executor, settings)
    (state,) = reconciler.states.values()
    state.probes |= {name: ProbeResult(is_ok=True, at=worlds.NOW) for name in ("syncer", "nodes", "served")}
    task = Tasks("reconcilers").spawn(reconciler.reconcile(ACME), "worker")
    for _ in range(8):
        await asyncio.sleep(0)
    assert (carried_out, task.done()) == ([[], [True]], False)
    place.world.cluster["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    reconciler.note_cluster(ACME)
    assert await task is None


async def test_place_that_is_not_written_is_free_again() -> None:
    place = ReconcilePlace()
    await place.work()
    root = Ref("Namespace", "", place.world.cluster["status"]["clusterNamespace"])
    other: Any = copy.deepcopy(worlds.VERSION)
    other["spec"]["images"]["apiServer"] = "a:2"
    place.super.versions.objects["", "v1.34"] = msgspec.convert(other, ClusterVersion)
    place.super.refused.add(root)
    place.queue.add(ACME)
    await place.work()
    assert (place.super.tries, len(place.reconciler.rolling)) == (1, 0)
    place.super.refused.clear()
    place.clock.now += 1.0
    await place.work()
    since = place.world.objects[root]["metadata"]["annotations"][keys.ROLLING_SINCE]
    assert place.reconciler.rolling.shown() == {place.world.cluster["metadata"]["uid"]: since}
    place.world.make_ready()
    for _ in range(4):
        place.clock.now += 1.0
        place.queue.add(ACME)
        await place.work()
    assert (len(place.reconciler.rolling), place.ready["status"]) == (0, "True")


async def test_who_has_no_place_is_planned_when_one_is_free() -> None:
    place = ReconcilePlace()
    await place.work()
    other: Any = copy.deepcopy(worlds.VERSION)
    other["spec"]["images"]["apiServer"] = "a:2"
    place.super.versions.objects["", "v1.34"] = msgspec.convert(other, ClusterVersion)
    for uid in "abcde":
        place.reconciler.rolling.take(uid)
    place.queue.add(ACME)
    await place.work()
    assert place.reconciler.rolling.waiting == 1
    place.reconciler.rolling.fail("a")
    assert await place.work() > 0
    assert place.world.cluster["metadata"]["uid"] in place.reconciler.rolling


@pytest.mark.parametrize("is_mended", [False, True])
async def test_place_to_start_ends(*, is_mended: bool) -> None:
    """With the start, or after a minute: a tenant that cannot start holds up nobody."""
    place = ReconcilePlace()
    await place.work()
    starting, uid = place.reconciler.starting, place.world.cluster["metadata"]["uid"]
    assert set(starting) == set()
    objects = place.world.objects
    server = next(ref for ref in objects if (ref.kind, ref.name) == ("Deployment", "apiserver"))
    store = next(ref for ref in objects if ref.kind == "StatefulSet")
    served = objects.pop(server)["status"]
    objects[store]["status"]["readyReplicas"] = 0
    place.queue.add(ACME)
    await place.work()
    assert set(starting) == {uid}
    if is_mended:
        objects[server]["status"] = served
        objects[store]["status"]["readyReplicas"] = 1
        place.queue.add(ACME)
    place.clock.now = 1.0 if is_mended else LONGEST_START_S
    await place.work()
    assert set(starting) == set()


async def test_who_comes_down_again_takes_no_place_to_start() -> None:
    """A few tenants whose API servers end again and again would take all places."""
    place = ReconcilePlace()
    await place.work()
    objects = place.world.objects
    server = next(ref for ref in objects if (ref.kind, ref.name) == ("Deployment", "apiserver"))
    objects[server]["status"]["readyReplicas"] = 0
    place.queue.add(ACME)
    await place.work()
    assert set(place.reconciler.starting) == set()


async def test_a_deleted_virtual_cluster_is_forgotten_alone() -> None:
    place = ReconcilePlace()
    uid = place.world.cluster["metadata"]["uid"]
    place.reconciler.note_gone(ACME, "of another one with its name")
    assert list(place.reconciler.states) == [uid]
    place.reconciler.note_gone(ACME, uid)
    assert not place.reconciler.states
