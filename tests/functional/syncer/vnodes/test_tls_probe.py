# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from daemonkit.tls.contexts import server_context
from devkit.pki import Authority
from syncer.vnodes.tls_probe import TlsAgentProbe

pytestmark = pytest.mark.asyncio

HOST = "127.0.0.1"
AUTHORITY = Authority.create("node-ca")


@contextlib.asynccontextmanager
async def serving(context: ssl.SSLContext | None, first: bytes = b"") -> AsyncIterator[int]:
    """A server that sends `first` and reads; gives its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(first)
            while await reader.read(1000):
                pass
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


def agent_context(directory: Path, minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    """As vn-agent has it: it demands a client certificate."""
    certificate, key = AUTHORITY.issue("node-7", sans_ip=(HOST,)).write(directory, "serving")
    return server_context(certificate, key, [AUTHORITY.der], minimum_version=minimum)


async def test_agent_answers_a_client_without_certificate(tmp_path: Path) -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with serving(agent_context(tmp_path)) as port:
        assert await TlsAgentProbe().probe(HOST, port)


async def test_server_never_gets_the_last_flight() -> None:
    """It would count a client without a certificate as a failed handshake."""
    received = asyncio.Event()
    data = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(incoming, outgoing, server_side=True)
        with contextlib.suppress(OSError):
            while chunk := await reader.read(1000):
                incoming.write(chunk)
                with contextlib.suppress(ssl.SSLWantReadError):
                    session.do_handshake()
                    data.extend(b"handshake done")
                writer.write(outgoing.read())
        writer.close()
        received.set()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    AUTHORITY.issue("node-7", sans_ip=(HOST,)).load_into(context)
    server = await asyncio.start_server(serve, HOST, 0)
    async with server:
        assert await TlsAgentProbe().probe(HOST, server.sockets[0].getsockname()[1])
        await asyncio.wait_for(received.wait(), 10)
    assert data == b""


async def test_closed_port_does_not_answer() -> None:
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    assert not await TlsAgentProbe().probe(HOST, port)


@pytest.mark.parametrize(
    "first", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"x" * 300_000, b"\x16\x03\x03\xff\xff"]
)
async def test_server_without_tls_does_not_answer(first: bytes) -> None:
    async with serving(None, first) as port:
        try:
            is_answering = await asyncio.wait_for(TlsAgentProbe().probe(HOST, port), 0.5)
        except TimeoutError:
            is_answering = False
        assert not is_answering


async def test_process_that_hangs_does_not_answer() -> None:
    """The kernel accepts connections for it."""
    with socket.create_server((HOST, 0)) as hanging:
        port = hanging.getsockname()[1]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(TlsAgentProbe().probe(HOST, port), 0.3)
