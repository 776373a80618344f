# SPDX-License-Identifier: Apache-2.0
"""The memory of a large page while it is sent to a client over real TLS."""

import contextlib
import tracemalloc
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from daemonkit.fairness.scheduler import Account, TenantScheduler
from daemonkit.tasks import Tasks
from tenancy.tenant import Role
from tests.functional.vnagent.agent_states import new_state
from tests.functional.vnagent.connection_links import SMALL, ConnectionLink, connected_link, run, until
from vnagent.core.access import Caller
from vnagent.core.limits import TenantUsage
from vnagent.core.requests import Endpoint, PageRequest
from vnagent.downstream.client_connection import ClientConnection
from vnagent.exchange.page import PageExchange
from vnagent.exchange.page_service import PageService, RenderedPage
from vnagent.request_log import RequestLog
from vnagent.state import AgentState
from vnagent.transport.poller import SocketPoller

PODS = PageRequest(Endpoint.PODS, is_head=False, only_cpu_and_memory=False)
PAGE_BYTES = 4 << 20


class FakeService:
    """Has rendered one page."""

    @contextlib.asynccontextmanager
    async def rendered(self, *_: object) -> AsyncIterator[RenderedPage]:
        yield RenderedPage(1, "application/json", b"x" * PAGE_BYTES)


class FakeClient(SimpleNamespace):
    """As much of a connection and of the state as a page needs."""

    def __init__(self, link: ConnectionLink, use: TenantUsage, request_log: RequestLog) -> None:
        super().__init__(transport=link.transport, begun_s=0.0, caller=Caller("ten-a", Role.APISERVER, "00"))
        self.exchange: PageExchange | None = None
        self.index, self.is_draining, self.request_log = None, False, request_log
        self._use = use
        link.transport.bind(use)

    def account_of(self, tenant: str) -> Account:
        return TenantScheduler().open(tenant)

    def usage_of_caller(self, _caller: Caller) -> TenantUsage:
        return self._use

    def finish(self, *, is_close: bool) -> None:
        assert not is_close
        self.exchange = None


def started(link: ConnectionLink, use: TenantUsage, request_log: RequestLog) -> FakeClient:
    client = FakeClient(link, use, request_log)
    service = cast(PageService, FakeService())
    exchange = PageExchange(
        cast(ClientConnection, client), cast(AgentState, client), PODS, service, Tasks("test")
    )
    link.handler.at_writable = exchange.on_client_writable
    exchange.start()
    return client


def is_below(use: TenantUsage, most: int) -> bool:
    return use.unsent_bytes < most


def test_an_unread_pages_memory_is_at_most_twice_its_count(tmp_path: Path) -> None:
    """All of it was kept for the last piece: 50 MiB for five clients whose unread rests counted 6 MiB."""

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=True, buffer_bytes=SMALL) as link:
            use, request_log = TenantUsage(), new_state(poller, tmp_path).request_log
            tracemalloc.start()
            try:
                before, _ = tracemalloc.get_traced_memory()
                client = started(link, use, request_log)
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


def test_an_abandoned_page_counts_nothing(tmp_path: Path) -> None:
    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=True, buffer_bytes=SMALL) as link:
            use, request_log = TenantUsage(), new_state(poller, tmp_path).request_log
            client = started(link, use, request_log)
            await until(lambda: use.unsent_bytes > PAGE_BYTES // 2)
            exchange, client.exchange = client.exchange, None
            assert exchange is not None
            exchange.cancel()
            link.transport.abort()
            assert use.unsent_bytes == 0

    run(body)
