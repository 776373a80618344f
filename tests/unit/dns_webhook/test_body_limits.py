# SPDX-License-Identifier: Apache-2.0
"""Bodies that are read at once: which one is evicted without room."""

import asyncio

import pytest

from daemonkit.tasks import Tasks
from dns_webhook.body_limits import BodyLimits, BodyTooLargeError, EvictedError

pytestmark = pytest.mark.asyncio

READ_S = 5.0


class Sender:
    """A body that arrives in parts."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        for chunk in chunks:
            self.send(chunk)

    def send(self, chunk: bytes) -> None:
        self._chunks.put_nowait(chunk)

    async def readany(self) -> bytes:
        return await self._chunks.get()


class LimitsFixture:
    def __init__(self, most: int = 64, each_bytes: int = 10, all_bytes: int = 20) -> None:
        self.bodies = BodyLimits(most, each_bytes, all_bytes, READ_S)
        self._tasks = Tasks("test")

    async def reads(self, sender: Sender) -> asyncio.Task[bytes]:
        """Read the bytes that have arrived."""
        task = self._tasks.spawn(self.bodies.read(sender), "body")
        await self.settles()
        return task

    async def settles(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    @property
    def used(self) -> tuple[int, int]:
        return len(self.bodies), self.bodies.read_bytes


async def test_a_read_body_leaves_no_bytes_counted() -> None:
    here = LimitsFixture()
    assert await here.bodies.read(Sender(b"ab", b"c", b"")) == b"abc"
    assert await here.bodies.read(Sender(b"x" * 10, b"")) == b"x" * 10
    assert here.used == (0, 0)


async def test_a_body_above_its_limit_is_refused_at_once() -> None:
    here = LimitsFixture()
    with pytest.raises(BodyTooLargeError):
        await here.bodies.read(Sender(b"x" * 10, b"x"))
    assert here.used == (0, 0)


async def test_an_unfinished_body_times_out() -> None:
    here = LimitsFixture()
    slow = await here.reads(Sender(b"x"))
    assert here.used == (1, 1)
    await asyncio.sleep(READ_S + 1)
    with pytest.raises(TimeoutError):
        await slow
    assert here.used == (0, 0)


async def test_the_oldest_body_is_evicted() -> None:
    here = LimitsFixture(most=2)
    first, second = Sender(b"x"), Sender(b"y")
    one, two = await here.reads(first), await here.reads(second)
    assert await here.bodies.read(Sender(b"z", b"")) == b"z"
    with pytest.raises(EvictedError):
        await one
    second.send(b"")
    assert await two == b"y"
    assert here.used == (0, 0)


async def test_the_oldest_body_loses_its_bytes() -> None:
    here = LimitsFixture()
    first, second = Sender(b"x" * 9), Sender(b"y" * 9)
    one, two = await here.reads(first), await here.reads(second)
    assert here.used == (2, 18)
    assert await here.bodies.read(Sender(b"zz", b"z", b"")) == b"zzz"
    with pytest.raises(EvictedError):
        await one
    assert here.used == (1, 9)
    second.send(b"")
    assert await two == b"y" * 9


async def test_the_oldest_body_evicts_itself_by_growing() -> None:
    here = LimitsFixture(all_bytes=10)
    first, second = Sender(b"x"), Sender(b"y" * 9)
    one, two = await here.reads(first), await here.reads(second)
    first.send(b"x")
    await here.settles()
    with pytest.raises(EvictedError):
        await one
    assert here.used == (1, 9)
    second.send(b"")
    assert await two == b"y" * 9


async def test_a_body_that_ends_while_evicted_is_refused() -> None:
    """Its bytes are dropped."""
    here = LimitsFixture(most=1)
    first = Sender(b"x")
    one = await here.reads(first)
    first.send(b"")
    assert await here.bodies.read(Sender(b"z", b"")) == b"z"
    with pytest.raises(EvictedError):
        await one
    assert here.used == (0, 0)


async def test_a_cancelled_read_leaves_no_bytes_counted() -> None:
    here = LimitsFixture()
    task = await here.reads(Sender(b"x"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert here.used == (0, 0)


async def test_a_total_below_one_body_is_an_error() -> None:
    with pytest.raises(ValueError, match="each_bytes is more"):
        BodyLimits(1, 11, 10, READ_S)
