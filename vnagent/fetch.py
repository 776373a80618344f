# SPDX-License-Identifier: Apache-2.0
"""A whole page from the kubelet, read to its proper end or not at all."""

import asyncio

from vnagent.core.head import ResponseHead
from vnagent.core.kubelet_request import build_page
from vnagent.kubelet import KubeletConnection, KubeletPool

# A cadvisor page of 250 pods is 5 to 20 MB.
MAX_PAGE_BYTES = 64 << 20
# metrics-server gives up after 10 s.
FETCH_S = 10.0


class FetchError(Exception):
    """The page could not be had; `reason` is one of the kubelet reasons of `core.replies`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Fetch:
    """The exchange: collects the body for a future."""

    def __init__(self, done: "asyncio.Future[bytes]") -> None:
        self._done = done
        self._parts: list[bytes] = []
        self._size = 0
        self._is_chunked = False
        self.kubelet: KubeletConnection | None = None

    def on_response(self, head: ResponseHead) -> None:
        if head.status in {401, 403}:
            self._give_up("kubelet-refused")
        elif head.status != 200:
            self._give_up("kubelet-failed" if head.status >= 400 else "kubelet-malformed")
        elif head.fields.get(b"content-encoding") not in {None, b"identity"}:
            # It was asked for plain text; what cannot be read cannot be filtered.
            self._give_up("kubelet-malformed")
        self._is_chunked = head.is_chunked

    def on_body(self, data: memoryview) -> None:
        self._size += len(data)
        if self._size > MAX_PAGE_BYTES:
            self._give_up("kubelet-malformed")
            return
        self._parts.append(bytes(data))

    def on_response_end(self) -> None:
        self.kubelet = None  # it is back in the pool, and may be another's already
        if not self._done.done():
            body = b"".join(self._parts)
            self._done.set_result(unchunk(body) if self._is_chunked else body)

    def on_batch_end(self) -> None:
        """Nothing is relayed."""

    def on_failure(self, reason: str) -> None:
        self.kubelet = None
        if not self._done.done():
            self._done.set_exception(FetchError(reason))

    def abort(self) -> None:
        if self.kubelet is not None:
            self.kubelet.abort()
            self.kubelet = None

    def _give_up(self, reason: str) -> None:
        self.abort()
        self.on_failure(reason)


async def fetch(pool: KubeletPool, path: str) -> bytes:
    """GET `path` from the kubelet. Raises FetchError. Cancelling closes the connection."""
    done: asyncio.Future[bytes] = pool.channels.loop.create_future()
    exchange = _Fetch(done)
    exchange.kubelet = pool.acquire(
        exchange, build_page(path, pool.address.authority), timeout_s=FETCH_S, is_upgrade=False
    )
    try:
        async with asyncio.timeout(FETCH_S):
            return await done
    except TimeoutError:
        exchange.abort()
        raise FetchError("kubelet-timeout") from None
    except asyncio.CancelledError:
        exchange.abort()
        raise


def unchunk(body: bytes) -> bytes:
    """Join the chunks of a body that a ChunkedBody has read (so it is well-formed to the last
    size line)."""
    parts: list[bytes] = []
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end], 16)
        if not size:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
