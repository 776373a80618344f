# SPDX-License-Identifier: Apache-2.0
"""A large page on its way to a client over real TLS: how much of it is in memory."""

import contextlib
import tracemalloc
from collections.abc import AsyncIterator
from functools import partial
from types import SimpleNamespace
from typing import cast

from daemonkit.tasks import Tasks
from tenancy.tenant import Role
from tests.functional.vnagent.links import SMALL, Link, run, shaken_link, until
from vnagent.core.access import Caller
from vnagent.core.limits import Use
from vnagent.core.requests import Endpoint, Page
from vnagent.downstream.client_connection import ClientConnection
from vnagent.exchange.page_service import PageExchange, PageService, Rendered
from vnagent.transport.poller import Channels

PODS = Page(Endpoint.PODS, is_head=False, only_cpu_and_memory=False)
PAGE_BYTES = 4 << 20


class FakeService:
    """Has rendered one page."""

    @contextlib.asynccontextmanager
    async def rendered(self, *_: object) -> AsyncIterator[Rendered]:
        yield Rendered(1, "application/json", b"x" * PAGE_BYTES)


class FakeClient(SimpleNamespace):
    """As much of a connection and of an agent as a page needs."""

    def __init__(self, link: Link, use: Use) -> None:
        super().__init__(agent=self, channel=link.channel, caller=Caller("ten-a", Role.APISERVER, "00"))
        self.exchange: PageExchange | None = None
        self.index, self.is_draining, self.date, self.tasks = None, False, "", Tasks("test")
        self._use = use
        link.channel.bind(use)

    def next_request_id(self) -> str:
        return "0" * 16

    def account_of(self, _caller: Caller) -> Use:
        return self._use

    def audit(self, *_: object) -> None:
        pass

    def finish(self, *, is_close: bool) -> None:
        assert not is_close
        self.exchange = None


def started(link: Link, use: Use) -> FakeClient:
    client = FakeClient(link, use)
    exchange = PageExchange(cast(ClientConnection, client), PODS, cast(PageService, FakeService()))
    client.exchange = exchange
    link.owner.at_writable = exchange.on_client_writable
    exchange.start()
    return client


def is_below(use: Use, most: int) -> bool:
    return use.unsent_bytes < most


def test_a_page_that_is_nearly_read_has_no_more_in_memory_than_twice_what_counts() -> None:
    """All of it was kept for the last piece: 50 MiB for five clients whose unread rests counted 6 MiB."""

    async def body(channels: Channels) -> None:
        async with shaken_link(channels, is_server=True, buffer_bytes=SMALL) as link:
            use = Use()
            tracemalloc.start()
            try:
                before, _ = tracemalloc.get_traced_memory()
                client = started(link, use)
                await until(lambda: use.unsent_bytes > PAGE_BYTES // 2)

                def read() -> None:
                    link.far.pull()
                    link.far.received.clear()

                for most in (PAGE_BYTES // 2, PAGE_BYTES // 3, PAGE_BYTES // 9):
                    await until(partial(is_below, use, most), read)
                    assert use.unsent_bytes > most // 2
                    kept, _ = tracemalloc.get_traced_memory()
                    # The far end and the tracing have some KB.
                    assert kept - before < 2 * use.unsent_bytes + 200_000
                await until(lambda: client.exchange is None, read)
            finally:
                tracemalloc.stop()

    run(body)


def test_a_client_that_leaves_midway_owes_nothing() -> None:
    async def body(channels: Channels) -> None:
        async with shaken_link(channels, is_server=True, buffer_bytes=SMALL) as link:
            use = Use()
            client = started(link, use)
            await until(lambda: use.unsent_bytes > PAGE_BYTES // 2)
            exchange, client.exchange = client.exchange, None
            assert exchange is not None
            exchange.cancel()
            link.channel.abort()
            assert use.unsent_bytes == 0

    run(body)
