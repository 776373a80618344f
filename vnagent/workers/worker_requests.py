# SPDX-License-Identifier: Apache-2.0
"""Answers what a worker wants of the main process: pages of a tenant, and a read of the node's pods."""

import asyncio
from collections.abc import Callable

from daemonkit.tasks import Tasks
from vnagent.core.kubelet_request import page_path
from vnagent.exchange.page import RenderedPages
from vnagent.exchange.page_service import PageQueueTimeoutError, log_unexpected
from vnagent.pages.page import PageError
from vnagent.sources.port import PodsOnDemand
from vnagent.state import AgentState
from vnagent.upstream.page_fetch import FetchError
from vnagent.workers.message_channel import MessageChannel
from vnagent.workers.messages import PageFailed, PageRendered, PageRequested, PodsRead


class WorkerRequests:
    """Serves one worker. `before_pods_read` is called before a read of the pods is answered, so that its pods
    are sent first."""

    def __init__(
        self,
        channel: MessageChannel,
        state: AgentState,
        pages: RenderedPages,
        pods: PodsOnDemand | None,
        tasks: Tasks,
        before_pods_read: Callable[[], None],
    ) -> None:
        self._channel = channel
        self._state = state
        self._pages = pages
        self._pods = pods
        self._tasks = tasks
        self._before_pods_read = before_pods_read
        self._open: dict[int, asyncio.Task[None]] = {}

    def render(self, wanted: PageRequested) -> None:
        """Render a page. The tenant's next one waits for `end`."""
        account = self._state.account_of(wanted.tenant)
        task = self._tasks.spawn(account.run(self._render(wanted)), f"page of a worker {wanted.request}")
        self._open[wanted.request] = task
        task.add_done_callback(lambda _: self._open.pop(wanted.request, None))

    def end(self, request: int) -> None:
        """The page was sent, or its client has left."""
        task = self._open.get(request)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """The worker has ended."""
        for task in list(self._open.values()):
            task.cancel()

    async def _render(self, wanted: PageRequested) -> None:
        number, channel, state = wanted.request, self._channel, self._state
        try:
            async with self._pages.rendered(wanted.page, lambda: state.index, wanted.tenant) as page:
                channel.send(PageRendered(number, page.number, page.content_type, page.body, page.compressed))
                await asyncio.get_running_loop().create_future()  # until `end` or `close`
        except FetchError as error:
            channel.send(PageFailed(number, fetch_reason=error.reason))
        except PageQueueTimeoutError as error:
            channel.send(PageFailed(number, wait_s=error.wait_s))
        except PageError:
            channel.send(PageFailed(number))
        # The worker waits for an answer.
        except Exception as error:  # noqa: BLE001 - this task alone answers it
            log_unexpected(page_path(wanted.page), error)
            channel.send(PageFailed(number))

    def read_pods(self, request: int) -> None:
        """Read the pods, and answer when the worker has them."""
        self._tasks.spawn(self._read_pods(request), f"pods for a worker {request}")

    async def _read_pods(self, request: int) -> None:
        is_read = False
        try:
            is_read = self._pods is not None and await self._pods.refresh()
        finally:
            self._before_pods_read()
            self._channel.send(PodsRead(request, is_read))
