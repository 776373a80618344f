# SPDX-License-Identifier: Apache-2.0
"""Slots of calls into guests, by tenant."""

import asyncio
from contextlib import suppress

import pytest

from kata_bridge.guests.call_semaphore import CallSemaphore
from kata_bridge.guests.driver import call_semaphores

pytestmark = pytest.mark.asyncio


class Calls:
    """Calls that last until they are ended, in the order in which they got their slot."""

    def __init__(self, semaphore: CallSemaphore) -> None:
        self.started: list[str] = []
        self._semaphore = semaphore
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, *names: str) -> None:
        """`tenant/number` each."""
        for name in names:
            self._tasks[name] = asyncio.get_running_loop().create_task(self._call(name))
        await _settled()

    async def _call(self, name: str) -> None:
        async with self._semaphore.slot(name.partition("/")[0]):
            self.started.append(name)
            await asyncio.Event().wait()

    async def end(self, *names: str) -> None:
        for name in names:
            self._tasks[name].cancel()
            with suppress(asyncio.CancelledError):
                await self._tasks[name]
        await _settled()

    async def end_all(self) -> None:
        await self.end(*self._tasks)


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_slow_guests_of_one_tenant_leave_slots_to_others() -> None:
    """32 guests of stock Kata with 8 s for each response once delayed a neighbour's by 31.5 s."""
    calls = Calls(call_semaphores()["stock"])
    await calls.start(*(f"bad/{number}" for number in range(32)))
    assert len(calls.started) == 16
    await calls.start("good/1")
    assert calls.started[-1] == "good/1"
    await calls.end_all()


async def test_waiting_tenant_with_fewest_slots_is_next() -> None:
    calls = Calls(CallSemaphore(3, 3))
    await calls.start("a/1", "a/2", "a/3", "a/4", "a/5", "b/1", "b/2")
    assert calls.started == ["a/1", "a/2", "a/3"]
    await calls.end("a/1")
    assert calls.started[3:] == ["b/1"]
    await calls.end("a/2")
    assert calls.started[4:] == ["a/4"]  # one each, and it has waited longer
    await calls.end("a/3")
    assert calls.started[5:] == ["b/2"]
    await calls.end_all()


async def test_tenant_gets_its_limit_of_slots_and_gets_them_again() -> None:
    calls = Calls(CallSemaphore(4, 2))
    await calls.start("a/1", "a/2", "a/3", "b/1")
    assert calls.started == ["a/1", "a/2", "b/1"]
    await calls.end("b/1")
    assert calls.started == ["a/1", "a/2", "b/1"]
    await calls.end("a/1")
    assert calls.started[3:] == ["a/3"]
    await calls.end_all()


async def test_cancelled_waiter_keeps_no_slot() -> None:
    semaphore = CallSemaphore(1, 1)
    calls = Calls(semaphore)
    await calls.start("a/1", "b/1", "c/1")
    await calls.end("b/1")
    await calls.end("a/1")
    assert calls.started == ["a/1", "c/1"]
    waiting = asyncio.get_running_loop().create_task(semaphore.slot("d").__aenter__())
    await _settled()
    calls._tasks["c/1"].cancel()  # noqa: SLF001 - in one cycle of the loop: granted, and cancelled
    await asyncio.sleep(0)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    await calls.start("e/1")
    assert calls.started[-1] == "e/1"
    await calls.end_all()
