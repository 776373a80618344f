# SPDX-License-Identifier: Apache-2.0
"""Client and server over a real unix socket."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from devkit.kata.ttrpc_server import TtrpcServer
from kata_bridge.ttrpc.client import ConnectionLost, TtrpcClient
from kata_bridge.ttrpc.connection import ClientConnection
from kata_bridge.ttrpc.status import Code, TtrpcError

TIMEOUT_S = 20.0
LARGE = bytes(range(256)) * (12 << 10)  # 3 MiB


async def reverse(service: str, method: str, payload: bytes) -> bytes:
    match method:
        case "echo":
            return payload
        case "reversed":
            await asyncio.sleep(0)
            return payload[::-1]
        case "never":
            await asyncio.sleep(3600)
    raise TtrpcError(Code.UNIMPLEMENTED, f"{service} has no {method}")


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[TtrpcServer]:
    server = TtrpcServer(reverse)
    await server.start_unix(path)
    try:
        yield server
    finally:
        await server.stop()


@pytest.mark.asyncio
async def test_many_calls_at_once_small_and_large(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with serving(path), TtrpcClient(*await asyncio.open_unix_connection(path)) as client:
        payloads = [b"%d" % number for number in range(50)] + [LARGE] * 4
        responses = await asyncio.gather(
            *(client.call("trial", "reversed", payload, TIMEOUT_S) for payload in payloads)
        )
    assert responses == [payload[::-1] for payload in payloads]


@pytest.mark.asyncio
async def test_errors_and_deadlines_keep_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with serving(path), TtrpcClient(*await asyncio.open_unix_connection(path)) as client:
        with pytest.raises(TtrpcError, match="UNIMPLEMENTED: trial has no such"):
            await client.call("trial", "such", b"", TIMEOUT_S)
        with pytest.raises((TimeoutError, TtrpcError)):
            await client.call("trial", "never", b"", 0.05)
        with pytest.raises(TtrpcError, match="RESOURCE_EXHAUSTED"):
            await client.call("trial", "echo", bytes(5 << 20), TIMEOUT_S)
        assert await client.call("trial", "echo", b"still there", TIMEOUT_S) == b"still there"


@pytest.mark.asyncio
async def test_stop_of_the_server_fails_pending_calls(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with serving(path) as server, TtrpcClient(*await asyncio.open_unix_connection(path)) as client:
        calls = [
            asyncio.ensure_future(client.call("trial", "never", b"", TIMEOUT_S))  # noqa: TID251 - awaited below
            for _ in range(3)
        ]
        await client.call("trial", "echo", b"", TIMEOUT_S)
        await server.stop()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, ConnectionLost | TtrpcError) for end in ends)
        with pytest.raises(ConnectionLost, match="closed by the peer"):
            await client.call("trial", "echo", b"", TIMEOUT_S)


@pytest.mark.asyncio
async def test_client_that_does_not_read_is_not_read_from(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with serving(path):
        connection = ClientConnection()
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(path))
            peer.setblocking(False)
            sent_bytes = 0
            loop = asyncio.get_running_loop()
            with pytest.raises(TimeoutError):  # noqa: PT012 - it is the loop that must stop
                while sent_bytes < 200 << 20:
                    frame = connection.call("trial", "echo", LARGE, TIMEOUT_S)
                    async with asyncio.timeout(3):
                        await loop.sock_sendall(peer, frame.header() + frame.data)
                    sent_bytes += len(frame.data)
            assert sent_bytes < 64 << 20
        # Others are served meanwhile and afterwards.
        async with TtrpcClient(*await asyncio.open_unix_connection(path)) as client:
            assert await client.call("trial", "echo", b"served", TIMEOUT_S) == b"served"


@pytest.mark.asyncio
@pytest.mark.parametrize("turns", range(8))
async def test_stop_closes_connections_being_accepted(tmp_path: Path, turns: int) -> None:
    path = tmp_path / "socket"
    server = TtrpcServer(reverse)
    await server.start_unix(path)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(TIMEOUT_S)
        peer.connect(str(path))
        peer.shutdown(socket.SHUT_WR)
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.stop()
        async with asyncio.timeout(TIMEOUT_S):
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.to_thread(peer.recv, 1) == b"", "closed, not left to the collector"
