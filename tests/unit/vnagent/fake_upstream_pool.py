# SPDX-License-Identifier: Apache-2.0
"""A fake of the pool of connections to the kubelet, for what reads the kubelet's pages.

Its contract, which the real pool passes too: tests/functional/vnagent/upstream/test_pool_contract.py.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import cast

from devkit.kubelet.pods import FakePod, page_for
from vnagent.core.head import parse_response_head
from vnagent.core.kubelet_facts import StreamProtocols
from vnagent.core.kubelet_request import KubeletRequests
from vnagent.upstream.page_fetch import FETCH_S, LIST_S
from vnagent.upstream.pool import ResponseHandler, UpstreamAddress, UpstreamPool

ADDRESS = UpstreamAddress("127.0.0.1", 10250, "node-1")


class FakePooledConnection:
    """Serves one request. After `abort` it calls back no more."""

    def __init__(self, exchange: ResponseHandler, request: bytes, begin_s: float) -> None:
        self.exchange = exchange
        self.request = request
        self.path = request.split(b" ")[1].decode()
        self.begin_s = begin_s
        self.is_aborted = False

    def set_deadline(self, seconds: float) -> None:
        assert seconds == LIST_S

    def abort(self) -> None:
        self.is_aborted = True

    def respond(self, status: int, body: Iterable[bytes], *, is_chunked: bool = False) -> None:
        head = b"HTTP/1.1 %d X" % status + b"\r\nTransfer-Encoding: chunked" * is_chunked
        self.exchange.on_response(parse_response_head(head))
        for piece in _chunks(body) if is_chunked else body:
            if self.is_aborted:
                return
            self.exchange.on_body(memoryview(piece))
        if not self.is_aborted:
            self.exchange.on_response_end()


def _chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    yield from (b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    yield b"0\r\n\r\n"


class FakeUpstreamPool:
    """Responds after `takes_s` with the page of `pods` at the time of the request; None: the test responds.

    `pieces` replaces the page by a chunked body.
    """

    def __init__(
        self,
        *pods: FakePod,
        takes_s: float | None = 0.0,
        pieces: Callable[[], Iterable[bytes]] | None = None,
    ) -> None:
        self.poller = SimpleNamespace(loop=asyncio.get_running_loop())
        self.address = ADDRESS
        self.requests = KubeletRequests(ADDRESS.authority)
        self.pods = pods
        self.takes_s = takes_s
        self.pieces = pieces
        self.status = 200
        self.failure: str | None = None  # instead of a response
        self.full_count = 0
        self.stream_protocols = StreamProtocols()
        self.is_cut = False
        self.error: Exception | None = None
        self.connections: list[FakePooledConnection] = []
        self._requested = asyncio.Event()

    @property
    def as_pool(self) -> UpstreamPool:
        return cast(UpstreamPool, self)

    @property
    def paths(self) -> list[str]:
        return [each.path for each in self.connections]

    @property
    def begins_s(self) -> list[float]:
        return [each.begin_s for each in self.connections]

    @property
    def abort_count(self) -> int:
        return sum(each.is_aborted for each in self.connections)

    async def next_connection(self) -> FakePooledConnection:
        """The connection of the next request."""
        await self._requested.wait()
        self._requested.clear()
        return self.connections[-1]

    def acquire(
        self, exchange: ResponseHandler, request: bytes, *, timeout_s: float | None, is_upgrade: bool
    ) -> FakePooledConnection:
        assert timeout_s in {FETCH_S, LIST_S}
        assert not is_upgrade
        loop = self.poller.loop
        connection = FakePooledConnection(exchange, request, loop.time())
        self.connections.append(connection)
        self._requested.set()
        if self.error is not None:
            raise self.error
        if self.takes_s is not None:
            loop.call_later(self.takes_s, self._respond, connection, self._page(connection.path))
        return connection

    def _page(self, path: str) -> Iterable[bytes]:
        if self.pieces is not None:
            return self.pieces()
        page = page_for(path.partition("?")[0], self.pods, self.address.server_name)
        assert page is not None
        return (page[1][: 100 if self.is_cut else None],)

    def _respond(self, connection: FakePooledConnection, page: Iterable[bytes]) -> None:
        if self.failure is not None and not connection.is_aborted:
            connection.exchange.on_failure(self.failure)
        elif not connection.is_aborted:
            connection.respond(self.status, page, is_chunked=self.pieces is not None)
