# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from syncer.run.memory_return import MIN_ITEMS, MOST_S, REST_S, MemoryReturn

pytestmark = pytest.mark.asyncio


class _GivenBack:
    """When memory was given back, in seconds of the loop's clock from the start."""

    def __init__(self) -> None:
        self._began_s = self.now_s = asyncio.get_running_loop().time()
        self.given_back_s: list[float] = []
        self.memory = MemoryReturn(self._give_back)

    def _give_back(self) -> None:
        self.given_back_s.append(round(asyncio.get_running_loop().time() - self._began_s, 3))

    def work(self, items: int) -> None:
        for _ in range(items):
            self.memory.note_item()


async def test_a_burst_is_given_back_once_it_is_over() -> None:
    world = _GivenBack()
    for _ in range(4):
        world.work(MIN_ITEMS)
        await asyncio.sleep(REST_S * 0.8)
    await asyncio.sleep(600)
    assert world.given_back_s == [4 * REST_S]


async def test_few_items_wake_nobody() -> None:
    world = _GivenBack()
    world.work(MIN_ITEMS - 1)
    await asyncio.sleep(600)
    assert world.given_back_s == []


async def test_each_burst_is_counted_from_its_beginning() -> None:
    world = _GivenBack()
    world.work(MIN_ITEMS)
    await asyncio.sleep(100)
    world.work(MIN_ITEMS - 1)
    await asyncio.sleep(100)
    world.work(1)
    await asyncio.sleep(100)
    assert world.given_back_s == [REST_S, 200 + REST_S]


async def test_work_without_rest_gives_back_after_a_minute() -> None:
    world = _GivenBack()
    for _ in range(int(5 * MOST_S / REST_S)):
        world.work(MIN_ITEMS)
        await asyncio.sleep(REST_S / 2)
    assert world.given_back_s == [pytest.approx(MOST_S), pytest.approx(2 * MOST_S, abs=REST_S)]


async def test_nothing_is_given_back_after_the_end() -> None:
    world = _GivenBack()
    world.work(MIN_ITEMS)
    world.memory.close()
    await asyncio.sleep(600)
    assert world.given_back_s == []
