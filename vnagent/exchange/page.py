# SPDX-License-Identifier: Apache-2.0
"""A tenant's request for one of the kubelet's pages."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from daemonkit.tasks import Tasks
from tenancy.ownership import OwnerIndex
from vnagent.core import replies
from vnagent.core.audit import OWN_VIEW
from vnagent.core.kubelet_request import page_path
from vnagent.core.limits import LimitReason, TenantUsage, can_hold, whole_seconds
from vnagent.core.requests import PageRequest
from vnagent.exchange.page_service import PageQueueTimeoutError, RenderedPage, log_unexpected
from vnagent.exchange.port import ClientPort
from vnagent.pages.page import PageError
from vnagent.state import AgentState
from vnagent.transport.tls_connection import rest_of
from vnagent.upstream.page_fetch import FetchError

# Encrypted in one iteration of the loop: 0.1 ms.
PIECE_BYTES = 128 * 1024


class RenderedPages(Protocol):
    """The port of the service that reads and renders pages: `PageService`, in this process or another."""

    def rendered(
        self, page: PageRequest, index: Callable[[], OwnerIndex], tenant: str
    ) -> AbstractAsyncContextManager[RenderedPage]:
        """The page for `tenant`; the tenant's next page waits until the context is left.

        Raises FetchError, PageError or PageQueueTimeoutError.
        """


class PageExchange:
    """Sends one page, piece by piece. Its bytes count as the tenant's until the client has read them."""

    is_bounded = True

    def __init__(
        self, client: ClientPort, state: AgentState, page: PageRequest, service: RenderedPages, tasks: Tasks
    ) -> None:
        self._client = client
        self._state = state
        self._page = page
        self._service = service
        self._tasks = tasks
        self._request_id = state.request_log.next_request_id()
        self._task: asyncio.Task[None] | None = None
        # Not written yet; it counts as unread by the tenant.
        self._rest = memoryview(b"")
        self._is_sent = False

    def start(self) -> None:
        client = self._client
        client.exchange = self
        account = self._state.account_of(client.caller.tenant or "")
        self._task = self._tasks.spawn(account.run(self._run()), "page")

    async def _run(self) -> None:
        client, state = self._client, self._state
        tenant = client.caller.tenant or ""
        try:
            async with self._service.rendered(self._page, lambda: state.index, tenant) as page:
                await self._answer(page)
        except FetchError as error:
            self._fail(replies.failure_status(error.reason), error.reason)
        except PageError:
            self._fail(502, "page-malformed")
        except PageQueueTimeoutError as error:
            self._fail(429, LimitReason.PAGES, whole_seconds(error.wait_s))
        # The client's connection serves no other request before this one is answered.
        except Exception as error:  # noqa: BLE001 - this task alone answers the client
            log_unexpected(page_path(self._page), error)
            if self._is_sent:
                client.abort()  # or the client would wait for the rest of the page
            else:
                self._fail(502, "page-malformed")

    async def _answer(self, page: RenderedPage) -> None:
        client, log = self._client, self._state.request_log
        if client.exchange is not self:
            return
        body, coding = page.body, ""
        if self._page.accepts_gzip and page.compressed is not None:
            body, coding = page.compressed, replies.GZIP
        if not can_hold(self._usage, len(body)):
            self._fail(429, LimitReason.UNREAD)
            return
        log.record(client.caller, self._page, OWN_VIEW, 200, self._request_id, client.begun_s)
        self._is_sent = True
        reply = replies.whole_reply(
            200,
            page.content_type,
            body if len(body) <= PIECE_BYTES else b"",
            self._request_id,
            is_close=self._state.is_draining,
            is_head=self._page.is_head,
            length=len(body),
            date=log.date,
            extra=replies.VARIES + coding,
        )
        if len(body) <= PIECE_BYTES or self._page.is_head:
            client.answer(reply, is_close=False)
            return
        client.transport.write(reply)
        self._rest = memoryview(body)
        self._usage.unsent_bytes += len(body)
        is_wanted = True
        while is_wanted:
            is_wanted = self._send_piece()
            await asyncio.sleep(0)

    @property
    def _usage(self) -> TenantUsage:
        return self._state.usage_of_caller(self._client.caller)

    def _send_piece(self) -> bool:
        """Send one piece; return whether the client takes more now."""
        client, transport = self._client, self._client.transport
        if client.exchange is not self or not self._rest:
            return False
        piece, self._rest = self._rest[:PIECE_BYTES], rest_of(self._rest, PIECE_BYTES)
        self._usage.unsent_bytes -= len(piece)
        transport.write(piece)
        transport.flush()
        if not self._rest:
            client.finish(is_close=False)
            return False
        return not transport.await_if_congested()

    def _fail(self, status: int, reason: str, retry_after_s: int | None = None) -> None:
        if self._client.exchange is self and not self._is_sent:
            self._client.refuse(
                self._page, self._request_id, status, reason, is_close=False, retry_after_s=retry_after_s
            )

    def on_client_writable(self) -> None:
        """Send one piece whenever the tenant's group is served, as long as the client takes more."""
        if self._send_piece():
            self._client.transport.call_soon(self.on_client_writable)

    def cancel(self) -> None:
        self._usage.unsent_bytes -= len(self._rest)
        self._rest = memoryview(b"")
        if self._task is not None:
            self._task.cancel()
        if not self._is_sent:
            client, log = self._client, self._state.request_log
            log.record(client.caller, self._page, "client-left", 499, self._request_id, client.begun_s)
