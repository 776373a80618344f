# SPDX-License-Identifier: Apache-2.0
import asyncio
import gc
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from daemonkit.fairness.scheduler import READING_AGE_NS, SHORT_STEP_NS, Account, TenantScheduler
from daemonkit.tasks import Tasks

SLICE_NS = 1_000_000


class Clock:
    """Processor time, which passes where a test says so."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class SharedLoop:
    def __init__(self) -> None:
        self.clock = Clock()
        self.scheduler = TenantScheduler(
            clock_ns=self.clock, processor_clock_ns=self.clock, slice_ns=SLICE_NS
        )
        self.order: list[str] = []

    async def work(self, name: str, steps: int, step_ns: int) -> int:
        for _ in range(steps):
            self.clock.now_ns += step_ns
            self.order.append(name)
            await asyncio.sleep(0)
        return steps


async def begun(coro: Coroutine[Any, Any, Any], tasks: Tasks) -> "asyncio.Task[Any]":
    task = tasks.spawn(coro, "work")
    await asyncio.sleep(0)
    return task


@pytest.mark.asyncio
async def test_each_step_is_charged() -> None:
    world = SharedLoop()
    account = world.scheduler.open("a")
    assert await account.run(world.work("a", 3, 1_000)) == 3
    assert account.used_ns == 3_000


@pytest.mark.asyncio
async def test_a_step_that_raises_is_charged() -> None:
    world = SharedLoop()
    account = world.scheduler.open("a")

    async def fail() -> None:
        world.clock.now_ns += 5
        raise LookupError("of the coroutine")

    with pytest.raises(LookupError, match="of the coroutine"):
        await account.run(fail())
    assert account.used_ns == 5


@pytest.mark.asyncio
async def test_errors_of_what_is_awaited_arrive() -> None:
    account = SharedLoop().scheduler.open("a")

    async def catch() -> str:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, LookupError("later"))
        try:
            await future
        except LookupError as error:
            return str(error)
        return "nothing"

    assert await account.run(catch()) == "later"


@pytest.mark.asyncio
async def test_timeouts_and_cancellation_work() -> None:
    account = SharedLoop().scheduler.open("a")

    async def time_out() -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            return "in time"
        return "never"

    assert await account.run(time_out()) == "in time"
    tasks = Tasks("t", through=account.run)
    task = await begun(asyncio.sleep(3_600), tasks)
    assert await tasks.close(1) == ()
    assert task.cancelled()


@pytest.mark.asyncio
async def test_endless_work_leaves_turns_to_others() -> None:
    world = SharedLoop()
    busy, other = world.scheduler.open("busy"), world.scheduler.open("other")
    tasks = Tasks("t")
    for _ in range(20):
        tasks.spawn(busy.run(world.work("busy", 10_000, SLICE_NS)), "busy")
    for _ in range(50):
        await asyncio.sleep(0)  # the loop's own work, as of a page
    world.order.clear()
    await other.run(world.work("other", 10, SLICE_NS // 100))
    await tasks.close(1)
    # Beside 20 tasks of the busy one, the other has a step for each of a few of its steps.
    assert world.order.count("busy") <= 40


@pytest.mark.asyncio
async def test_a_slice_ends_with_a_step() -> None:
    world = SharedLoop()
    tasks = Tasks("t")
    for name in "abcdefgh":
        tasks.spawn(world.scheduler.open(name).run(world.work(name, 50, SLICE_NS)), name)
    most = 0
    while len(tasks):
        before = world.clock.now_ns
        await asyncio.sleep(0)
        most = max(most, world.clock.now_ns - before)
    assert most <= 2 * SLICE_NS


@pytest.mark.asyncio
async def test_a_cancelled_one_waits_for_no_turn() -> None:
    world = SharedLoop()
    busy, other = world.scheduler.open("busy"), world.scheduler.open("other")
    busy_tasks, tasks = Tasks("busy"), Tasks("t")
    busy_tasks.spawn(busy.run(world.work("busy", 10_000, SLICE_NS)), "busy")
    ended: list[str] = []

    async def wait() -> None:
        try:
            for _ in range(1_000):
                await asyncio.sleep(0)
        finally:
            ended.append("ended")

    await begun(other.run(wait()), tasks)
    for _ in range(5):
        await asyncio.sleep(0)
    assert await tasks.close(1) == ()
    assert ended == ["ended"]
    await busy_tasks.close(1)


@pytest.mark.asyncio
async def test_a_closed_account_leaves_nobody_waiting() -> None:
    world = SharedLoop()
    busy, other = world.scheduler.open("busy"), world.scheduler.open("other")
    tasks = Tasks("t")
    tasks.spawn(busy.run(world.work("busy", 10_000, SLICE_NS)), "busy")
    task = await begun(other.run(world.work("other", 100, SLICE_NS)), tasks)
    other.close()
    other.close()
    other.set_weight(5)
    assert await task == 100
    assert other.used_ns == 100 * SLICE_NS
    await tasks.close(1)


@pytest.mark.asyncio
async def test_one_that_never_began_is_closed() -> None:
    world = SharedLoop()
    account: Account = world.scheduler.open("a")
    account.run(world.work("a", 1, 1)).close()  # else "was never awaited", which is an error in tests
    tasks = Tasks("t", through=account.run)
    tasks.spawn(world.work("a", 1, 1), "a").cancel()
    await tasks.close(1)
    assert world.order == []


@pytest.mark.asyncio
async def test_the_share_is_by_weight() -> None:
    world = SharedLoop()
    one, three = world.scheduler.open("one"), world.scheduler.open("three")
    three.set_weight(3)
    tasks = Tasks("t")
    for name, account in (("one", one), ("three", three)):
        for _ in range(4):
            tasks.spawn(account.run(world.work(name, 10_000, SLICE_NS // 2)), name)
    for _ in range(500):
        await asyncio.sleep(0)
    await tasks.close(1)
    assert 2.5 < world.order.count("three") / world.order.count("one") < 3.5


@pytest.mark.asyncio
async def test_a_part_of_a_charged_one_is_charged_once() -> None:
    """A request is charged wherever it is made, and most are made by tasks that are charged."""
    shared = SharedLoop()
    account = shared.scheduler.open("a")

    async def outer() -> int:
        shared.clock.now_ns += 7
        return await account.run(shared.work("a", 3, SLICE_NS))

    assert await account.run(outer()) == 3
    assert account.used_ns == 7 + 3 * SLICE_NS


@pytest.mark.asyncio
async def test_an_error_that_waits_for_its_turn_arrives() -> None:
    shared = SharedLoop()
    busy, other = shared.scheduler.open("busy"), shared.scheduler.open("other")
    tasks = Tasks("t")
    for _ in range(5):
        tasks.spawn(busy.run(shared.work("busy", 1_000, SLICE_NS)), "busy")
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait() -> str:
        try:
            await future
        except LookupError as error:
            return str(error)
        return "nothing"

    task = await begun(other.run(wait()), tasks)
    future.set_exception(LookupError("late"))
    assert await task == "late"
    await tasks.close(1)


@pytest.mark.asyncio
async def test_what_was_charged_is_paid_by_the_next_turns() -> None:
    """Of two tenants with the same steps, the one with other work leaves turns to the other."""
    world = SharedLoop()
    charged, other = world.scheduler.open("charged"), world.scheduler.open("other")
    tasks = Tasks("t")
    for account in (charged, other):
        for _ in range(20):
            tasks.spawn(account.run(world.work(account.name, 1_000, SLICE_NS)), account.name)
    for _ in range(50):
        await asyncio.sleep(0)  # pace: iterations are counted
    before_ns = charged.used_ns
    charged.charge(10 * SLICE_NS)
    assert charged.used_ns == before_ns + 10 * SLICE_NS
    world.order.clear()
    for _ in range(100):
        await asyncio.sleep(0)  # pace: iterations are counted
    await tasks.close(1)
    assert 9 <= world.order.count("other") - world.order.count("charged") <= 12


@pytest.mark.asyncio
async def test_an_interrupted_step_costs_processor_time() -> None:
    """Of the machine's other processes the tenant has no fault. A short step counts by the wall clock, which
    is cheaper to read; no more of it can be another process'."""
    wall, processor = Clock(), Clock()
    scheduler = TenantScheduler(clock_ns=wall, processor_clock_ns=processor)
    account = scheduler.open("a")

    async def work(wall_ns: int, processor_ns: int) -> None:
        wall.now_ns += wall_ns
        processor.now_ns += processor_ns

    processor.now_ns = 10**12  # of other work, before the first step
    await account.run(work(8_000_000, 700_000))
    assert account.used_ns == 700_000
    await account.run(work(SHORT_STEP_NS, SHORT_STEP_NS // 2))
    assert account.used_ns == 700_000 + SHORT_STEP_NS
    wall.now_ns += READING_AGE_NS
    processor.now_ns += READING_AGE_NS
    await account.run(work(8_000_000, 700_000))
    assert account.used_ns == 2 * 700_000 + SHORT_STEP_NS


@pytest.mark.asyncio
async def test_a_long_step_leaves_the_loop_to_a_neighbour() -> None:
    """Both always have work. The neighbour's comes by two calls of the loop, as from a socket."""
    world = SharedLoop()
    long, short = world.scheduler.open("long"), world.scheduler.open("short")
    tasks = Tasks("t")

    async def work(account: Account, step_ns: int) -> None:
        while True:
            world.clock.now_ns += step_ns
            loop, come = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
            loop.call_soon(come.set_result, None)
            await come
            assert abs(long.used_ns - short.used_ns) <= 22 * SLICE_NS

    tasks.spawn(long.run(work(long, 20 * SLICE_NS)), "long")
    tasks.spawn(short.run(work(short, SLICE_NS)), "short")
    for _ in range(2_000):
        await asyncio.sleep(0)  # pace: iterations are counted
    assert len(tasks) == 2
    assert abs(long.used_ns - short.used_ns) <= 22 * SLICE_NS
    await tasks.close(1)


@pytest.mark.parametrize("step_ns", [SLICE_NS, 4 * SLICE_NS])
@pytest.mark.asyncio
async def test_a_weight_counts_although_its_work_comes_late(step_ns: int) -> None:
    """vc-syncer's watches of the super cluster have weight 100, and wait for what a socket receives. They had
    as many turns as each tenant: of 20 that always have work, each takes the next one meanwhile."""
    world = SharedLoop()
    system = world.scheduler.open("super cluster", 100)
    tenants = [world.scheduler.open(str(number)) for number in range(20)]
    tasks = Tasks("t")

    async def receive() -> None:
        while True:
            world.clock.now_ns += SLICE_NS
            loop, come = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
            loop.call_soon(come.set_result, None)
            await come

    tasks.spawn(system.run(receive()), "super cluster")
    for tenant in tenants:
        tasks.spawn(tenant.run(world.work(tenant.name, 10_000, step_ns)), tenant.name)
    for _ in range(6_000):
        await asyncio.sleep(0)  # pace: iterations are counted
    await tasks.close(1)
    of_tenants = sum(tenant.used_ns for tenant in tenants)
    assert 4 < system.used_ns / of_tenants < 6
    least = min(tenant.used_ns for tenant in tenants)
    assert max(tenant.used_ns for tenant in tenants) - least <= SLICE_NS + 2 * step_ns


@pytest.mark.asyncio
async def test_a_step_for_others_is_charged_to_them_too() -> None:
    """By their parts, until now, once. The account itself pays by its weight, or it would always be first."""
    world = SharedLoop()
    system, a, b = (world.scheduler.open(name) for name in ("super cluster", "a", "b"))

    async def deliver() -> None:
        world.clock.now_ns += 4_000
        system.charge_others({a: 3, b: 1}, 8)
        world.clock.now_ns += 1_000
        system.charge_others({b: 1}, 1)
        world.clock.now_ns += 500
        await asyncio.sleep(0)
        world.clock.now_ns += 100
        system.charge_others({a: 1}, 1)
        system.charge_others({}, 0)

    await system.run(deliver())
    system.charge_others({a: 1}, 1)
    assert (system.used_ns, a.used_ns, b.used_ns) == (5_600, 1_600, 1_500)


@pytest.mark.asyncio
async def test_others_are_charged_for_all_steps_of_their_work() -> None:
    """An object of more than 256 KiB is counted, parsed and taken over in steps of their own. Two thirds of
    the time were charged to the account of the watch alone."""
    world = SharedLoop()
    system, a = world.scheduler.open("super cluster"), world.scheduler.open("a")

    async def deliver() -> None:
        for _ in range(2):
            world.clock.now_ns += 3_000
            await asyncio.sleep(0)
        world.clock.now_ns += 1_000
        system.charge_others({a: 1}, 1)
        world.clock.now_ns += 50
        await asyncio.sleep(0)
        world.clock.now_ns += 200
        await asyncio.sleep(0.001)  # what follows has nothing to do with it
        world.clock.now_ns += 10
        system.charge_others({a: 1}, 1)

    async def beside() -> None:  # another task of the account
        for _ in range(10):
            world.clock.now_ns += 100_000
            await asyncio.sleep(0)

    await asyncio.gather(system.run(deliver()), system.run(beside()))
    assert (system.used_ns, a.used_ns) == (1_007_260, 7_010)


@pytest.mark.asyncio
async def test_a_nested_step_takes_nothing_off_the_outer() -> None:
    world = SharedLoop()
    outer, inner, other = (world.scheduler.open(name) for name in ("outer", "inner", "other"))

    async def within() -> None:
        world.clock.now_ns += 100_000

    async def step() -> None:
        world.clock.now_ns += 10_000_000
        outer.charge_others({other: 1}, 1)
        await inner.run(within())
        outer.charge_others({other: 1}, 1)

    await outer.run(step())
    assert (outer.used_ns, inner.used_ns, other.used_ns) == (10_100_000, 100_000, 10_100_000)


@pytest.mark.asyncio
async def test_other_processes_time_in_a_step_is_charged_to_nobody() -> None:
    wall, processor = Clock(), Clock()
    scheduler = TenantScheduler(clock_ns=wall, processor_clock_ns=processor)
    system, tenant = scheduler.open("super cluster"), scheduler.open("a")

    async def deliver() -> None:
        wall.now_ns += 8_000_000
        processor.now_ns += 700_000
        system.charge_others({tenant: 1}, 1)

    await system.run(deliver())
    assert (system.used_ns, tenant.used_ns) == (700_000, 700_000)


@pytest.mark.asyncio
async def test_who_has_others_work_for_it_has_fewer_turns() -> None:
    """A tenant whose objects change quickly in the super cluster: vc-syncer's own account worked for it
    beside its own tasks, and its neighbour had a third of the time, as if nothing were done for the other."""
    world = SharedLoop()
    system = world.scheduler.open("super cluster", 100)
    loud, quiet = world.scheduler.open("loud"), world.scheduler.open("quiet")
    tasks = Tasks("t")

    async def deliver() -> None:
        while True:
            world.clock.now_ns += SLICE_NS // 2
            system.charge_others({loud: 1}, 1)
            for _ in range(2):  # what comes from the super cluster leaves time to others
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                asyncio.get_running_loop().call_soon(future.set_result, None)
                await future

    tasks.spawn(system.run(deliver()), "super cluster")
    for account in (loud, quiet):
        tasks.spawn(account.run(world.work(account.name, 100_000, SLICE_NS // 4)), account.name)
    for _ in range(10_000):
        await asyncio.sleep(0)  # pace: iterations are counted
    await tasks.close(1)
    assert 0.3 < system.used_ns / world.clock.now_ns < 0.5
    assert 0.9 < loud.used_ns / quiet.used_ns < 1.1
    assert quiet.used_ns > 0.45 * world.clock.now_ns


@pytest.mark.asyncio
async def test_waiting_steps_are_taken_in_one_iteration() -> None:
    """Each took two iterations of the loop: one that woke its task, and one that took the step."""
    world = SharedLoop()
    busy, other = world.scheduler.open("busy"), world.scheduler.open("other")
    tasks = Tasks("t")
    tasks.spawn(busy.run(world.work("busy", 1, SLICE_NS)), "busy")
    for number in range(10):
        tasks.spawn(other.run(world.work(str(number), 1, SLICE_NS // 20)), str(number))
    await asyncio.sleep(0)  # the busy one has used the slice up
    assert world.order == ["busy"]
    await asyncio.sleep(0)
    assert world.order == ["busy", *map(str, range(10))]
    await tasks.close(1)


@pytest.mark.asyncio
async def test_work_without_end_that_takes_no_time_leaves_the_loop() -> None:
    world = SharedLoop()
    busy, endless = world.scheduler.open("busy"), world.scheduler.open("endless")
    tasks = Tasks("t")
    tasks.spawn(busy.run(world.work("busy", 1, SLICE_NS)), "busy")
    for name in ("a", "b"):
        tasks.spawn(endless.run(world.work(name, 10**9, 0)), name)
    for _ in range(10):
        await asyncio.sleep(0)  # pace: iterations are counted
    assert 5 < world.order.count("a") <= 10
    await tasks.close(1)


@pytest.mark.asyncio
async def test_one_that_is_closed_in_a_slice_leaves_nobody_waiting() -> None:
    """Its tasks go on after the step that closed it, and not within it."""
    world = SharedLoop()
    busy, closing, closed = (world.scheduler.open(name) for name in ("busy", "closing", "closed"))
    tasks = Tasks("t")
    in_step: list[bool] = []

    async def close() -> None:
        await asyncio.sleep(0)
        closed.close()
        in_step.append(bool(world.order))

    tasks.spawn(busy.run(world.work("busy", 2, SLICE_NS)), "busy")
    tasks.spawn(closing.run(close()), "closing")
    tasks.spawn(closed.run(world.work("closed", 3, 1)), "closed")
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.order.count("closed") == 3
    assert in_step
    assert not len(tasks)


@pytest.mark.asyncio
async def test_a_step_that_waited_leaves_no_garbage() -> None:
    """Its task, and what that holds, would stay until the garbage collector comes."""
    world = SharedLoop()
    busy, other = world.scheduler.open("busy"), world.scheduler.open("other")
    tasks = Tasks("t")
    gc.disable()
    try:
        tasks.spawn(busy.run(world.work("busy", 5, SLICE_NS)), "busy")
        found = [weakref.ref(tasks.spawn(other.run(world.work("other", 2, 1)), "other")) for _ in range(3)]
        for _ in range(20):
            await asyncio.sleep(0)  # pace: iterations are counted
        assert [each() for each in found] == [None] * 3
    finally:
        gc.enable()
