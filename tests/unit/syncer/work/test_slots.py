# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib

import pytest

from daemonkit.fairness.lease import Lease
from syncer.work.slots import Slots

pytestmark = pytest.mark.asyncio


async def _settled() -> None:
    """Each task has gone on as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def _free_places(slots: Slots, most: int = 5) -> int:
    """How many can be acquired at once."""
    leases: list[Lease] = []
    while len(leases) < most:
        taker = asyncio.get_running_loop().create_task(slots.acquire())
        await _settled()
        if not taker.done():
            taker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await taker
            break
        leases.append(taker.result())
    for each in leases:
        each.release()
    return len(leases)


class _Asker:
    """Works in a place of its own, and asks something in between."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.may_ask = asyncio.Event()
        self.has_answer = asyncio.Event()

    async def work(self) -> None:
        with self._slots.work_in(await self._slots.acquire()):
            await self.may_ask.wait()
            async with self._slots.yielded():
                await self.has_answer.wait()


async def test_a_place_is_free_while_something_is_asked() -> None:
    slots = Slots(1)
    worker = _Asker(slots)
    working = asyncio.get_running_loop().create_task(worker.work())
    await _settled()
    assert await _free_places(slots) == 0
    worker.may_ask.set()
    await _settled()
    assert await _free_places(slots) == 1
    worker.has_answer.set()
    await working
    assert await _free_places(slots) == 1


@pytest.mark.parametrize("moment", ["before", "asking", "coming back"])
async def test_a_place_is_given_back_once(moment: str) -> None:
    slots = Slots(1)
    worker = _Asker(slots)
    working = asyncio.get_running_loop().create_task(worker.work())
    await _settled()
    if moment != "before":
        worker.may_ask.set()
        await _settled()
    taken = None
    if moment == "coming back":
        taken = await slots.acquire()
        worker.has_answer.set()
        await _settled()
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working
    assert await _free_places(slots) == (0 if taken else 1)
    if taken is not None:
        taken.release()
        taken.release()
    assert await _free_places(slots) == 1


async def test_who_has_no_place_gives_none_back() -> None:
    """A report that nobody's work made."""
    slots = Slots(1)
    async with slots.yielded():
        assert await _free_places(slots) == 1
    assert await _free_places(slots) == 1
