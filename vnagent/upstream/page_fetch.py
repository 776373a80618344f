# SPDX-License-Identifier: Apache-2.0
"""Fetches a page from the kubelet, as a whole or item by item. A truncated page is an error."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from vnagent.core.framing import Unchunker
from vnagent.core.head import ResponseHead
from vnagent.core.list_splitter import Item, ListSplitter, SplitError
from vnagent.pages.page import Collector, PageError
from vnagent.upstream.pool import UpstreamConnection, UpstreamPool

# Above this size a page is parsed and rendered in a thread, so that the loop goes on with streams.
INLINE_BYTES = 128 * 1024
# A cadvisor page of 250 pods is 5 to 20 MB.
MAX_PAGE_BYTES = 64 << 20
# cadvisor and the runtime are asked for each container, which takes a busy kubelet tens of seconds.
# Prometheus waits for up to its interval, a minute by default; metrics-server gives up after 10 s by itself.
FETCH_S = 60.0

# A list up to here is kept as a whole, so that an unchanged list is cheap: 250 pods of 20 KB are 5 MB.
MAX_WHOLE_LIST_BYTES = 8 << 20
# 110 pods of 9 MiB each (`core.list_splitter`) are 1 GiB, which is not kept. The limit bounds the work
# for an endless answer.
MAX_LIST_BYTES = 2 << 30
# A kubelet has it in memory, and writes some 100 MB/s. Ownership is read from it: a read that hangs must not
# keep the next one for longer.
LIST_S = 30.0

Collected = TypeVar("Collected")


class FetchError(Exception):
    """The page could not be fetched; `reason` is one of `core.replies`, as `kubelet-timeout` is."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _PageFetch:
    """Handles the response: collects the body for a future."""

    def __init__(self, done: "asyncio.Future[bytes]", hop: str) -> None:
        self.done = done
        self._hop = hop
        self._parts: list[bytes] = []
        self.size = 0
        self._is_chunked = False
        self.connection: UpstreamConnection | None = None

    def on_response(self, head: ResponseHead) -> None:
        if head.status in {401, 403}:
            self._give_up_for("refused")
        elif head.status != 200:
            self._give_up_for("failed" if head.status >= 400 else "malformed")
        elif head.fields.get(b"content-encoding") not in {None, b"identity"}:
            # The request asks for plain text; an encoded page cannot be filtered.
            self._give_up_for("malformed")
        self._is_chunked = head.is_chunked

    def on_body(self, data: memoryview) -> None:
        self.size += len(data)
        if self.size > self._max_bytes():
            self._give_up_for("too-large")
            return
        self._take(data)

    def _max_bytes(self) -> int:
        return MAX_PAGE_BYTES

    def _take(self, data: memoryview) -> None:
        self._parts.append(bytes(data))

    def on_response_end(self) -> None:
        self.connection = None  # back in the pool, and perhaps in use again
        if not self.done.done():
            self._end()

    def _end(self) -> None:
        body = b"".join(self._parts)
        self.done.set_result(unchunk(body) if self._is_chunked else body)

    def on_batch_end(self) -> None:
        """Nothing is relayed."""

    def on_failure(self, reason: str) -> None:
        self._fail(FetchError(reason))

    def _fail(self, error: Exception) -> None:
        self.connection = None
        if not self.done.done():
            self.done.set_exception(error)

    def abort(self) -> None:
        if self.connection is not None:
            self.connection.abort()
            self.connection = None

    def _give_up_for(self, failure: str) -> None:
        self._give_up(FetchError(f"{self._hop}-{failure}"))

    def _give_up(self, error: Exception) -> None:
        self.abort()
        self._fail(error)


class _ListFetch(_PageFetch):
    """Keeps a short list whole; passes the items of a longer one to a collector as they come."""

    def __init__(
        self, done: "asyncio.Future[bytes]", hop: str, splitter: ListSplitter, add: Callable[[Item], None]
    ) -> None:
        super().__init__(done, hop)
        self._splitter = splitter
        self._add = add
        self._unchunker = Unchunker()
        self.is_split = False

    def on_response(self, head: ResponseHead) -> None:
        super().on_response(head)
        if self.connection is not None:
            self.connection.set_deadline(LIST_S)

    def _max_bytes(self) -> int:
        return MAX_LIST_BYTES

    def _take(self, data: memoryview) -> None:
        if self.is_split:
            self._split(data)
            return
        super()._take(data)
        if self.size > MAX_WHOLE_LIST_BYTES:
            self.is_split = True
            parts, self._parts = self._parts, []
            for part in parts:
                self._split(memoryview(part))

    def _split(self, data: memoryview) -> None:
        if self.done.done():
            return
        try:
            for piece in self._unchunker.feed(data) if self._is_chunked else (data,):
                for item in self._splitter.feed(piece):
                    self._add(item)
        # `fetch_list` raises it for its caller.
        except Exception as error:  # noqa: BLE001 - raised here it would fail the connection
            self._give_up(error)

    def _end(self) -> None:
        if not self.is_split:
            super()._end()
            return
        try:
            for item in self._splitter.end():
                self._add(item)
        except Exception as error:  # noqa: BLE001 - as in `_split`
            self._fail(error)
            return
        self.done.set_result(self._splitter.frame())


async def fetch_page(pool: UpstreamPool, path: str) -> bytes:
    """GET `path` from the kubelet. Raises FetchError. Cancelling closes the connection."""
    fetch = _PageFetch(pool.poller.loop.create_future(), pool.requests.hop)
    return await _send(pool, path, fetch, FETCH_S)


@dataclass(frozen=True, slots=True)
class WholeList:
    """A list as the kubelet sent it."""

    page: bytes


@dataclass(frozen=True, slots=True)
class SplitList(Generic[Collected]):
    """The collected value of a list that is too long to be kept, and the list's size."""

    value: Collected
    size: int


async def fetch_list(
    pool: UpstreamPool, path: str, collector: Collector[Collected]
) -> WholeList | SplitList[Collected]:
    """GET the list at `path`: whole if it is short, else the value of `collector`.

    Raises FetchError, PageError and the collector's errors. Cancelling closes the connection.
    """
    fetch = _ListFetch(pool.poller.loop.create_future(), pool.requests.hop, ListSplitter(), collector.add)
    try:
        body = await _send(pool, path, fetch, LIST_S)
    except SplitError as error:
        raise PageError(f"the list cannot be split: {error}") from None
    return SplitList(collector.finish(body), fetch.size) if fetch.is_split else WholeList(body)


async def _send(pool: UpstreamPool, path: str, fetch: _PageFetch, timeout_s: float) -> bytes:
    fetch.connection = pool.acquire(fetch, pool.requests.page(path), timeout_s=timeout_s, is_upgrade=False)
    try:
        async with asyncio.timeout(timeout_s):
            return await fetch.done
    except TimeoutError:
        fetch.abort()
        raise FetchError(f"{pool.requests.hop}-timeout") from None
    except asyncio.CancelledError:
        fetch.abort()
        raise


def unchunk(body: bytes) -> bytes:
    """Join the chunks of a body that a ChunkedBody has passed, so that it is well-formed."""
    parts: list[bytes] = []
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end], 16)
        if not size:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
