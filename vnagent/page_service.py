# SPDX-License-Identifier: Apache-2.0
"""The kubelet's pages, read once for all tenants and rebuilt for each.

What is shared is the kubelet's page as it was parsed, never a rendered one: each answer is made from
the index and the asking tenant at the time of asking.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from daemonkit import logs
from daemonkit.tasks import Tasks
from tenancy.ownership import OwnerIndex
from vnagent.core import replies
from vnagent.core.audit import OWN_VIEW
from vnagent.core.kubelet_request import page_path
from vnagent.core.requests import Endpoint, Page
from vnagent.fetch import FetchError, fetch
from vnagent.kubelet import KubeletPool
from vnagent.pages import page as pages
from vnagent.pages.metrics import CADVISOR, PROBES, RESOURCE
from vnagent.pages.page import PageError
from vnagent.pages.pods import PODS
from vnagent.pages.runningpods import RUNNING_PODS
from vnagent.pages.stats import SUMMARY, SUMMARY_ONLY_CPU_AND_MEMORY

if TYPE_CHECKING:
    from vnagent.client import ClientConnection

# Above this size a page is parsed and rendered in a thread, so that streams keep flowing meanwhile.
INLINE_BYTES = 128 * 1024

_log = logs.get(__name__)

_PAGES: dict[Endpoint, pages.Page[Any]] = {
    Endpoint.PODS: PODS,
    Endpoint.RUNNING_PODS: RUNNING_PODS,
    Endpoint.STATS_SUMMARY: SUMMARY,
    Endpoint.METRICS_RESOURCE: RESOURCE,
    Endpoint.METRICS_CADVISOR: CADVISOR,
    Endpoint.METRICS_PROBES: PROBES,
}


def _page_of(request: Page) -> pages.Page[Any]:
    return SUMMARY_ONLY_CPU_AND_MEMORY if request.only_cpu_and_memory else _PAGES[request.endpoint]


@dataclass(slots=True)
class _Shared:
    """One read of a page: begun at `begun_s`, done when `task` is."""

    begun_s: float
    task: "asyncio.Task[_Outcome]"


# The page as it was parsed, with its size in bytes, or why there is none.
_Outcome = tuple[Any, int] | FetchError | PageError


class PageService:
    """Reads pages from the kubelet; with `max_age_s` 0 each answer has a read of its own."""

    def __init__(self, kubelet: KubeletPool, max_age_s: float, tasks: Tasks) -> None:
        self._kubelet = kubelet
        self._max_age_s = max_age_s
        self._tasks = tasks
        self._shared: dict[str, _Shared] = {}

    async def render(self, page: Page, index: Callable[[], OwnerIndex], tenant: str) -> tuple[str, bytes]:
        """The page as `tenant` may see it, with its content type. Raises FetchError or PageError."""
        kind = _page_of(page)
        parsed, size = await self._parsed(page, kind)
        if size > INLINE_BYTES:
            body = await asyncio.to_thread(kind.render, parsed, index(), tenant)
        else:
            body = kind.render(parsed, index(), tenant)
        return kind.content_type, body

    async def _parsed(self, page: Page, kind: pages.Page[Any]) -> tuple[Any, int]:
        path = page_path(page)
        if not self._max_age_s:
            return await self._read(path, kind)
        now = self._kubelet.channels.loop.time()
        shared = self._shared.get(path)
        if shared is None or now - shared.begun_s >= self._max_age_s or _has_failed(shared.task):
            task = self._tasks.spawn(self._try_to_read(path, kind), f"page {path}")
            shared = self._shared[path] = _Shared(now, task)
        outcome = await asyncio.shield(shared.task)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _try_to_read(self, path: str, kind: pages.Page[Any]) -> "_Outcome":
        """For a task: a kubelet that fails is told to those who wait, and is no failure of ours."""
        try:
            return await self._read(path, kind)
        except (FetchError, PageError) as error:
            return error
        # Several requests share this read. What a task raises would come out of it in each of them, with
        # one trace that grows; and of a task that nobody waits for any more, in none.
        except Exception as error:  # noqa: BLE001 - told with its trace once, and to all who wait
            _say_unexpected(path, error)
            return PageError("could not be read")

    async def _read(self, path: str, kind: pages.Page[Any]) -> tuple[Any, int]:
        raw = await fetch(self._kubelet, path)
        if len(raw) > INLINE_BYTES:
            return await asyncio.to_thread(kind.parse, raw), len(raw)
        return kind.parse(raw), len(raw)


def _say_unexpected(path: str, error: Exception) -> None:
    _log.error("page cannot be served", page=path, error=error, traceback=logs.trace(error))


def _has_failed(task: "asyncio.Task[_Outcome]") -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or isinstance(task.result(), Exception)


class PageExchange:
    """One tenant's request for a page."""

    is_bounded = True

    def __init__(self, client: "ClientConnection", page: Page, service: PageService) -> None:
        self._client = client
        self._page = page
        self._service = service
        self._request_id = client.agent.next_request_id()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._client.agent.tasks.spawn(self._run(), "page")

    async def _run(self) -> None:
        client, agent = self._client, self._client.agent
        tenant = client.caller.tenant or ""
        try:
            kind, body = await self._service.render(self._page, lambda: agent.index, tenant)
        except FetchError as error:
            self._fail(504 if error.reason == "kubelet-timeout" else 502, error.reason)
            return
        except PageError:
            self._fail(502, "page-malformed")
            return
        # This task is all that answers the client: without an answer it would wait until it gives up,
        # and its connection would take no other request.
        except Exception as error:  # noqa: BLE001 - told with its trace, and answered with 502
            _say_unexpected(page_path(self._page), error)
            self._fail(502, "page-malformed")
            return
        if client.exchange is not self:
            return
        agent.audit(client.caller, self._page, OWN_VIEW, 200, self._request_id)
        client.answer(
            replies.page(
                200,
                kind,
                body,
                self._request_id,
                is_close=agent.is_draining,
                is_head=self._page.is_head,
                date=agent.date,
            ),
            is_close=False,
        )

    def _fail(self, status: int, reason: str) -> None:
        if self._client.exchange is self:
            self._client.refuse(self._page, self._request_id, status, reason, is_close=False)

    def on_client_writable(self) -> None:
        """A page is written whole; the channel keeps what the client has not taken."""

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        agent = self._client.agent
        agent.audit(self._client.caller, self._page, "client-left", 499, self._request_id)
