# SPDX-License-Identifier: Apache-2.0
"""The proxy admits allowed peers only, and passes bytes unchanged."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from daemonkit.tasks import Tasks
from kata_bridge.api.peer_auth import BUFFER_BYTES, PeerAuthProxy, PeerPolicy, SocketPeer, bind, peer_of
from tests.functional.kata_bridge.served_bridge import DEADLINE_S
from tests.waiting import until

pytestmark = pytest.mark.asyncio

US = PeerPolicy(frozenset({os.getuid()}), None)


@asynccontextmanager
async def proxied(directory: Path, policy: PeerPolicy) -> AsyncIterator[tuple[Path, list[int]]]:
    """A proxy before an echo server; the list has an entry for each refused peer."""

    served: set[asyncio.StreamWriter] = set()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(writer)
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()
        served.remove(writer)

    refused: list[int] = []
    tasks = Tasks("proxy")
    server = await asyncio.start_unix_server(echo, directory / "inner")
    proxy = PeerAuthProxy(
        bind(directory / "socket", None), directory / "inner", policy, tasks, lambda: refused.append(1)
    )
    await proxy.start()
    try:
        yield directory / "socket", refused
    finally:
        await proxy.stop()
        await proxy.close()
        await until(lambda: not served)
        server.close()
        await tasks.close(2)


async def test_the_kernel_names_the_peer() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert peer_of(one) == SocketPeer(os.getpid(), os.getuid(), frozenset((os.getgid(), *os.getgroups())))


async def test_bytes_and_eof_are_relayed(tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    async with proxied(tmp_path, US) as (path, _), asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_unix_connection(path, limit=1 << 20)

        async def send() -> None:
            writer.write(data)
            await writer.drain()
            writer.write_eof()

        _, got = await asyncio.gather(send(), reader.read())
        assert got == data
        writer.close()


async def read_from(path: Path) -> bytes:
    """All that a peer reads that sends nothing."""
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_unix_connection(path)
        got = await reader.read()
        writer.close()
    return got


async def test_a_refused_peer_is_closed_before_a_byte_is_read(tmp_path: Path) -> None:
    async with proxied(tmp_path, PeerPolicy(frozenset({4_000_000_001}), None)) as (path, refused):
        assert await read_from(path) == b""
        assert refused == [1]


async def test_members_of_the_group_may_connect(tmp_path: Path) -> None:
    async with proxied(tmp_path, PeerPolicy(frozenset(), os.getgid())) as (path, refused):
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            writer.close()
        assert refused == []


async def test_a_peer_that_does_not_read_is_not_read(tmp_path: Path) -> None:
    async with proxied(tmp_path, US) as (path, _):
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX) as peer:
            peer.setblocking(False)
            await loop.sock_connect(peer, str(path))
            sent = 0
            stuck = 0
            # The proxy and its server run in this event loop: after so many iterations in which nothing
            # fits, nothing more is read.
            while stuck < 50:
                try:
                    sent += peer.send(b"x" * 65536)
                    stuck = 0
                except BlockingIOError:
                    stuck += 1
                    await asyncio.sleep(0.01)  # pace: the proxy has its turn
            # Both directions of two sockets' own buffers, ours twice, and the server's.
            assert sent < 16 * BUFFER_BYTES


async def test_bind_removes_only_sockets(tmp_path: Path) -> None:
    (tmp_path / "socket").write_text("precious")
    with pytest.raises(FileExistsError):
        bind(tmp_path / "socket", None)
    assert (tmp_path / "socket").read_text() == "precious"


class CancelledTasks(Tasks):
    """Tasks that are cancelled before their first step, as during shutdown."""

    def spawn(self, coro: Any, name: str, **more: Any) -> asyncio.Task[Any]:
        task = super().spawn(coro, name, **more)
        task.cancel()
        return task


async def test_a_peer_accepted_during_shutdown_is_closed(tmp_path: Path) -> None:
    tasks = CancelledTasks("proxy")
    proxy = PeerAuthProxy(bind(tmp_path / "socket", None), tmp_path / "inner", US, tasks)
    await proxy.start()
    assert await read_from(tmp_path / "socket") == b""
    await proxy.stop()
    await tasks.close(2)


async def test_without_a_server_peers_are_closed(tmp_path: Path) -> None:
    tasks = Tasks("proxy")
    proxy = PeerAuthProxy(bind(tmp_path / "socket", None), tmp_path / "absent", US, tasks)
    await proxy.start()
    assert await read_from(tmp_path / "socket") == b""
    await until(lambda: not len(tasks))
    await proxy.stop()
    await tasks.close(2)
