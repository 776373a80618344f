# SPDX-License-Identifier: Apache-2.0
"""Connections over real sockets, with OpenSSL's other end in asyncio."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import pytest

from daemonkit.keepalive import keep_alive
from daemonkit.kube.client import Client, DeadlineError, UnreachableError
from daemonkit.kube.connection import (
    FREE_RECORDS,
    HIGH_BYTES,
    MAX_HANDSHAKE_BYTES,
    PIECE_BYTES,
    RECEIVE_BYTES,
    BrokenPeerError,
    Connection,
    dial,
)
from daemonkit.kube.credentials import Credentials
from daemonkit.kube.kubeconfig import Access
from daemonkit.remedies import Cause
from devkit.pki import Authority
from tests.waiting import until

pytestmark = pytest.mark.asyncio

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def server(serve: Serve, authority: Authority | None) -> AsyncIterator[int]:
    context = None
    if authority is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue("s", sans_dns=["localhost"], sans_ip=["127.0.0.1"]).load_into(context)

    handled: set[asyncio.Task[None] | None] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handled.add(asyncio.current_task())
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    async with listener:
        yield listener.sockets[0].getsockname()[1]
        async with asyncio.timeout(10):
            for task in handled:
                if task is not None:
                    await task


def trusting(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.cert_pem.decode())
    return context


class WatchedConnection(Connection):
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        super().connection_made(transport)


@pytest.mark.parametrize("is_tls", [True, False])
async def test_a_slow_reader_pauses_the_sender_without_loss(authority: Authority, is_tls: bool) -> None:
    size, sent = 64 << 20, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        assert await reader.readexactly(2) == b"go"
        while sent < size:
            writer.write(bytes([sent >> 16 & 255]) * (64 << 10))
            sent += 64 << 10
            await writer.drain()

    async with server(serve, authority if is_tls else None) as port:
        given = (trusting(authority), "127.0.0.1") if is_tls else (None, None)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: WatchedConnection(*given), "127.0.0.1", port)
        await connection.handshake()
        connection.write(b"go")
        await until(lambda: not connection.transport.is_reading())
        # What waits is in our buffer, and in those of the kernel and the sender.
        assert sent < size
        received = bytearray()
        while data := await connection.read():
            assert len(data) <= HIGH_BYTES
            received += data
        assert len(received) == size
        assert received == b"".join(bytes([at >> 16 & 255]) * (64 << 10) for at in range(0, size, 64 << 10))
        connection.close()


class WaitingBytes:
    def __init__(self, *, is_short: bool) -> None:
        self.is_short = is_short
        self.waiting_bytes = self.most_bytes = 0

    def note_waiting(self, size_bytes: int) -> None:
        self.waiting_bytes += size_bytes
        self.most_bytes = max(self.most_bytes, self.waiting_bytes)


@pytest.mark.parametrize("is_tls", [True, False])
@pytest.mark.parametrize("is_short", [False, True])
async def test_what_waits_is_counted_and_bounded(authority: Authority, is_tls: bool, is_short: bool) -> None:
    """With little memory left a peer waits as soon as anything of it was not read."""
    size = 8 << 20

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(2) == b"go"
        writer.write(b"x" * size)
        await writer.drain()
        await reader.read()

    async with server(serve, authority if is_tls else None) as port:
        context = trusting(authority) if is_tls else None
        waiting = WaitingBytes(is_short=is_short)
        connection = await dial(("127.0.0.1",), port, context, "127.0.0.1" if is_tls else None, waiting)
        connection.write(b"go")
        received = 0
        while received < size:
            received += len(await connection.read())
        assert (received, waiting.waiting_bytes) == (size, 0)
        assert 0 < waiting.most_bytes <= RECEIVE_BYTES + (0 if is_short else HIGH_BYTES)
        connection.close()


async def test_what_nobody_reads_is_given_back_at_the_end() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 1000)
        await reader.read()

    async with server(serve, None) as port:
        waiting = WaitingBytes(is_short=False)
        connection = await dial(("127.0.0.1",), port, None, None, waiting)
        await until(lambda: waiting.waiting_bytes == 1000)
        connection.close()
        assert waiting.waiting_bytes == 0


async def test_an_unverified_peer_is_refused(authority: Authority) -> None:
    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with server(serve, authority) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await dial(("127.0.0.1",), port, trusting(Authority.create("other")), "127.0.0.1")
        with pytest.raises(ssl.SSLCertVerificationError):
            await dial(("127.0.0.1",), port, trusting(authority), "elsewhere")
    async with server(serve, None) as port:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await dial(("127.0.0.1",), port, trusting(authority), "127.0.0.1")


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_a_peer_without_tls_is_an_error(authority: Authority, greeting: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(greeting)
        await writer.drain()

    async with server(serve, None) as port:
        with pytest.raises(OSError, match=r"SSL|handshake|reset"):
            await dial(("127.0.0.1",), port, trusting(authority), "127.0.0.1")


def reply(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_connections_are_reused_and_dead_ones_replaced(authority: Authority) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply(b"%d" % connections))
        # Then it closes without a response, as a restarting server does.

    async with server(serve, authority) as port:
        access = Access(f"https://127.0.0.1:{port}", ca_pem=authority.cert_pem, token="t")
        async with Client(Credentials(lambda: access)) as client:
            responses = [await client.request("GET", "/x") for _ in range(5)]
            assert responses == [b"1", b"1", b"2", b"2", b"3"]


@pytest.mark.parametrize(
    ("can_repeat", "expected"),
    [
        (None, [b"1", b"2", b"3", b"4", b"5"]),
        (False, [b"1", b"2", b"3", b"4", b"5"]),
        (True, [b"1", b"1", b"2", b"2", b"3"]),
    ],
)
async def test_repeatable_writes_use_kept_connections(
    authority: Authority, can_repeat: bool | None, expected: list[bytes]
) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n{}")
            writer.write(reply(b"%d" % connections))

    async with server(serve, authority) as port:
        access = Access(f"https://127.0.0.1:{port}", ca_pem=authority.cert_pem, token="t")
        async with Client(Credentials(lambda: access)) as client:
            responses = [
                await client.request("POST", "/x", body=b"{}", can_repeat=can_repeat) for _ in range(5)
            ]
            assert responses == expected


@pytest.mark.parametrize(("max_idle", "expected"), [(0, 12), (4, 8), (6, 6)])
async def test_so_many_connections_are_kept(authority: Authority, max_idle: int, expected: int) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            await reader.readuntil(b"\r\n\r\n")
            await until(lambda: connections >= 6)
            writer.write(reply(b"x"))

    async with server(serve, authority) as port:
        access = Access(f"https://127.0.0.1:{port}", ca_pem=authority.cert_pem, token="t")
        async with Client(Credentials(lambda: access), max_idle=max_idle) as client:
            for _ in range(2):
                await asyncio.gather(*(client.request("GET", "/x") for _ in range(6)))
            assert connections == expected


def _flood(listener: socket.socket) -> None:
    """Answer without an end, and ahead of whoever reads."""
    peer, _ = listener.accept()
    with peer, contextlib.suppress(OSError):
        peer.recv(1 << 16)
        peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            peer.sendall(bytes(1 << 16))


async def test_a_peer_that_never_stops_sending_has_a_deadline() -> None:
    """Its bytes are there at each read, so that nothing waits for them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        flood = threading.Thread(target=_flood, args=(listener,))
        flood.start()
        access = Access(f"http://127.0.0.1:{listener.getsockname()[1]}", token="t")
        async with Client(Credentials(lambda: access)) as client, asyncio.timeout(60):

            async def follow() -> None:
                async with client.stream("/x", {}, idle_timeout_s=60, timeout_s=0.3) as chunks:
                    async for _ in chunks:
                        time.sleep(0.002)  # as an object that is decoded takes  # noqa: ASYNC251

            with pytest.raises(DeadlineError):
                await follow()
        await asyncio.to_thread(flood.join)


async def test_a_stream_may_be_silent_until_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind without events has watches that bring nothing; of others more is due."""
    sends = asyncio.Event()
    loop = asyncio.get_running_loop()
    real, ahead_s = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: real() + ahead_s)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await sends.wait()
        writer.write(b"1\r\nx\r\n")
        await reader.read()

    async def read(chunks: AsyncIterator[bytes]) -> bytes:
        return await anext(chunks)

    async def pass_a_minute(then: Callable[[], None]) -> None:
        nonlocal ahead_s
        for _ in range(5):
            await asyncio.sleep(0)
        ahead_s += 61
        await asyncio.sleep(0.01)
        then()

    async with server(serve, None) as port:
        access = Access(f"http://127.0.0.1:{port}", token="t")
        async with (
            Client(Credentials(lambda: access)) as client,
            client.stream("/x", {}, idle_timeout_s=60, timeout_s=300) as chunks,
        ):
            first, _ = await asyncio.gather(read(chunks), pass_a_minute(sends.set))
            assert first == b"x"
            with pytest.raises(DeadlineError):
                await asyncio.gather(read(chunks), pass_a_minute(lambda: None))


async def test_idle_connections_expire(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemonkit.kube.client.IDLE_S", 0.05)
    ended = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal ended
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply(b"x"))
        with contextlib.suppress(OSError):
            await reader.read()
        ended += 1

    async with server(serve, authority) as port:
        access = Access(f"https://127.0.0.1:{port}", ca_pem=authority.cert_pem, token="t")
        async with Client(Credentials(lambda: access)) as client:
            await asyncio.gather(*(client.request("GET", "/x") for _ in range(3)))
            await until(lambda: ended == 3)
            await client.request("GET", "/x")
            await until(lambda: ended == 4)


async def test_malformed_and_truncated_replies_are_errors(authority: Authority) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    truncated = [b"", b"HTTP/1.1 200", reply(b"hello")[:-1], chunked, chunked + b"5\r\nhel"]
    left = [*truncated, b"SMTP\r\n\r\n", chunked + b"z\r\n"]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(left[-1])
        await writer.drain()

    async with server(serve, authority) as port:
        access = Access(f"https://127.0.0.1:{port}", ca_pem=authority.cert_pem, token="t")
        async with Client(Credentials(lambda: access)) as client:
            while left:
                with pytest.raises(UnreachableError, match="HTTP: ") as raised:
                    await client.request("GET", "/x")
                cause = Cause.CLOSED if left.pop() in truncated else Cause.MALFORMED
                assert raised.value.cause is cause


async def test_a_vanished_server_is_asked_by_keepalive(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch may bring nothing for minutes: nothing else shows that its server is gone."""
    found: list[bool] = []

    def recorded(sock: socket.socket) -> None:
        keep_alive(sock)
        found.append(bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    monkeypatch.setattr("daemonkit.kube.connection.keep_alive", recorded)
    async with server(serve, None) as port:
        (await dial(("127.0.0.1",), port, None, None)).close()
    assert found == [True]


async def test_tls_records_of_a_byte_are_bounded_in_number(authority: Authority) -> None:
    """Each takes as long as one of some KB, and an API server could send them without an end."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(10 * FREE_RECORDS):
            writer.write(b"x")  # each write is a record
            await writer.drain()
        await reader.read()

    async with server(serve, authority) as port:
        connection = await dial(("127.0.0.1",), port, trusting(authority), "127.0.0.1")
        received = bytearray()

        async def read_all() -> None:
            while data := await connection.read():
                received.extend(data)

        with pytest.raises(BrokenPeerError, match="TLS records for"):
            await read_all()
        assert FREE_RECORDS // 2 < len(received) <= FREE_RECORDS
        connection.close()


async def test_a_handshake_is_bounded_in_bytes(authority: Authority) -> None:
    """Records of a change of ciphers are ignored, whatever their number."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        for _ in range(2 * MAX_HANDSHAKE_BYTES // 1_000):
            # A record that is announced as a long piece of a handshake message, of which more follows.
            writer.write(b"\x16\x03\x03\x03\xe8" + b"\x02\x00\xff\xff" + b"x" * 996)
            await writer.drain()
        await reader.read()

    async with server(serve, None) as port:
        with pytest.raises(OSError, match=r"handshake|SSL"):
            await dial(("127.0.0.1",), port, trusting(authority), "127.0.0.1")


@pytest.mark.parametrize("is_tls", [True, False])
async def test_a_busy_peer_leaves_turns_to_other_tasks(authority: Authority, is_tls: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * (4 << 20))
        await writer.drain()
        await reader.read()

    async with server(serve, authority if is_tls else None) as port:
        given = (trusting(authority), "127.0.0.1") if is_tls else (None, None)
        connection = await dial(("127.0.0.1",), port, *given)
        # Of bytes that were there already, no more than two pieces between two turns.
        assert await _most_in_a_turn(connection, 4 << 20, goes_on=False) <= 2 * PIECE_BYTES
        connection.close()


async def test_many_records_are_taken_in_turns_of_their_own(authority: Authority) -> None:
    """A record of some bytes takes as long as one of some KB."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(6_000):
            writer.write(b"x" * 60)  # each write is a record
        await writer.drain()
        await reader.read()

    async with server(serve, authority) as port:
        connection = await dial(("127.0.0.1",), port, trusting(authority), "127.0.0.1")
        assert await _most_in_a_turn(connection, 6_000 * 60, goes_on=True) <= 2 * PIECE_BYTES
        connection.close()


async def _most_in_a_turn(connection: Connection, count: int, *, goes_on: bool) -> int:
    """The most bytes that are read between two turns of others, of so many."""
    size = most = since = 0
    is_over = False

    def turn() -> None:
        nonlocal since
        since = 0
        if not is_over:
            asyncio.get_running_loop().call_soon(turn)

    turn()
    while size < count:
        data = await connection.read(goes_on=goes_on)
        size, since = size + len(data), since + len(data)
        most = max(most, since)
    is_over = True
    return most
