# SPDX-License-Identifier: Apache-2.0
"""A VirtualCluster is reconciled against a fake super cluster, which may refuse a step with any text."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from daemonkit.kube.client import ApiError
from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import Key, Status
from daemonkit.tasks import Tasks
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.steps import Apply
from tenant_operator.edge.executor import Executor
from tenant_operator.edge.surroundings import OperatorSurroundings
from tenant_operator.edge.write_gate import GatedClient
from tenant_operator.metrics import OperatorMetrics
from tenant_operator.model.cluster_version import ClusterVersion
from tenant_operator.model.objects import Object, Ref, ref_of
from tenant_operator.model.virtual_cluster import VirtualCluster
from tenant_operator.run.queue import ReconcileQueue
from tenant_operator.run.reconciler import Reconciler
from tests.unit.fake_clock import FakeClock
from tests.unit.tenant_operator.core import worlds
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
    tries: int = 0
    statuses: int = 0

    def __post_init__(self) -> None:
        version = msgspec.convert(self.world.version, ClusterVersion)
        self.versions = SimpleNamespace(objects={("", "v1.34"): version})
        self.defaults = SimpleNamespace(objects={})

    @property
    def clusters(self) -> SimpleNamespace:
        return SimpleNamespace(objects={ACME: msgspec.convert(self.world.cluster, VirtualCluster)})

    def of(self, uid: str) -> dict[Ref, Any]:
        assert uid == self.world.cluster["metadata"]["uid"]
        return dict(self.world.observed().objects)

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
    async def run(self, probe: Any) -> ProbeResult:
        return ProbeResult(is_ok=True, at=worlds.NOW)


def open_nothing(access: Access) -> GatedClient:
    raise AssertionError(access)


class Place:
    """One worker of a Reconciler over a tenant that is made."""

    def __init__(self) -> None:
        self.world = FakeWorld(virtual_cluster())
        self.world.run()
        self.clock = FakeClock(0.0)
        self.super = FakeSuper(self.world)
        self.queue = ReconcileQueue(self.clock, lambda: 1.0)
        metrics = OperatorMetrics()
        outside = OperatorSurroundings(monotonic=self.clock, wall=lambda: worlds.NOW + self.clock.now)
        parts: Any = self.super
        prober: Any = FakeProber()
        executor = Executor(parts, metrics, outside.wall, open_nothing)
        self.reconciler = self.super.reconciler = Reconciler(
            worlds.SETTINGS, parts, parts, executor, prober, self.queue, metrics, outside
        )
        self.reconciler.note_cluster(ACME)

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
    def ready(self) -> Object:
        return next(each for each in self.world.cluster["status"]["conditions"] if each["type"] == "Ready")


def policy(place: Place) -> Ref:
    return Ref("NetworkPolicy", place.world.cluster["status"]["clusterNamespace"], "default-deny")


@pytest.mark.parametrize("is_writing", [False, True])
async def test_failing_step_is_tried_by_its_backoff(*, is_writing: bool) -> None:
    """Its text differs at each try, and another object may be written before it each time."""
    place = Place()
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
    assert place.super.statuses - before == 1


async def test_spec_change_is_tried_at_once() -> None:
    place = Place()
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
