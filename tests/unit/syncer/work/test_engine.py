# SPDX-License-Identifier: Apache-2.0
import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from daemonkit.kube.client import ApiError
from daemonkit.kube.resources import PODS, Status
from daemonkit.tasks import Tasks
from syncer.caches.cached_object import CachedObject, parse
from syncer.core.objects import SyncedKind
from syncer.core.pair import Pair
from syncer.core.plan import Create, Direction, Half, Patch, Plan, Refusal, Side
from syncer.metrics import SyncerMetrics
from syncer.policy.sync_policy import PolicyUnusable
from syncer.work.action_writer import ActionWriter
from syncer.work.engine import Engine
from syncer.work.slots import Slots

pytestmark = pytest.mark.asyncio

ITEM = ("Pod", "web", "a")
KIND = SyncedKind(PODS, "Pod")
POD = b'{"metadata":{"namespace":"web","name":"a","uid":"u","resourceVersion":"7"}}'
SHOW = Patch(Side.TENANT, KIND, "web", "a", "u", {"status": {"phase": "Running"}}, "status")
MAKE = Create(Side.SUPER, KIND, {"metadata": {"namespace": "red-web", "name": "a"}})
RESIZE = Patch(Side.SUPER, KIND, "red-web", "a", "s", {"spec": {"containers": [{"name": "c"}]}}, "resize")
PLAN = Plan(Half((SHOW, MAKE)))


def _nothing(*_: object) -> None: ...


def _no(_: object) -> bool:
    return False


class _AnsweringSession:
    """A session of one pod, with all that the engine needs. `detaches` at the tenant's first answer."""

    def __init__(self, *, detaches: bool) -> None:
        self._detaches = detaches
        self.caches = self.namespaces = self.waits = self
        self.writes: list[str] = []
        self.retried: list[Direction] = []
        self.delayed: list[float] = []
        self.refuses: list[Side] = []
        self.now = 0.0
        self.reports: list[str] = []
        self.tenant = SimpleNamespace(key="red")
        self.client = SimpleNamespace(request=self._of_tenant)
        self.super_client = SimpleNamespace(request=self._of_super)
        self.policy = SimpleNamespace()
        self.quota = SimpleNamespace(
            admit=lambda _, plan, __: plan,
            written=_nothing,
            forget=_nothing,
            is_reserved=_no,
            is_not_summed=_no,
        )
        self.write_wait_s = lambda *_: 0.0
        self.write_rate = SimpleNamespace(forget=_nothing, give_back=_nothing)
        self.is_attached = True
        self.plan_generation = 0
        self.last_error = ""
        self.pod = POD
        self.added = 0
        self.begun: list[int] = []  # how much was written before

    async def _of_tenant(self, method: str, *_: Any, **__: Any) -> bytes:
        self.writes.append(f"tenant {method}")
        self._refuse(Side.TENANT)
        self.is_attached = not self._detaches
        return self.pod

    async def _of_super(self, method: str, *_: Any, **__: Any) -> bytes:
        self.writes.append(f"super {method}")
        self._refuse(Side.SUPER)
        return POD

    def _refuse(self, side: Side) -> None:
        if side in self.refuses:
            raise ApiError(Status(422, message="resize is infeasible"))

    def of_tenant(self, _: object) -> Any:
        return parse(self.pod)

    def pair(self, item: object) -> Pair[Any]:
        return Pair(self.of_tenant(item), self.of_super(item))

    def of_super(self, _: object) -> Any:
        return None

    def unreadable(self, _: object) -> Any:
        return None

    def view(self) -> Any:
        return SimpleNamespace(looked=set(), unknown=set(), policy_wait=None)

    def note_looked(self, *_: object) -> None: ...

    def is_due(self, *_: object) -> bool:
        return True

    def is_woken(self, _: object) -> bool:
        return False

    def note_verified(self, *_: object) -> None: ...

    def owns(self, _: str) -> bool:
        return True

    async def planned(self, *_: object) -> bool:
        self.reports.append("planned")
        return True

    async def failed(self, *_: object) -> None:
        self.reports.append("failed")

    def retry(self, _: object, __: object, direction: Direction, *___: object) -> float:
        self.retried.append(direction)
        return 30.0

    def wait_s(self, until_s: float) -> float:
        return until_s - self.now

    def add_after(self, _: object, __: object, delay_s: float) -> None:
        self.delayed.append(delay_s)

    def add(self, *_: object) -> None:
        self.added += 1

    def forget(self, *_: object) -> None: ...

    def begin_writes(self, *_: object) -> None:
        self.begun.append(len(self.writes))

    def done(self, *_: object) -> None: ...


class _Turns:
    """What is done in one turn of the loop, beside a task that always has work."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def note(self, what: str) -> None:
        self.log.append(what)
        asyncio.get_running_loop().call_soon(self.log.append, "others")


class _OneItem:
    """An engine that works on one item, whose plan is always the same."""

    def __init__(self, world: _AnsweringSession, plan: Plan = PLAN) -> None:
        any_world = cast("Any", world)
        self.plan = plan
        self.kind = kind = cast("Any", SimpleNamespace(plan=lambda *_: self.plan, holds_changes=True))
        self._world, self._slots = any_world, Slots(1)
        metrics, kinds = SyncerMetrics(), {"Pod": kind}
        writer = ActionWriter(kinds, metrics, any_world, any_world, self._slots)
        reports, tasks = any_world, Tasks("test")
        self.done_items: list[None] = []
        self._engine = Engine(
            kinds,
            any_world,
            metrics,
            writer,
            reports,
            tasks,
            self._slots,
            lambda: self.done_items.append(None),
        )

    async def work(self) -> None:
        place = await self._slots.acquire()
        await self._engine._work(self._world, ITEM, place)  # noqa: SLF001 - one item, without a queue


async def _work(world: _AnsweringSession, plan: Plan = PLAN) -> None:
    await _OneItem(world, plan).work()


async def test_a_plan_is_carried_out_in_order() -> None:
    world = _AnsweringSession(detaches=False)
    await _work(world)
    assert (world.writes, world.reports) == (["tenant PATCH", "super POST"], ["planned"])


async def test_the_queue_hears_of_what_is_to_be_written() -> None:
    """Before the first write, and not of a plan without one."""
    world = _AnsweringSession(detaches=False)
    await _work(world)
    await _work(world, Plan())
    assert world.begun == [0]


async def test_each_item_is_noted_once_it_holds_nothing() -> None:
    """Also one that failed."""
    world = _AnsweringSession(detaches=False)
    item = _OneItem(world)
    await item.work()
    item.plan = cast("Any", None)
    await item.work()
    assert (len(item.done_items), world.retried) == (2, [Direction.DOWN])


@pytest.mark.parametrize(
    ("code", "sent"), [(422, ["a", "resize"]), (403, ["a", "resize"]), (429, ["a"]), (500, ["a"])]
)
async def test_a_refused_change_holds_back_what_hangs_on_it_alone(code: int, sent: list[str]) -> None:
    """A resize is another request to another subresource; an ephemeral container needs what comes before."""
    world = _AnsweringSession(detaches=False)
    names: list[str] = []
    released: list[object] = []
    world.quota.forget = released.append

    async def refuse(_: str, path: str, *__: Any, **___: Any) -> bytes:
        names.append(path.rpartition("/")[2])
        if "resize" in path:
            return POD
        raise ApiError(Status(code, message="not this"))

    world.super_client.request = refuse
    image = replace(RESIZE, subresource="")
    debug = replace(RESIZE, subresource="ephemeralcontainers")
    await _work(world, Plan(Half((image, debug, replace(RESIZE, is_separate=True)))))
    assert names == sent
    assert (world.retried, world.reports) == ([Direction.DOWN], ["failed"])
    # What was written is reserved until the caches have it.
    assert released == ([ITEM] if code == 429 else [])


async def test_a_refused_write_leaves_no_garbage() -> None:
    """Its plan would stay until the garbage collector comes."""
    world = _AnsweringSession(detaches=False)
    raised: list[weakref.ref[ApiError]] = []

    def noted(error: ApiError) -> ApiError:
        raised.append(weakref.ref(error))
        return error

    async def refuse(*_: Any, **__: Any) -> bytes:
        raise noted(ApiError(Status(422, message="not this")))

    world.super_client.request = refuse
    gc.disable()
    try:
        await _work(world)
        assert [each() for each in raised] == [None]
    finally:
        gc.enable()


async def test_a_plan_ends_with_its_session() -> None:
    """A tenant's API server answers after a minute: by then it may be known to be the super cluster's own."""
    world = _AnsweringSession(detaches=True)
    await _work(world)
    assert (world.writes, world.reports) == (["tenant PATCH"], [])


async def test_a_patch_that_changed_nothing_is_not_sent_again() -> None:
    """A server put its default in the place of what the patch takes away: each plan would send it anew."""
    world = _AnsweringSession(detaches=False)
    worker = _OneItem(world, Plan(up=Half((SHOW,))))
    await worker.work()
    await worker.work()
    assert world.writes == ["tenant PATCH"]
    world.pod = POD.replace(b'"7"', b'"8"')
    await worker.work()
    assert world.writes == ["tenant PATCH"] * 2


async def test_nothing_is_reported_after_its_session() -> None:
    """What was reported is forgotten then, and would be remembered anew for ever."""
    world = _AnsweringSession(detaches=True)
    await _work(world, Plan(Half((SHOW,))))
    assert (world.writes, world.reports) == (["tenant PATCH"], [])


@pytest.mark.parametrize("refusing", list(Side))
async def test_what_is_refused_one_way_does_not_stop_the_other(refusing: Side) -> None:
    """A resize is refused below, then the container crashes: the tenant must see that."""
    world = _AnsweringSession(detaches=False)
    world.refuses = [refusing]
    worker = _OneItem(world, Plan(Half((RESIZE,)), Half((SHOW,))))
    await worker.work()
    failed = Direction.DOWN if refusing is Side.SUPER else Direction.UP
    assert (world.writes, world.retried) == (["super PATCH", "tenant PATCH"], [failed])
    assert world.reports == ["failed"]  # and nothing says that all is well


async def test_each_direction_has_a_backoff_of_its_own() -> None:
    world = _AnsweringSession(detaches=False)
    world.refuses = [Side.SUPER]
    worker = _OneItem(world, Plan(Half((RESIZE,)), Half((SHOW,))))
    await worker.work()
    # What comes up changes meanwhile: the resize waits until its time.
    world.writes.clear()
    world.now = 20.0
    worker.plan = Plan(Half((RESIZE,)), Half((replace(SHOW, body={"status": {"phase": "Failed"}}),)))
    await worker.work()
    assert (world.writes, world.delayed) == (["tenant PATCH"], [10.0])
    # Another resize is another try.
    worker.plan = Plan(Half((replace(RESIZE, body={"spec": {"containers": []}}),)))
    await worker.work()
    assert world.writes == ["tenant PATCH", "super PATCH"]
    world.now = 31.0
    await worker.work()
    assert world.writes == ["tenant PATCH", "super PATCH", "super PATCH"]


async def test_a_wait_is_reported_until_it_ends() -> None:
    """The first report says "look again": by then the same write is not tried, and still waits."""
    world = _AnsweringSession(detaches=False)
    world.write_wait_s = lambda *_: 60.0
    cast("Any", world.write_rate).per_s = 1
    worker = _OneItem(world, Plan(Half((RESIZE,))))
    await worker.work()
    world.now = 3.0
    await worker.work()
    assert (world.retried, world.writes) == ([Direction.DOWN], [])
    assert world.reports == ["planned"] * 2
    # A refused write was reported in full.
    world = _AnsweringSession(detaches=False)
    world.refuses = [Side.SUPER]
    worker = _OneItem(world, Plan(Half((RESIZE,))))
    await worker.work()
    await worker.work()
    assert world.reports == ["failed"]


async def test_what_is_refused_by_policy_does_not_stop_what_comes_up() -> None:
    world = _AnsweringSession(detaches=False)
    await _work(world, Plan(Half(refusals=(Refusal("spec.x", "no"),)), Half((SHOW,))))
    assert (world.writes, world.reports) == (["tenant PATCH"], ["planned"])


async def test_an_unusable_policy_stops_what_goes_down_alone() -> None:
    world = _AnsweringSession(detaches=False)
    world.policy = cast("Any", PolicyUnusable("no such policy"))
    await _work(world, Plan(Half((MAKE,)), Half((SHOW,))))
    assert (world.writes, world.reports) == (["tenant PATCH"], ["planned"])


async def test_a_fault_of_ours_in_one_direction_is_its_own() -> None:
    world = _AnsweringSession(detaches=False)
    world.super_client = cast("Any", None)
    await _work(world, Plan(Half((RESIZE,)), Half((SHOW,))))
    assert (world.writes, world.retried) == (["tenant PATCH"], [Direction.DOWN])


async def test_a_large_object_is_loaded_planned_and_written_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _AnsweringSession(detaches=False)
    world.pod = POD.replace(b"{", b'{"text":"%s",' % (b"x" * 100_000), 1)
    turns = _Turns()
    worker = _OneItem(world, Plan(Half((RESIZE,))))
    load, write = CachedObject.load, world.super_client.request

    def loaded(cached: CachedObject) -> Any:
        turns.note("load")
        return load(cached)

    def planned(*_: object) -> Plan:
        turns.note("plan")
        return worker.plan

    async def written(*args: Any, **kwargs: Any) -> Any:
        turns.note("write")
        return await write(*args, **kwargs)

    monkeypatch.setattr(CachedObject, "load", loaded)
    worker.kind.plan = planned
    world.super_client.request = written
    await worker.work()
    assert turns.log[:5] == ["load", "others", "plan", "others", "write"]


async def test_a_large_object_that_changes_meanwhile_is_queued_again() -> None:
    """A plan is of what is there when it is made."""
    world = _AnsweringSession(detaches=False)
    world.pod = POD.replace(b"{", b'{"text":"%s",' % (b"x" * 100_000), 1)
    worker = _OneItem(world, Plan(Half((RESIZE,))))

    def change() -> None:
        world.pod = world.pod.replace(b'"7"', b'"8"')

    asyncio.get_running_loop().call_soon(change)
    await worker.work()
    assert (world.writes, world.added) == ([], 1)
