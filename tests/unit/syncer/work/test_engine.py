# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace
from typing import Any, cast

import pytest

from daemonkit.kube.resources import PODS
from daemonkit.tasks import Tasks
from syncer.caches.cached_object import parse
from syncer.core.objects import SyncedKind
from syncer.core.plan import Create, Patch, Plan, Side
from syncer.metrics import SyncerMetrics
from syncer.tenant.session import TenantSession
from syncer.work.engine import Engine
from syncer.work.slots import Slots

pytestmark = pytest.mark.asyncio

ITEM = ("Pod", "web", "a")
KIND = SyncedKind(PODS, "Pod")
POD = b'{"metadata":{"namespace":"web","name":"a","uid":"u","resourceVersion":"7"}}'
PLAN = Plan(
    (
        Patch(Side.TENANT, KIND, "web", "a", "u", {"status": {"phase": "Running"}}, "status"),
        Create(Side.SUPER, KIND, {"metadata": {"namespace": "red-web", "name": "a"}}),
    )
)


class _AnsweringSession:
    """A session of one pod, with all that the engine needs. `detaches` at the tenant's first answer."""

    def __init__(self, *, detaches: bool) -> None:
        self._detaches = detaches
        self.writes: list[str] = []
        self.reports: list[str] = []
        self.tenant = SimpleNamespace(key="red")
        self.client = SimpleNamespace(request=self._of_tenant)
        self.super_client = SimpleNamespace(request=self._of_super)
        self.policy = SimpleNamespace()
        self.quota = SimpleNamespace(admit=lambda _, plan, __: plan, written=lambda *_: None)
        self.is_attached = True
        self.last_error = ""

    async def _of_tenant(self, method: str, *_: Any, **__: Any) -> bytes:
        self.writes.append(f"tenant {method}")
        self.is_attached = not self._detaches
        return POD

    async def _of_super(self, method: str, *_: Any, **__: Any) -> bytes:
        self.writes.append(f"super {method}")
        return POD

    def cached(self, _: object) -> Any:
        return parse(POD)

    def cached_super(self, _: object) -> Any:
        return None

    def unreadable(self, _: object) -> Any:
        return None

    def view(self) -> Any:
        return SimpleNamespace(looked=())

    def note_looked(self, *_: object) -> None: ...

    def needs_plan(self, _: object) -> bool:
        return True

    def is_woken(self, _: object) -> bool:
        return False

    def note_verified(self, *_: object) -> None: ...

    def owns_super_namespace(self, _: str) -> bool:
        return True

    async def planned(self, *_: object) -> bool:
        self.reports.append("planned")
        return True

    def done(self, *_: object, **__: object) -> None: ...


async def _work(world: _AnsweringSession, plan: Plan = PLAN) -> None:
    any_world = cast("Any", world)
    kind = cast("Any", SimpleNamespace(plan=lambda *_: plan))
    slots = Slots(1)
    engine = Engine(
        {"Pod": kind}, any_world, SyncerMetrics(), any_world, any_world, any_world, Tasks("test"), slots
    )
    await slots.acquire()
    await engine._work(cast("TenantSession", world), ITEM)  # noqa: SLF001 - one item, without a queue


async def test_a_plan_is_carried_out_in_order() -> None:
    world = _AnsweringSession(detaches=False)
    await _work(world)
    assert (world.writes, world.reports) == (["tenant PATCH", "super POST"], ["planned"])


async def test_a_plan_ends_with_its_session() -> None:
    """A tenant's API server answers after a minute: by then it may be known to be the super cluster's own."""
    world = _AnsweringSession(detaches=True)
    await _work(world)
    assert (world.writes, world.reports) == (["tenant PATCH"], [])


async def test_nothing_is_reported_after_its_session() -> None:
    """What was reported is forgotten then, and would be remembered anew for ever."""
    world = _AnsweringSession(detaches=True)
    await _work(world, Plan(PLAN.actions[:1]))
    assert (world.writes, world.reports) == (["tenant PATCH"], [])
