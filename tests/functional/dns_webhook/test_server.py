# SPDX-License-Identifier: Apache-2.0
"""The webhook's server over TLS: refused requests, limits, renewed certificates."""

import asyncio
import contextlib
import datetime as dt
import gzip
import io
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from daemonkit.status.server import Readiness
from daemonkit.tasks import Tasks
from daemonkit.tls.openssl import end_inspection
from dns_webhook import connections
from dns_webhook.connections import MAX_HANDSHAKES, MAX_SILENT
from dns_webhook.credentials import LEAF_LIFE, Credentials
from dns_webhook.server import LIVE, MAX_BODY_BYTES, PATH, READY, WebhookServer
from tests.cases import client_hello as hellos
from tests.functional.vnagent.attacks import client_hello, crowd, is_closed
from tests.waiting import holds_within

pytestmark = pytest.mark.asyncio

JSON = {"Content-Type": "application/json"}
SLOW = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
DEADLINE_S = 30.0
NOW = dt.datetime.now(dt.UTC)


def judge(body: bytes) -> web.Response:
    return web.Response(text=f"{len(body)} bytes")


class RunningServer:
    def __init__(self, server: WebhookServer, credentials: Credentials, port: int) -> None:
        self.server, self.credentials = server, credentials
        self.url = f"https://127.0.0.1:{port}{PATH}"
        self.port = port

    def context(self) -> ssl.SSLContext:
        """Trusts the authorities of the registration."""
        return ssl.create_default_context(cadata=b"".join(self.credentials.bundle).decode())

    def session(self) -> aiohttp.ClientSession:
        """A client like an API server."""
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self.context()))

    async def post(self, body: bytes, **headers: str) -> tuple[int, str]:
        data = io.BytesIO(body)
        async with (
            self.session() as session,
            session.post(self.url, data=data, headers=JSON | headers) as reply,
        ):
            return reply.status, await reply.text()


@asynccontextmanager
async def running(directory: Path, **how: float) -> AsyncIterator[RunningServer]:
    credentials = Credentials(directory, ("127.0.0.1",))
    credentials.renew_due(NOW, ())
    here = Readiness(bool(how.get("ready", 1)), ("lists: missing pods",))
    server = WebhookServer(
        judge,
        lambda: here,
        read_s=how.get("read_s", 5.0),
        max_in_flight=int(how.get("most", 64)),
        max_connections=int(how.get("connections", 128)),
    )
    port = await server.start("127.0.0.1", 0, credentials.certificate_file)
    try:
        yield RunningServer(server, credentials, port)
    finally:
        await server.stop()


async def test_requests_and_their_status_codes(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        assert await here.post(b"{}") == (200, "2 bytes")
        for other in ("application/yaml", "application/vnd.kubernetes.protobuf", "text/plain"):
            assert (await here.post(b"{}", **{"Content-Type": other}))[0] == 415
        assert await here.post(b"x" * MAX_BODY_BYTES) == (200, f"{MAX_BODY_BYTES} bytes")
        assert (await here.post(b"x" * (MAX_BODY_BYTES + 1)))[0] == 413
        async with here.session() as session:
            async with session.get(here.url) as reply:
                assert reply.status == 405
            async with session.post(here.url + "/other", data=b"{}", headers=JSON) as reply:
                assert reply.status == 404


@pytest.mark.parametrize(("ready", "status"), [(1, 200), (0, 503)])
async def test_probes_reveal_no_reason(tmp_path: Path, ready: float, status: int) -> None:
    async with running(tmp_path, ready=ready) as here, here.session() as session:
        async with session.get(here.url.replace(PATH, READY)) as reply:
            assert (reply.status, await reply.text()) == (status, "ok\n" if ready else "not ready\n")
        async with session.get(here.url.replace(PATH, LIVE)) as reply:
            assert reply.status == 200


async def test_an_unfinished_review_times_out(tmp_path: Path) -> None:
    async with running(tmp_path, read_s=0.1, most=1) as here:

        async def for_ever() -> AsyncIterator[bytes]:
            yield b"{"
            await asyncio.Event().wait()

        async with (
            here.session() as session,
            session.post(here.url, data=for_ever(), headers=JSON) as reply,
        ):
            assert reply.status == 408
        assert await here.post(b"{}") == (200, "2 bytes")


async def test_a_slow_review_is_evicted_with_retry_after(tmp_path: Path) -> None:
    async with running(tmp_path, read_s=60, most=1) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port, ssl=here.context())
        tasks = Tasks("test")
        try:
            writer.write(SLOW)
            response = tasks.spawn(reader.readuntil(b"\r\n\r\n"), "response")
            async with asyncio.timeout(DEADLINE_S):
                # Nothing can be evicted before it is being read.
                while not response.done():
                    assert await here.post(b"{}") == (200, "2 bytes")
            assert response.result().startswith(b"HTTP/1.1 503 ")
            assert b"\r\nRetry-After: 1\r\n" in response.result()
        finally:
            writer.transport.abort()
            await tasks.close(1.0)


@pytest.mark.parametrize("does", ["begin a handshake", "send no request"])
async def test_idle_connections_are_evicted_first(tmp_path: Path, does: str) -> None:
    async with running(tmp_path, connections=3) as here, asyncio.timeout(DEADLINE_S):
        used = await asyncio.open_connection("127.0.0.1", here.port, ssl=here.context())
        assert await status_line(*used) == b"HTTP/1.1 200 OK\r\n"
        context = here.context() if does == "send no request" else None
        idle = [await asyncio.open_connection("127.0.0.1", here.port, ssl=context) for _ in range(6)]
        for _, writer in idle:
            if context is None:
                writer.write(client_hello())
        try:
            for reader, _ in idle[:4]:
                with contextlib.suppress(ConnectionError):
                    await reader.read()
            # The used connection remains, and there is room for another.
            assert await status_line(*used) == b"HTTP/1.1 200 OK\r\n"
            assert await here.post(b"{}") == (200, "2 bytes")
        finally:
            for _, writer in (used, *idle):
                writer.transport.abort()


async def test_a_compressed_review_is_invalid(tmp_path: Path) -> None:
    """A compressed body is judged as it is, without decompression."""
    async with running(tmp_path) as here:
        packed = gzip.compress(b"x" * (1 << 20))
        assert await here.post(packed, **{"Content-Encoding": "gzip"}) == (200, f"{len(packed)} bytes")


async def test_a_new_certificate_serves_new_connections(tmp_path: Path) -> None:
    async with running(tmp_path) as here, here.session() as old:
        async with old.post(here.url, data=b"{}", headers=JSON) as reply:
            assert reply.status == 200
        before = await asyncio.to_thread(_shown, here)
        assert here.credentials.renew_due(NOW + LEAF_LIFE, here.credentials.bundle)
        here.server.show(here.credentials.certificate_file)
        # The open connection continues.
        async with old.post(here.url, data=b"{}", headers=JSON) as reply:
            assert reply.status == 200
        after = await asyncio.to_thread(_shown, here)
        assert before != after
        leaf = here.credentials.leaf
        assert leaf is not None
        assert after == ssl.PEM_cert_to_DER_cert(leaf.certificate_pem.decode())


async def test_a_clock_that_was_ahead_breaks_no_handshake(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path, ("127.0.0.1",))
    ahead = NOW + LEAF_LIFE
    credentials.renew_due(ahead, ())
    credentials.renew_due(ahead + LEAF_LIFE, credentials.bundle)
    async with running(tmp_path) as here:
        assert await here.post(b"{}") == (200, "2 bytes")


async def test_silent_connections_evict_only_silent_ones(tmp_path: Path) -> None:
    async with running(tmp_path, connections=3) as here, asyncio.timeout(DEADLINE_S):
        sources = ["127.0.0.1", *["127.0.0.66"] * (MAX_SILENT + 100)]
        with ExitStack() as stack:
            opened = await asyncio.to_thread(stack.enter_context, crowd(here.port, sources))
            assert await asyncio.to_thread(
                holds_within, lambda: sum(map(is_closed, opened)) >= 101, DEADLINE_S
            )
            # The first is silent too, but of another source.
            assert [is_closed(sock) for sock in (opened[0], opened[1], opened[-1])] == [False, True, False]
            assert await here.post(b"{}") == (200, "2 bytes")


async def test_reset_connections_free_their_slots(tmp_path: Path) -> None:
    """A new connection was reset while closed ones were still being dropped."""
    async with running(tmp_path, connections=3) as here, asyncio.timeout(DEADLINE_S):
        for _ in range(5):
            gone = [await asyncio.open_connection("127.0.0.1", here.port, ssl=here.context()) for _ in "abc"]
            for _, writer in gone:
                writer.write(SLOW)
            await asyncio.sleep(0.05)  # until the server reads them; a shorter time makes the test easier
            for _, writer in gone:
                writer.transport.abort()
            assert await here.post(b"{}") == (200, "2 bytes")


@pytest.mark.parametrize(
    "sent",
    [
        SLOW,
        b"\0\1\2 x\r\n\r\n",
        SLOW.replace(b"Content-Length: 100", b"Transfer-Encoding: chunked") + b"ZZ\r\n",
    ],
    ids=["reset", "no HTTP", "bad chunk"],
)
async def test_malformed_requests_are_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    """Each was logged with a traceback, as often as anyone on the network liked."""
    async with running(tmp_path) as here, asyncio.timeout(DEADLINE_S):
        _, writer = await asyncio.open_connection("127.0.0.1", here.port, ssl=here.context())
        writer.write(sent)
        await asyncio.sleep(0.05)  # until the server reads it; a shorter time makes the test easier
        writer.transport.abort()
        assert await here.post(b"{}") == (200, "2 bytes")
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_own_errors_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as here, asyncio.timeout(DEADLINE_S):
        monkeypatch.setattr(here.server, "_handle", lambda _: 1 / 0)
        assert (await here.post(b"{}"))[0] == 500
    assert any(record.exc_info and "Error handling" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("hello", [hellos.many_authorities, hellos.many_responders])
async def test_expensive_hellos_are_refused_unread(tmp_path: Path, hello: Callable[[], bytes]) -> None:
    """The server requests no client certificate. A hello of 64 KB once blocked all reviews for 2.6 s.
    (asyncio sends no alert.)"""
    async with running(tmp_path) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        with contextlib.closing(writer):
            writer.write(hellos.record(hello()))
            async with asyncio.timeout(DEADLINE_S):
                assert await reader.read() == b""
        assert await here.post(b"{}") == (200, "2 bytes")


async def test_records_after_the_handshake_are_not_inspected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That would cost a Python call for each record."""
    ended: list[ssl.SSLObject] = []

    def end(tls: ssl.SSLObject) -> None:
        ended.append(tls)
        end_inspection(tls)

    monkeypatch.setattr(connections, "end_inspection", end)
    async with running(tmp_path) as here:
        assert await here.post(b"{}") == (200, "2 bytes")
        assert [tls.cipher() is not None for tls in ended] == [True]


async def test_stalled_handshakes_lose_their_slots(tmp_path: Path) -> None:
    async with running(tmp_path) as here, asyncio.timeout(DEADLINE_S):
        sources = [f"127.0.1.{number}" for number in range(1, MAX_HANDSHAKES + 1)] * 2
        with ExitStack() as stack:
            opened = await asyncio.to_thread(stack.enter_context, crowd(here.port, sources, client_hello()))
            assert await here.post(b"{}") == (200, "2 bytes")
            # Sources without a slot so far get one now, before those that had one.
            assert await asyncio.to_thread(
                holds_within, lambda: sum(map(is_closed, opened)) >= MAX_HANDSHAKES, DEADLINE_S
            )


async def status_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Sends a review; returns the first line of the response after reading it to its end."""
    writer.write(SLOW + b" " * 99)
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(len(b"100 bytes"))
    return head[: head.index(b"\n") + 1]


def _shown(here: RunningServer) -> bytes:
    """The certificate that a client without SNI gets."""
    pem = ssl.get_server_certificate(("127.0.0.1", here.port), timeout=10)
    return ssl.PEM_cert_to_DER_cert(pem)
