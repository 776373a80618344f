# SPDX-License-Identifier: Apache-2.0
"""What readers of the kubelet's pages rely on in a pool: for the real one, and for the unit tests' fake."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from daemonkit.keepalive import keep_alive
from devkit.kubelet.pods import FakePod, page_for
from devkit.kubelet.replies import Exchange, FakeReply
from devkit.kubelet.server import FakeKubelet, kubelet_context
from devkit.pki import Authority
from tests.functional.vnagent.node import NAME
from tests.functional.vnagent.transport.test_keepalive import KEEPALIVE
from tests.unit.vnagent.fake_upstream_pool import FakeUpstreamPool
from tests.unit.vnagent.upstream.fake_transports import ResponseRecorder
from tests.waiting import until
from vnagent.core.head import ResponseHead
from vnagent.transport.poller import SocketPoller
from vnagent.upstream import pool as pooling
from vnagent.upstream.page_fetch import FETCH_S, FetchError, fetch_page
from vnagent.upstream.pool import UpstreamAddress, UpstreamPool

pytestmark = pytest.mark.asyncio

POD = FakePod("ten-a-web", "shop", "s-1")
TAKES_S = 0.05
OpenPool = Callable[[Path, int], AbstractAsyncContextManager[UpstreamPool]]


@asynccontextmanager
async def real_pool(directory: Path, status: int) -> AsyncIterator[UpstreamPool]:
    """A pool that reads a kubelet on loopback."""
    authority = Authority.create("ca")
    certificate, key = authority.issue(NAME, sans_dns=[NAME], usages=("server",)).write(directory, "kubelet")
    client = ssl.create_default_context(cadata=authority.cert_pem.decode())
    authority.issue("agent", usages=("client",)).load_into(client)

    def script(exchange: Exchange) -> FakeReply:
        page = page_for(exchange.path, [POD], NAME)
        assert page is not None
        return FakeReply(status, body=page[1], delay_s=TAKES_S)

    tls = kubelet_context(str(certificate), str(key), authority.cert_pem.decode())
    kubelet = FakeKubelet(tls=tls, script=script)
    poller = SocketPoller(asyncio.get_running_loop())
    kubelet.start()
    poller.start()
    try:
        pool = UpstreamPool(poller, UpstreamAddress("127.0.0.1", kubelet.port, NAME), client)
        yield pool
        pool.close_idle()
        assert pool.open_count == 0
    finally:
        poller.stop()
        await asyncio.to_thread(kubelet.stop)


@asynccontextmanager
async def fake_pool(_: Path, status: int) -> AsyncIterator[UpstreamPool]:
    pool = FakeUpstreamPool(POD, takes_s=TAKES_S)
    pool.status = status
    yield pool.as_pool


both_pools = pytest.mark.parametrize("open_pool", [real_pool, fake_pool], ids=["real", "fake"])


@both_pools
async def test_a_page_is_read_again_and_again(open_pool: OpenPool, tmp_path: Path) -> None:
    expected = page_for("/pods", [POD], NAME)
    assert expected is not None
    async with open_pool(tmp_path, 200) as pool:
        assert [await fetch_page(pool, "/pods") for _ in range(3)] == [expected[1]] * 3


@both_pools
async def test_each_refusal_is_an_error(open_pool: OpenPool, tmp_path: Path) -> None:
    async with open_pool(tmp_path, 500) as pool:
        for _ in range(2):
            with pytest.raises(FetchError, match="kubelet-failed"):
                await fetch_page(pool, "/pods")


@both_pools
async def test_callbacks_come_in_order_and_after_acquire(open_pool: OpenPool, tmp_path: Path) -> None:
    recorder = ResponseRecorder()
    async with open_pool(tmp_path, 200) as pool:
        request = pool.requests.page("/pods")
        pool.acquire(recorder, request, timeout_s=FETCH_S, is_upgrade=False)
        assert recorder.events == []
        await until(lambda: recorder.events == ["200", "end"])
        assert recorder.body.startswith(b'{"')


@both_pools
async def test_an_aborted_request_gets_no_call(open_pool: OpenPool, tmp_path: Path) -> None:
    aborted, later = ResponseRecorder(), ResponseRecorder()
    async with open_pool(tmp_path, 200) as pool:
        request = pool.requests.page("/pods")
        pool.acquire(aborted, request, timeout_s=FETCH_S, is_upgrade=False).abort()
        pool.acquire(later, request, timeout_s=FETCH_S, is_upgrade=False)
        await until(lambda: later.events[-1:] == ["end"])
        assert aborted.events == []


class AbortingRecorder(ResponseRecorder):
    """Aborts its request as soon as it has the head."""

    def __init__(self, pool: UpstreamPool) -> None:
        super().__init__()
        request = pool.requests.page("/pods")
        self.connection = pool.acquire(self, request, timeout_s=FETCH_S, is_upgrade=False)

    def on_response(self, head: ResponseHead) -> None:
        super().on_response(head)
        self.connection.abort()


@both_pools
async def test_an_abort_from_a_callback_is_the_last_one(open_pool: OpenPool, tmp_path: Path) -> None:
    async with open_pool(tmp_path, 200) as pool:
        recorder = AbortingRecorder(pool)
        await until(lambda: recorder.events)
        await fetch_page(pool, "/pods")
        assert (recorder.events, recorder.body) == (["200"], b"")


async def test_an_address_without_a_server_is_passed_over(tmp_path: Path) -> None:
    """Of loopback's, one alone has the kubelet. The next dial goes there at once."""
    async with real_pool(tmp_path, 200) as pool:
        for hosts in (("::1", "127.0.0.9"), ("::1", "127.0.0.9", "127.0.0.1")):
            pool.move(replace(pool.address, host=hosts[0], others=hosts[1:]))
        first = await fetch_page(pool, "/pods")
        pool.close_idle()
        assert await fetch_page(pool, "/pods") == first
        assert pool.full_count + pool.resumed_count == 2


async def test_dialled_sockets_ask_for_their_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[dict[tuple[int, int], int]] = []

    def recorded(sock: socket.socket) -> None:
        keep_alive(sock)
        found.append({option: sock.getsockopt(*option) for option in KEEPALIVE})

    monkeypatch.setattr(pooling, "keep_alive", recorded)
    async with real_pool(tmp_path, 200) as pool:
        await fetch_page(pool, "/pods")
    assert found == [KEEPALIVE]
