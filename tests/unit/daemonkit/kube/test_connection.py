# SPDX-License-Identifier: Apache-2.0
"""When a connection's waits end, in virtual time."""

import asyncio
from typing import Any

import pytest

from daemonkit.kube.connection import PIECE_BYTES, Connection

pytestmark = pytest.mark.asyncio


async def _ended_s(connection: Connection, until: float) -> float:
    with pytest.raises(TimeoutError):
        await connection.read(until)
    return asyncio.get_running_loop().time()


def _receive(connection: Connection, data: bytes) -> None:
    connection.get_buffer(len(data))[: len(data)] = data
    connection.buffer_updated(len(data))


async def test_deadlines_are_kept_to_and_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with hundreds of watches at rest does not wake up for each of them."""
    loop = asyncio.get_running_loop()
    looked_at: list[float] = []
    call_at = loop.call_at

    def noted(when: float, *arguments: Any, **named: Any) -> asyncio.TimerHandle:
        looked_at.append(when)
        return call_at(when, *arguments, **named)

    begun_s = float(int(loop.time())) + 1.0
    await asyncio.sleep(begun_s - loop.time())
    connections = [Connection(None, None) for _ in range(5)]
    deadlines = [begun_s + 90.1 + number / 10 for number in range(5)]
    monkeypatch.setattr(loop, "call_at", noted)
    waits = asyncio.gather(*map(_ended_s, connections, deadlines))
    await asyncio.sleep(0)
    assert looked_at == [begun_s + 90.0] * 5
    assert await waits == pytest.approx(deadlines)


async def test_a_wait_that_follows_has_its_own_deadline() -> None:
    loop = asyncio.get_running_loop()
    connection = Connection(None, None)
    begun_s = loop.time()
    first = asyncio.gather(connection.read(begun_s + 90.5))
    await asyncio.sleep(60.0)
    _receive(connection, b"x")
    assert (await first)[0] == b"x"
    assert await _ended_s(connection, begun_s + 150.5) == pytest.approx(begun_s + 150.5)


@pytest.mark.parametrize("wait_s", [0.0, 0.01, 0.5, 1.0, 1.7, 2.0, 65.0])
async def test_no_deadline_is_early_or_late(wait_s: float) -> None:
    until = asyncio.get_running_loop().time() + wait_s
    assert await _ended_s(Connection(None, None), until) == pytest.approx(until)


async def _pieces_by_turn(connection: Connection, count: int, *, goes_on: bool) -> list[int]:
    """How many of so many pieces, which are there, are read in each turn of the loop."""
    found = [0]

    def turn() -> None:
        found.append(0)
        asyncio.get_running_loop().call_soon(turn)

    turn()
    for _ in range(count):
        _receive(connection, bytes(PIECE_BYTES))
    for _ in range(count):
        assert len(await connection.read(goes_on=goes_on)) == PIECE_BYTES
        found[-1] += 1
    return [each for each in found if each]


@pytest.mark.parametrize(("goes_on", "expected"), [(False, [1] * 9), (True, [4, 4, 1])])
async def test_who_goes_on_takes_some_pieces_in_a_turn(goes_on: bool, expected: list[int]) -> None:
    """A start of vc-syncer receives some thousands: each turn takes longer than to keep one."""
    assert await _pieces_by_turn(Connection(None, None), 9, goes_on=goes_on) == expected
