# SPDX-License-Identifier: Apache-2.0
"""Turns of calls into guests, by tenant."""

import asyncio
from contextlib import suppress

import pytest

from kata_bridge.guests.call_semaphore import CallSemaphore
from kata_bridge.guests.driver import turns

pytestmark = pytest.mark.asyncio


class Calls:
    """Calls that last until they are ended, in the order in which they got their turn."""

    def __init__(self, made: CallSemaphore) -> None:
        self.began: list[str] = []
        self._turns = made
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, *names: str) -> None:
        """`tenant/number` each."""
        for name in names:
            self._tasks[name] = asyncio.get_running_loop().create_task(self._call(name))
        await _settled()

    async def _call(self, name: str) -> None:
        async with self._turns.turn(name.partition("/")[0]):
            self.began.append(name)
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


async def test_guests_of_one_tenant_that_answer_late_leave_turns_to_others() -> None:
    """32 guests of stock Kata that took 8 s for each answer kept a neighbour's waiting for 31.5 s."""
    calls = Calls(turns()["stock"])
    await calls.begin(*(f"bad/{number}" for number in range(32)))
    assert len(calls.began) == 16
    await calls.begin("good/1")
    assert calls.began[-1] == "good/1"
    await calls.end_all()


async def test_of_those_that_wait_the_tenant_with_fewest_turns_is_next() -> None:
    calls = Calls(CallSemaphore(3, 3))
    await calls.begin("a/1", "a/2", "a/3", "a/4", "a/5", "b/1", "b/2")
    assert calls.began == ["a/1", "a/2", "a/3"]
    await calls.end("a/1")
    assert calls.began[3:] == ["b/1"]
    await calls.end("a/2")
    assert calls.began[4:] == ["a/4"]  # one each, and it has waited longer
    await calls.end("a/3")
    assert calls.began[5:] == ["b/2"]
    await calls.end_all()


async def test_a_tenant_has_its_own_turns_at_most_and_gets_them_again() -> None:
    calls = Calls(CallSemaphore(4, 2))
    await calls.begin("a/1", "a/2", "a/3", "b/1")
    assert calls.began == ["a/1", "a/2", "b/1"]
    await calls.end("b/1")
    assert calls.began == ["a/1", "a/2", "b/1"]
    await calls.end("a/1")
    assert calls.began[3:] == ["a/3"]
    await calls.end_all()


async def test_who_leaves_while_it_waits_or_is_given_its_turn_keeps_none() -> None:
    made = CallSemaphore(1, 1)
    calls = Calls(made)
    await calls.begin("a/1", "b/1", "c/1")
    await calls.end("b/1")
    await calls.end("a/1")
    assert calls.began == ["a/1", "c/1"]
    waiting = asyncio.get_running_loop().create_task(made.turn("d").__aenter__())
    await _settled()
    calls._tasks["c/1"].cancel()  # noqa: SLF001 - in one turn of the loop: given its turn, and cancelled
    await asyncio.sleep(0)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    await calls.begin("e/1")
    assert calls.began[-1] == "e/1"
    await calls.end_all()
