# SPDX-License-Identifier: Apache-2.0
"""The kubelet's pages, read once for all tenants and rebuilt for each.

Tenants share the parsed page, never a rendered one. An answer is rendered from the index after its request
came. Requests of one tenant that wait together share one render.

Pages are bounded four times: a tenant's are rendered one after the other (`_TenantQueue`), their bytes
have a rate, all bytes of a page count as unread until the client has read them, and parsing takes a bounded
part of the time (`READ_PART`).
"""

import asyncio
import contextlib
import time
import zlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from daemonkit import logs
from daemonkit.tasks import Tasks
from daemonkit.token_bucket import TokenBucket
from tenancy.ownership import OwnerIndex
from vnagent.core.kubelet_request import page_path
from vnagent.core.requests import PageRequest
from vnagent.exchange.node_totals import NodeTotals
from vnagent.pages import page as pages
from vnagent.pages.page import PageError, View
from vnagent.upstream.page_fetch import INLINE_BYTES, FetchError, SplitList, fetch_list, fetch_page
from vnagent.upstream.pool import UpstreamPool

# Threads that parse and render. They share the interpreter with the loop, so more would not be faster.
# With two, a neighbour's page does not wait for a tenant's large one.
RENDERERS = 2
# The rate of one tenant's pages. The page of a tenant with 250 pods is some 5 MB; metrics-server and
# two others that scrape it every 15 s read 1 MB/s. At 8 MiB/s rendering takes a quarter of a core.
PAGE_BYTES_PER_S = 8 << 20
PAGE_BURST_BYTES = 64 << 20
# A small page counts as one of this size: with its request it takes 0.3 to 0.6 ms. So a loop of small pages
# gets 128 a second, 4 to 8 % of a core.
MIN_PAGE_BYTES = 64 << 10
# Parsing takes this part of a core at most, for each page: a read is shared for as much longer, up to
# MAX_READ_AGE_S. The cadvisor page of 250 pods takes 0.3 s; its figures are 10 s old anyway.
READ_PART = 0.05
MAX_READ_AGE_S = 10.0
# Smaller pages are not worth compressing. Level 1 takes 0.1 ms for 100 KB, to a tenth or less.
MIN_COMPRESSED_BYTES = 1024
GZIP_LEVEL, GZIP_FORMAT = 1, 31
# How long a page waits for the tenant's others before it is refused. metrics-server gives up after 10 s.
WAIT_S = 5.0

_log = logs.get(__name__)


def _page_of(request: PageRequest) -> pages.PageKind[Any]:
    # A node whose tenants read no page does not load them.
    from vnagent.pages.kinds import kind_of

    return kind_of(request)


@dataclass(frozen=True, slots=True)
class _Read:
    """A page as it was parsed, its size in bytes, and the processor seconds that parsing took."""

    parsed: Any
    size: int
    parse_s: float = 0.0


_PageOutcome = _Read | FetchError | PageError


@dataclass(slots=True)
class _Shared:
    """One read of a page: begun at `begun_s`, done when `task` is."""

    begun_s: float
    task: "asyncio.Task[_PageOutcome]"

    def is_current(self, now_s: float, max_age_s: float) -> bool:
        """Whether it may answer a request of now. One that goes on may; one that has failed may not.

        One that goes on may for longer: a slow kubelet would else be asked for the page again and again.
        """
        if not self.task.done():
            return now_s - self.begun_s < max(max_age_s, MAX_READ_AGE_S)
        if self.task.cancelled() or self.task.exception() is not None:
            return False
        outcome = self.task.result()
        if isinstance(outcome, Exception):
            return False
        return now_s - self.begun_s < max(max_age_s, min(MAX_READ_AGE_S, outcome.parse_s / READ_PART))


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """A page rebuilt for one tenant, and the same with gzip, if one of its clients takes that. `number`
    counts the tenant's renders."""

    number: int
    content_type: str
    body: bytes
    compressed: bytes | None = None


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
    """The tenant's other pages took longer than WAIT_S. `wait_s`: until they are within their rate."""

    def __init__(self, wait_s: float) -> None:
        super().__init__()
        self.wait_s = wait_s


class PageService:
    """Reads and renders pages. With `max_age_s` 0 each answer has a read of its own. `has_node_figures`:
    vNodes have the node's own figures."""

    def __init__(
        self,
        upstream: UpstreamPool,
        max_age_s: float,
        tasks: Tasks,
        totals: NodeTotals,
        *,
        has_node_figures: bool = False,
    ) -> None:
        self._upstream = upstream
        self._max_age_s = max_age_s
        self._tasks = tasks
        self._totals = totals
        self._has_node_figures = has_node_figures
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

        A page that is large enough is compressed, too, if the request takes that. Raises FetchError,
        PageError or PageQueueTimeoutError.
        """
        queue = self._queue_of(tenant)
        came_at = queue.render_count
        queue.users += 1
        try:
            kind = _page_of(page)
            # A shared read comes before the queue, so that a hanging kubelet does not time out the tenant's
            # other pages.
            read = await self._shared_read(page, kind, index) if self._max_age_s else None
            try:
                async with asyncio.timeout(WAIT_S):
                    await self._enter(queue)
            except TimeoutError:
                raise PageQueueTimeoutError(queue.budget.wait_s(self._now_s())) from None
            try:
                found = queue.rendered.get(page_path(page)) if self._max_age_s else None
                if found is None or found.number <= came_at:
                    read = read or await self._read(page, kind, index)
                    queue.render_count += 1
                    number = queue.render_count
                    total = self._totals.total(page.endpoint, tenant)
                    view = View(index(), tenant, total, self._has_node_figures)
                    body = await self._run(queue, read.size, kind.render, read.parsed, view)
                    found = queue.rendered[page_path(page)] = RenderedPage(number, kind.content_type, body)
                if page.accepts_gzip and not found.compressed and len(found.body) >= MIN_COMPRESSED_BYTES:
                    compressed = await self._run(queue, len(found.body), _compress, found.body)
                    found = queue.rendered[page_path(page)] = replace(found, compressed=compressed)
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
        return self._upstream.poller.loop.time()

    async def _enter(self, queue: _TenantQueue) -> None:
        """Take the queue's lock, and wait until the tenant's pages are within their rate."""
        await queue.lock.acquire()
        try:
            # Only the holder of the lock spends.
            await asyncio.sleep(queue.budget.wait_s(self._now_s()))
        except asyncio.CancelledError:
            queue.lock.release()
            raise

    async def _run(
        self, queue: _TenantQueue, size: int, call: Callable[..., bytes], *values: object
    ) -> bytes:
        """Call it for a page of `size` bytes: of a large one in a thread."""
        if size <= INLINE_BYTES:
            return call(*values)
        # A thread cannot be stopped: it keeps the queue until it ends, also if the client leaves.
        queue.running = self._upstream.poller.loop.run_in_executor(self._pool, call, *values)
        return await asyncio.shield(queue.running)

    async def _in_thread(self, call: Callable[..., Any], *values: Any) -> Any:
        return await self._upstream.poller.loop.run_in_executor(self._pool, call, *values)

    async def _shared_read(
        self, page: PageRequest, kind: pages.PageKind[Any], index: Callable[[], OwnerIndex]
    ) -> _Read:
        path, now_s = page_path(page), self._now_s()
        shared = self._shared.get(path)
        if shared is None or not shared.is_current(now_s, self._max_age_s):
            task = self._tasks.spawn(self._try_to_read(page, kind, index), f"page {path}")
            shared = self._shared[path] = _Shared(now_s, task)
        outcome = await asyncio.shield(shared.task)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _try_to_read(
        self, page: PageRequest, kind: pages.PageKind[Any], index: Callable[[], OwnerIndex]
    ) -> "_PageOutcome":
        """Read in a task. A failure of the kubelet is returned to all requests that wait for it."""
        try:
            return await self._read(page, kind, index)
        except (FetchError, PageError) as error:
            return error
        # Requests share this task. The error is logged once and returned to all.
        except Exception as error:  # noqa: BLE001 - each request would raise it, with one trace that grows
            log_unexpected(page_path(page), error)
            return PageError("could not be read")

    async def _read(
        self, page: PageRequest, kind: pages.PageKind[Any], index: Callable[[], OwnerIndex]
    ) -> _Read:
        read = await self._fetch(page_path(page), kind)
        if kind.read_cpu is not None:
            self._totals.take(page.endpoint, kind.read_cpu(read.parsed), index())
        return read

    async def _fetch(self, path: str, kind: pages.PageKind[Any]) -> _Read:
        if kind.collector is None:
            raw = await fetch_page(self._upstream, path)
        else:
            listed = await fetch_list(self._upstream, path, kind.collector())
            if isinstance(listed, SplitList):
                return _Read(listed.value, listed.size)
            raw = listed.page
        if len(raw) > INLINE_BYTES:
            return await self._upstream.poller.loop.run_in_executor(self._pool, _parse, kind, raw)
        return _parse(kind, raw)


def _parse(kind: pages.PageKind[Any], raw: bytes) -> _Read:
    begun_s = time.thread_time()
    parsed = kind.parse(raw)
    return _Read(parsed, len(raw), time.thread_time() - begun_s)


def _compress(body: bytes) -> bytes:
    compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_FORMAT)
    return compressor.compress(body) + compressor.flush()


def log_unexpected(path: str, error: Exception) -> None:
    _log.error("page could not be served", page=path, error=error, traceback=logs.trace(error))


def _is_idle(queue: _TenantQueue, now_s: float) -> bool:
    return not queue.users and queue.budget.is_full(now_s)
