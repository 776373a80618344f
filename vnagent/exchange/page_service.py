# SPDX-License-Identifier: Apache-2.0
"""The kubelet's pages, read once for all tenants and rebuilt for each.

What tenants share is the kubelet's page as it was parsed, never a rendered one: each answer is made from
the index and the asking tenant at the time of asking, or later. Requests of one tenant that wait
together share what was rendered after they came.

Pages are bounded three times. A tenant's are answered one after the other (`_Lane`), so that one render
of its is under way at most; their bytes have a rate; and a page counts as unread by the tenant from
before its first byte is sent until the client has taken the last.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from daemonkit import logs
from daemonkit.tasks import Tasks
from daemonkit.token_bucket import TokenBucket
from tenancy.ownership import OwnerIndex
from vnagent.core import replies
from vnagent.core.audit import OWN_VIEW
from vnagent.core.kubelet_request import page_path
from vnagent.core.limits import Use, can_hold
from vnagent.core.requests import Endpoint, Page
from vnagent.pages import page as pages
from vnagent.pages.metrics import CADVISOR, PROBES, RESOURCE
from vnagent.pages.page import PageError
from vnagent.pages.pods import PODS
from vnagent.pages.runningpods import RUNNING_PODS
from vnagent.pages.stats import SUMMARY, SUMMARY_ONLY_CPU_AND_MEMORY
from vnagent.transport.tls_connection import rest_of
from vnagent.upstream.kubelet import KubeletPool
from vnagent.upstream.page_fetch import FetchError, Split, fetch, fetch_list

if TYPE_CHECKING:
    from vnagent.downstream.client_connection import ClientConnection

# Above this size a page is parsed and rendered in a thread, so that streams keep flowing meanwhile.
INLINE_BYTES = 128 * 1024
# Threads that parse and render. They share the interpreter with the loop: more would not be faster, and
# with two a neighbour's page need not wait for a tenant's that is large.
RENDERERS = 2
# What one tenant's pages may come to. The page of a tenant with 250 pods is some 5 MB; metrics-server and
# two others that scrape it every 15 s ask for 1 MB/s. At 8 MiB/s rendering takes a quarter of a core.
PAGE_BYTES_PER_S = 8 << 20
PAGE_BURST_BYTES = 64 << 20
# The least that a page counts for: what each costs, however small it is.
MIN_PAGE_BYTES = 16 << 10
# How long a page waits for the tenant's others before it is refused. metrics-server gives up after 10 s.
WAIT_S = 5.0
# What is encrypted in one turn of the loop: 0.1 ms.
PIECE_BYTES = 128 * 1024

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


@dataclass(frozen=True, slots=True)
class Rendered:
    """A page as one tenant may see it. `number` counts the tenant's renders."""

    number: int
    content_type: str
    body: bytes


@dataclass(slots=True)
class _Lane:
    """One tenant's pages, one after the other. `users` are those that are in it or wait."""

    budget: TokenBucket
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    render_count: int = 0
    rendered: dict[str, Rendered] = field(default_factory=dict)
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
            done.exception()  # nobody waits for it any more
        self.lock.release()


class LaneFullError(Exception):
    """The tenant's other pages take too long."""


class PageService:
    """Reads pages from the kubelet; with `max_age_s` 0 each answer has a read of its own."""

    def __init__(self, kubelet: KubeletPool, max_age_s: float, tasks: Tasks) -> None:
        self._kubelet = kubelet
        self._max_age_s = max_age_s
        self._tasks = tasks
        self._shared: dict[str, _Shared] = {}
        self._lanes: dict[str, _Lane] = {}
        self._pool = ThreadPoolExecutor(RENDERERS, "page")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    @contextlib.asynccontextmanager
    async def rendered(
        self, page: Page, index: Callable[[], OwnerIndex], tenant: str
    ) -> AsyncIterator[Rendered]:
        """The page as `tenant` may see it; the tenant's next page waits until the context is left.

        Raises FetchError, PageError or LaneFullError.
        """
        lane = self._lane(tenant)
        came_at = lane.render_count
        lane.users += 1
        try:
            kind = _page_of(page)
            # A shared read comes before the lane: a kubelet that hangs is no reason to refuse the tenant's
            # other pages.
            read = await self._parsed(page, kind) if self._max_age_s else None
            try:
                async with asyncio.timeout(WAIT_S):
                    await self._enter(lane)
            except TimeoutError:
                raise LaneFullError from None
            try:
                found = lane.rendered.get(page_path(page)) if self._max_age_s else None
                if found is None or found.number <= came_at:
                    parsed, size = read or await self._parsed(page, kind)
                    lane.render_count += 1
                    number = lane.render_count
                    body = await self._render(lane, size, kind.render, parsed, index(), tenant)
                    found = lane.rendered[page_path(page)] = Rendered(number, kind.content_type, body)
                lane.budget.debit(max(MIN_PAGE_BYTES, len(found.body)))
                yield found
            finally:
                lane.leave()
        finally:
            lane.users -= 1
            if not lane.users:
                lane.rendered.clear()

    def _lane(self, tenant: str) -> _Lane:
        lane = self._lanes.get(tenant)
        if lane is None:
            now_s = self._now_s()
            for key in [key for key, each in self._lanes.items() if _is_idle(each, now_s)]:
                del self._lanes[key]
            budget = TokenBucket(PAGE_BURST_BYTES, PAGE_BYTES_PER_S, PAGE_BURST_BYTES, now_s)
            lane = self._lanes[tenant] = _Lane(budget)
        return lane

    def _now_s(self) -> float:
        return self._kubelet.channels.loop.time()

    async def _enter(self, lane: _Lane) -> None:
        """Take the lane's lock, once the tenant's pages so far are within their rate."""
        await lane.lock.acquire()
        try:
            # No other one spends meanwhile: only who holds the lock does.
            await asyncio.sleep(lane.budget.wait_s(self._now_s()))
        except asyncio.CancelledError:
            lane.lock.release()
            raise

    async def _render(self, lane: _Lane, size: int, render: Callable[..., bytes], *values: object) -> bytes:
        if size <= INLINE_BYTES:
            return render(*values)
        # A thread cannot be stopped: the lane is taken until it is through, also if the client leaves.
        lane.running = self._kubelet.channels.loop.run_in_executor(self._pool, render, *values)
        return await asyncio.shield(lane.running)

    async def _in_thread(self, call: Callable[..., Any], *values: Any) -> Any:
        return await self._kubelet.channels.loop.run_in_executor(self._pool, call, *values)

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
        # Several requests share this task, or none any more. The error is logged once and returned to all.
        except Exception as error:  # noqa: BLE001 - each request would raise it, with one trace that grows
            _say_unexpected(path, error)
            return PageError("could not be read")

    async def _read(self, path: str, kind: pages.Page[Any]) -> tuple[Any, int]:
        if kind.collector is None:
            raw = await fetch(self._kubelet, path)
        else:
            listed = await fetch_list(self._kubelet, path, kind.collector())
            if isinstance(listed, Split):
                return listed.value, listed.size
            raw = listed.page
        if len(raw) > INLINE_BYTES:
            return await self._in_thread(kind.parse, raw), len(raw)
        return kind.parse(raw), len(raw)


def _say_unexpected(path: str, error: Exception) -> None:
    _log.error("page cannot be served", page=path, error=error, traceback=logs.trace(error))


def _has_failed(task: "asyncio.Task[_Outcome]") -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or isinstance(task.result(), Exception)


def _is_idle(lane: _Lane, now_s: float) -> bool:
    return not lane.users and lane.budget.is_full(now_s)


class PageExchange:
    """One tenant's request for a page."""

    is_bounded = True

    def __init__(self, client: "ClientConnection", page: Page, service: PageService) -> None:
        self._client = client
        self._page = page
        self._service = service
        self._request_id = client.agent.next_request_id()
        self._task: asyncio.Task[None] | None = None
        # What is not handed to the channel yet; it counts as unread by the tenant.
        self._rest = memoryview(b"")
        self._is_sent = False

    def start(self) -> None:
        self._task = self._client.agent.tasks.spawn(self._run(), "page")

    async def _run(self) -> None:
        client, agent = self._client, self._client.agent
        tenant = client.caller.tenant or ""
        try:
            async with self._service.rendered(self._page, lambda: agent.index, tenant) as page:
                await self._answer(page)
        except FetchError as error:
            self._fail(504 if error.reason == "kubelet-timeout" else 502, error.reason)
        except PageError:
            self._fail(502, "page-malformed")
        except LaneFullError:
            self._fail(429, "too-many-pages")
        # The client's connection takes no other request before this one is answered.
        except Exception as error:  # noqa: BLE001 - this task alone answers the client
            _say_unexpected(page_path(self._page), error)
            if self._is_sent:
                self._client.abort()  # or the client would wait for the rest of the page
            else:
                self._fail(502, "page-malformed")

    async def _answer(self, page: Rendered) -> None:
        client, agent = self._client, self._client.agent
        if client.exchange is not self:
            return
        if not can_hold(self._account, len(page.body)):
            self._fail(429, "too-much-unread")
            return
        agent.audit(client.caller, self._page, OWN_VIEW, 200, self._request_id)
        self._is_sent = True
        reply = replies.page(
            200,
            page.content_type,
            page.body if len(page.body) <= PIECE_BYTES else b"",
            self._request_id,
            is_close=agent.is_draining,
            is_head=self._page.is_head,
            length=len(page.body),
            date=agent.date,
        )
        if len(page.body) <= PIECE_BYTES or self._page.is_head:
            client.answer(reply, is_close=False)
            return
        client.channel.write(reply)
        self._rest = memoryview(page.body)
        self._account.unsent_bytes += len(page.body)
        is_wanted = True
        while is_wanted:
            is_wanted = self._send_piece()
            await asyncio.sleep(0)

    @property
    def _account(self) -> Use:
        return self._client.agent.account_of(self._client.caller)

    def _send_piece(self) -> bool:
        """Send one piece; whether the client takes more now."""
        client, channel = self._client, self._client.channel
        if client.exchange is not self or not self._rest:
            return False
        piece, self._rest = self._rest[:PIECE_BYTES], rest_of(self._rest, PIECE_BYTES)
        self._account.unsent_bytes -= len(piece)
        channel.write(piece)
        channel.flush()
        if not self._rest:
            client.finish(is_close=False)
            return False
        return not channel.is_congested()

    def _fail(self, status: int, reason: str) -> None:
        if self._client.exchange is self and not self._is_sent:
            self._client.refuse(self._page, self._request_id, status, reason, is_close=False)

    def on_client_writable(self) -> None:
        """Send one piece for each turn of the tenant's channels, as long as the client takes more."""
        if self._send_piece():
            self._client.channel.soon(self.on_client_writable)

    def cancel(self) -> None:
        self._account.unsent_bytes -= len(self._rest)
        self._rest = memoryview(b"")
        if self._task is not None:
            self._task.cancel()
        if not self._is_sent:
            agent = self._client.agent
            agent.audit(self._client.caller, self._page, "client-left", 499, self._request_id)
