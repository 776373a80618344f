# SPDX-License-Identifier: Apache-2.0
"""What a worker has the main process do: read the node's pods, and read and render pages.

One process does both for all workers. So a kubelet page is read once for all tenants, a tenant's pages have
one rate, and a vNode's processor time has one total.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

from tenancy.ownership import OwnerIndex
from vnagent.core.requests import PageRequest
from vnagent.exchange.page_service import PageQueueTimeoutError, RenderedPage
from vnagent.pages.page import PageError
from vnagent.upstream.page_fetch import FetchError
from vnagent.workers.message_channel import MessageChannel
from vnagent.workers.messages import (
    PageEnded,
    PageFailed,
    PageRendered,
    PageRequested,
    PodsRead,
    PodsRequested,
)

Answer = TypeVar("Answer")
PageAnswer = PageRendered | PageFailed


class _Pending(dict[int, "asyncio.Future[Answer]"]):
    """Requests without an answer, by their number."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    @contextlib.contextmanager
    def request(self) -> "Iterator[tuple[int, asyncio.Future[Answer]]]":
        self._count += 1
        number = self._count
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self[number] = future
        try:
            yield number, future
        finally:
            del self[number]

    def answer(self, number: int, answer: Answer) -> None:
        """The answer of a request. Its client may have left."""
        future = self.get(number)
        if future is not None and not future.done():
            future.set_result(answer)


class RemotePages:
    """Pages that the main process renders."""

    def __init__(self, channel: MessageChannel) -> None:
        self._channel = channel
        self._pending: _Pending[PageAnswer] = _Pending()

    @contextlib.asynccontextmanager
    async def rendered(
        self, page: PageRequest, index: Callable[[], OwnerIndex], tenant: str
    ) -> AsyncIterator[RenderedPage]:
        """As `PageService.rendered`, by the main process' own index.

        Raises FetchError, PageError or PageQueueTimeoutError.
        """
        with self._pending.request() as (number, future):
            self._channel.send(PageRequested(number, page, tenant))
            try:
                answer = await future
                if isinstance(answer, PageFailed):
                    raise _failure(answer)
                yield RenderedPage(answer.number, answer.content_type, answer.body, answer.compressed)
            finally:
                self._channel.send(PageEnded(number))

    def answer(self, answer: PageAnswer) -> None:
        self._pending.answer(answer.request, answer)


def _failure(failed: PageFailed) -> Exception:
    if failed.fetch_reason is not None:
        return FetchError(failed.fetch_reason)
    if failed.wait_s is not None:
        return PageQueueTimeoutError(failed.wait_s)
    return PageError("could not be read")


class RemotePods:
    """The source of pods, which the main process reads. A successful read comes behind its pods."""

    def __init__(self, channel: MessageChannel) -> None:
        self._channel = channel
        self._pending: _Pending[PodsRead] = _Pending()

    async def refresh(self) -> bool:
        """Wait until a read that begins from now on is applied; False if it failed or took too long."""
        with self._pending.request() as (number, future):
            self._channel.send(PodsRequested(number))
            return (await future).is_read

    def answer(self, answer: PodsRead) -> None:
        self._pending.answer(answer.request, answer)
