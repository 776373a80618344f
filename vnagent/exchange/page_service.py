# SPDX-License-Identifier: Apache-2.0
"""The kubelet's pages, read once for all tenants and rebuilt for each.

Tenants share the parsed page, never a rendered one. An answer is rendered from the index after its request
came. Requests of one tenant that wait together share one render.

Pages are bounded three times: a tenant's are rendered one after the other (`_TenantQueue`), their bytes
have a rate, and all bytes of a page count as unread until the client has read them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from daemonkit import logs
from daemonkit.tasks import Tasks
from daemonkit.token_bucket import TokenBucket
from tenancy.ownership import OwnerIndex
from vnagent.core.kubelet_request import page_path
from vnagent.core.requests import Endpoint, PageRequest
from vnagent.pages import page as pages
from vnagent.pages.metrics import CADVISOR, PROBES, RESOURCE
from vnagent.pages.page import PageError
from vnagent.pages.pods import PODS
from vnagent.pages.runningpods import RUNNING_PODS
from vnagent.pages.stats import SUMMARY, SUMMARY_ONLY_CPU_AND_MEMORY
from vnagent.upstream.kubelet import KubeletPool
from vnagent.upstream.page_fetch import INLINE_BYTES, FetchError, SplitList, fetch_list, fetch_page

# Threads that parse and render. They share the interpreter with the loop, so more would not be faster.
# With two, a neighbour's page does not wait for a tenant's large one.
RENDERERS = 2
# The rate of one tenant's pages. The page of a tenant with 250 pods is some 5 MB; metrics-server and
# two others that scrape it every 15 s read 1 MB/s. At 8 MiB/s rendering takes a quarter of a core.
PAGE_BYTES_PER_S = 8 << 20
PAGE_BURST_BYTES = 64 << 20
# A small page costs as much as one of this size.
MIN_PAGE_BYTES = 16 << 10
# How long a page waits for the tenant's others before it is refused. metrics-server gives up after 10 s.
WAIT_S = 5.0

_log = logs.get(__name__)

PAGE_KINDS: dict[Endpoint, pages.PageKind[Any]] = {
    Endpoint.PODS: PODS,
    Endpoint.RUNNING_PODS: RUNNING_PODS,
    Endpoint.STATS_SUMMARY: SUMMARY,
    Endpoint.METRICS_RESOURCE: RESOURCE,
    Endpoint.METRICS_CADVISOR: CADVISOR,
    Endpoint.METRICS_PROBES: PROBES,
}


def _page_of(request: PageRequest) -> pages.PageKind[Any]:
    return SUMMARY_ONLY_CPU_AND_MEMORY if request.only_cpu_and_memory else PAGE_KINDS[request.endpoint]


@dataclass(slots=True)
class _Shared:
    """One read of a page: begun at `begun_s`, done when `task` is."""

    begun_s: float
    task: "asyncio.Task[_PageOutcome]"


# The page as it was parsed, with its size in bytes, or why there is none.
_PageOutcome = tuple[Any, int] | FetchError | PageError


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """A page rebuilt for one tenant. `number` counts the tenant's renders."""

    number: int
    content_type: str
    body: bytes


@dataclass(slots=True)
class _TenantQueue:
    """One tenant's pages, one after the other. `users` counts those that render or wait."""

    budget: TokenBucket
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    render_count: int = 0
    rendered: dict[str, RenderedPage] = field(default_factory=dict)
    running: "asyncio.Future[bytes] | None" = None

    def leave(self) -> None:
        """Let the next one in, as soon as no thread renders for the tenant any more."""
        running, self.running = self.running, None
        if running is None or running.done():
            self.lock.release()
        else:
            running.add_done_callback(self._release)

    def _release(self, done: "asyncio.Future[bytes]") -> None:
        if not done.cancelled():
            done.exception()  # retrieved, as its request has left
        self.lock.release()


class PageQueueTimeoutError(Exception):
    """The tenant's other pages took longer than WAIT_S."""


class PageService:
    """Reads and renders pages. With `max_age_s` 0 each answer has a read of its own."""

    def __init__(self, kubelet: KubeletPool, max_age_s: float, tasks: Tasks) -> None:
        self._kubelet = kubelet
        self._max_age_s = max_age_s
        self._tasks = tasks
        self._shared: dict[str, _Shared] = {}
        self._queues: dict[str, _TenantQueue] = {}
        self._pool = ThreadPoolExecutor(RENDERERS, "page")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    @contextlib.asynccontextmanager
    async def rendered(
        self, page: PageRequest, index: Callable[[], OwnerIndex], tenant: str
    ) -> AsyncIterator[RenderedPage]:
        """Render the page for `tenant`; the tenant's next page waits until the context is left.

        Raises FetchError, PageError or PageQueueTimeoutError.
        """
        queue = self._queue_of(tenant)
        came_at = queue.render_count
        queue.users += 1
        try:
            kind = _page_of(page)
            # A shared read comes before the queue, so that a hanging kubelet does not time out the tenant's
            # other pages.
            read = await self._parsed(page, kind) if self._max_age_s else None
            try:
                async with asyncio.timeout(WAIT_S):
                    await self._enter(queue)
            except TimeoutError:
                raise PageQueueTimeoutError from None
            try:
                found = queue.rendered.get(page_path(page)) if self._max_age_s else None
                if found is None or found.number <= came_at:
                    parsed, size = read or await self._parsed(page, kind)
                    queue.render_count += 1
                    number = queue.render_count
                    body = await self._render(queue, size, kind.render, parsed, index(), tenant)
                    found = queue.rendered[page_path(page)] = RenderedPage(number, kind.content_type, body)
                queue.budget.debit(max(MIN_PAGE_BYTES, len(found.body)))
                yield found
            finally:
                queue.leave()
        finally:
            queue.users -= 1
            if not queue.users:
                queue.rendered.clear()

    def _queue_of(self, tenant: str) -> _TenantQueue:
        queue = self._queues.get(tenant)
        if queue is None:
            now_s = self._now_s()
            for key in [key for key, each in self._queues.items() if _is_idle(each, now_s)]:
                del self._queues[key]
            budget = TokenBucket(PAGE_BURST_BYTES, PAGE_BYTES_PER_S, PAGE_BURST_BYTES, now_s)
            queue = self._queues[tenant] = _TenantQueue(budget)
        return queue

    def _now_s(self) -> float:
        return self._kubelet.poller.loop.time()

    async def _enter(self, queue: _TenantQueue) -> None:
        """Take the queue's lock, and wait until the tenant's pages are within their rate."""
        await queue.lock.acquire()
        try:
            # Only the holder of the lock spends.
            await asyncio.sleep(queue.budget.wait_s(self._now_s()))
        except asyncio.CancelledError:
            queue.lock.release()
            raise

    async def _render(
        self, queue: _TenantQueue, size: int, render: Callable[..., bytes], *values: object
    ) -> bytes:
        if size <= INLINE_BYTES:
            return render(*values)
        # A thread cannot be stopped: it keeps the queue until it ends, also if the client leaves.
        queue.running = self._kubelet.poller.loop.run_in_executor(self._pool, render, *values)
        return await asyncio.shield(queue.running)

    async def _in_thread(self, call: Callable[..., Any], *values: Any) -> Any:
        return await self._kubelet.poller.loop.run_in_executor(self._pool, call, *values)

    async def _parsed(self, page: PageRequest, kind: pages.PageKind[Any]) -> tuple[Any, int]:
        path = page_path(page)
        if not self._max_age_s:
            return await self._read(path, kind)
        now = self._kubelet.poller.loop.time()
        shared = self._shared.get(path)
        if shared is None or now - shared.begun_s >= self._max_age_s or _has_failed(shared.task):
            task = self._tasks.spawn(self._try_to_read(path, kind), f"page {path}")
            shared = self._shared[path] = _Shared(now, task)
        outcome = await asyncio.shield(shared.task)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _try_to_read(self, path: str, kind: pages.PageKind[Any]) -> "_PageOutcome":
        """Read in a task. A failure of the kubelet is returned to all requests that wait for it."""
        try:
            return await self._read(path, kind)
        except (FetchError, PageError) as error:
            return error
        # Requests share this task. The error is logged once and returned to all.
        except Exception as error:  # noqa: BLE001 - each request would raise it, with one trace that grows
            log_unexpected(path, error)
            return PageError("could not be read")

    async def _read(self, path: str, kind: pages.PageKind[Any]) -> tuple[Any, int]:
        if kind.collector is None:
            raw = await fetch_page(self._kubelet, path)
        else:
            listed = await fetch_list(self._kubelet, path, kind.collector())
            if isinstance(listed, SplitList):
                return listed.value, listed.size
            raw = listed.page
        if len(raw) > INLINE_BYTES:
            return await self._in_thread(kind.parse, raw), len(raw)
        return kind.parse(raw), len(raw)


def log_unexpected(path: str, error: Exception) -> None:
    _log.error("page could not be served", page=path, error=error, traceback=logs.trace(error))


def _has_failed(task: "asyncio.Task[_PageOutcome]") -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or isinstance(task.result(), Exception)


def _is_idle(queue: _TenantQueue, now_s: float) -> bool:
    return not queue.users and queue.budget.is_full(now_s)
