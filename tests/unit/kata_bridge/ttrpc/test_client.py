# SPDX-License-Identifier: Apache-2.0
"""Client calls and how they end, on virtual time."""

import asyncio

import pytest

from kata_bridge.ttrpc import client
from kata_bridge.ttrpc.client import ClientCalls, ConnectionLost
from kata_bridge.ttrpc.connection import refusal, response_frame
from kata_bridge.ttrpc.frame import Frame
from kata_bridge.ttrpc.status import Code, TtrpcError


async def read_at_once() -> None:
    """The drain of a peer that reads at once."""


class Peer:
    """The server; `sent` are the frames that reached it."""

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self.calls = ClientCalls(self.sent.append, read_at_once)

    def send(self, *frames: Frame) -> None:
        for frame in frames:
            self.calls.receive(frame.header() + frame.data)


@pytest.mark.asyncio
async def test_responses_find_their_calls() -> None:
    peer = Peer()
    first = asyncio.create_task(peer.calls.call("s", "m", b"1", 5))  # noqa: TID251 - awaited below
    second = asyncio.create_task(peer.calls.call("s", "m", b"2", 5))  # noqa: TID251 - awaited below
    await asyncio.sleep(1)
    assert [frame.stream_id for frame in peer.sent] == [1, 3]
    peer.send(response_frame(3, b"second"), response_frame(1, b"first"))
    assert (await first, await second) == (b"first", b"second")


@pytest.mark.asyncio
async def test_error_status_is_raised() -> None:
    peer = Peer()
    call = asyncio.create_task(peer.calls.call("s", "m", b"", 5))  # noqa: TID251 - awaited below
    await asyncio.sleep(0)
    peer.send(refusal(1, Code.NOT_FOUND, "no such thing"))
    with pytest.raises(TtrpcError, match="NOT_FOUND: no such thing"):
        await call


@pytest.mark.asyncio
async def test_late_response_is_dropped() -> None:
    peer = Peer()
    with pytest.raises(TimeoutError):
        await peer.calls.call("s", "m", b"", 5)
    peer.send(response_frame(1, b"late"))
    call = asyncio.create_task(peer.calls.call("s", "m", b"", 5))  # noqa: TID251 - awaited below
    await asyncio.sleep(0)
    peer.send(response_frame(3, b"in time"))
    assert await call == b"in time"


@pytest.mark.asyncio
async def test_lost_connection_fails_all_calls() -> None:
    peer = Peer()
    calls = [asyncio.create_task(peer.calls.call("s", "m", b"", 5)) for _ in range(3)]  # noqa: TID251 - awaited below
    await asyncio.sleep(0)
    peer.calls.lost("reset")
    peer.calls.lost("lost twice")
    for call in calls:
        with pytest.raises(ConnectionLost, match="reset"):
            await call
    with pytest.raises(ConnectionLost, match="reset"):
        await peer.calls.call("s", "m", b"", 5)


@pytest.mark.asyncio
async def test_deadline_covers_a_peer_that_does_not_read() -> None:
    async def never() -> None:
        await asyncio.sleep(1e6)

    with pytest.raises(TimeoutError):
        await ClientCalls(lambda _: None, never).call("s", "m", b"", 5)
    assert asyncio.get_running_loop().time() == 5


@pytest.mark.asyncio
async def test_pending_calls_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_PENDING", 2)
    peer = Peer()
    calls = [asyncio.create_task(peer.calls.call("s", "m", b"", 5)) for _ in range(2)]  # noqa: TID251 - awaited below
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="2 calls are pending"):
        await peer.calls.call("s", "m", b"", 5)
    peer.send(response_frame(1, b""), response_frame(3, b""))
    assert await asyncio.gather(*calls) == [b"", b""]
