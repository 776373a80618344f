# SPDX-License-Identifier: Apache-2.0
"""Calls and what ends them, on virtual time."""

import asyncio

import pytest

from kata_bridge.ttrpc import client
from kata_bridge.ttrpc.client import Calls, ConnectionLost
from kata_bridge.ttrpc.connection import answer, refusal
from kata_bridge.ttrpc.frame import Frame
from kata_bridge.ttrpc.status import Code, TtrpcError


async def read_at_once() -> None:
    """What a peer that reads what it is sent is waited for with."""


class Peer:
    """Whoever answers: `sent` is what reached it."""

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self.calls = Calls(self.sent.append, read_at_once)

    def says(self, *frames: Frame) -> None:
        for frame in frames:
            self.calls.receive(frame.header() + frame.data)


@pytest.mark.asyncio
async def test_answers_find_their_calls() -> None:
    peer = Peer()
    first = asyncio.create_task(peer.calls.call("s", "m", b"1", 5))  # noqa: TID251 - awaited below
    second = asyncio.create_task(peer.calls.call("s", "m", b"2", 5))  # noqa: TID251 - awaited below
    await asyncio.sleep(1)
    assert [frame.stream_id for frame in peer.sent] == [1, 3]
    peer.says(answer(3, b"second"), answer(1, b"first"))
    assert (await first, await second) == (b"first", b"second")


@pytest.mark.asyncio
async def test_a_refusal_is_raised() -> None:
    peer = Peer()
    call = asyncio.create_task(peer.calls.call("s", "m", b"", 5))  # noqa: TID251 - awaited below
    await asyncio.sleep(0)
    peer.says(refusal(1, Code.NOT_FOUND, "no such thing"))
    with pytest.raises(TtrpcError, match="NOT_FOUND: no such thing"):
        await call


@pytest.mark.asyncio
async def test_a_late_answer_is_dropped() -> None:
    peer = Peer()
    with pytest.raises(TimeoutError):
        await peer.calls.call("s", "m", b"", 5)
    peer.says(answer(1, b"late"))
    call = asyncio.create_task(peer.calls.call("s", "m", b"", 5))  # noqa: TID251 - awaited below
    await asyncio.sleep(0)
    peer.says(answer(3, b"in time"))
    assert await call == b"in time"


@pytest.mark.asyncio
async def test_a_lost_connection_ends_all_calls() -> None:
    peer = Peer()
    calls = [asyncio.create_task(peer.calls.call("s", "m", b"", 5)) for _ in range(3)]  # noqa: TID251 - awaited below
    await asyncio.sleep(0)
    peer.calls.lost("reset")
    peer.calls.lost("said twice")
    for call in calls:
        with pytest.raises(ConnectionLost, match="reset"):
            await call
    with pytest.raises(ConnectionLost, match="reset"):
        await peer.calls.call("s", "m", b"", 5)


@pytest.mark.asyncio
async def test_a_peer_that_does_not_read_costs_no_more_than_the_deadline() -> None:
    async def never() -> None:
        await asyncio.sleep(1e6)

    with pytest.raises(TimeoutError):
        await Calls(lambda _: None, never).call("s", "m", b"", 5)
    assert asyncio.get_running_loop().time() == 5


@pytest.mark.asyncio
async def test_as_many_wait_as_there_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_WAITING", 2)
    peer = Peer()
    calls = [asyncio.create_task(peer.calls.call("s", "m", b"", 5)) for _ in range(2)]  # noqa: TID251 - awaited below
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="2 calls wait"):
        await peer.calls.call("s", "m", b"", 5)
    peer.says(answer(1, b""), answer(3, b""))
    assert await asyncio.gather(*calls) == [b"", b""]
