# SPDX-License-Identifier: Apache-2.0
"""Limits for the bodies that are being read: their number, and their bytes together.

Without room, the body that has been read for longest is evicted. An API server sends a review at
once, so a client that sends slowly loses its place to it. A slow API server loses its own only when
all places are taken, and is asked to retry.
"""

import asyncio
from typing import Protocol


class BodyStream(Protocol):
    """A request's body; reads empty at its end (aiohttp's StreamReader)."""

    async def readany(self) -> bytes: ...


class EvictedError(Exception):
    """Memory for bodies ran out, and this one was the oldest."""


class BodyTooLargeError(Exception):
    """The body exceeds the limit for one body."""


class _BufferedBody:
    """One that is being read; `limit` is its deadline."""

    __slots__ = ("data", "is_evicted", "limit")

    def __init__(self, limit: asyncio.Timeout) -> None:
        self.data = bytearray()
        self.is_evicted = False
        self.limit = limit


class BodyLimits:
    """Reads at most `most` bodies at once, of `each_bytes` each and `all_bytes` together."""

    def __init__(self, most: int, each_bytes: int, all_bytes: int, read_s: float) -> None:
        if each_bytes > all_bytes:
            raise ValueError("each_bytes is more than all_bytes")
        self._most = most
        self._each_bytes = each_bytes
        self._all_bytes = all_bytes
        self._read_s = read_s
        self._reading: dict[_BufferedBody, None] = {}  # oldest first
        self.read_bytes = 0

    def __len__(self) -> int:
        return len(self._reading)

    async def read(self, stream: BodyStream) -> bytes:
        """Read one body. Raises EvictedError, BodyTooLargeError, TimeoutError, and what `stream` raises."""
        limit = asyncio.timeout(self._read_s)
        body = _BufferedBody(limit)
        try:
            async with limit:
                if len(self._reading) >= self._most:
                    self._make_room()
                self._reading[body] = None
                await self._fill(body, stream)
        except TimeoutError:
            if body.is_evicted:
                raise EvictedError from None
            raise
        finally:
            self._drop(body)
        return bytes(body.data)

    async def _fill(self, body: _BufferedBody, stream: BodyStream) -> None:
        while chunk := await stream.readany():
            if len(body.data) + len(chunk) > self._each_bytes:
                raise BodyTooLargeError
            while not body.is_evicted and self.read_bytes + len(chunk) > self._all_bytes:
                self._make_room()
            if body.is_evicted:
                raise EvictedError
            body.data += chunk
            self.read_bytes += len(chunk)
        if body.is_evicted:
            raise EvictedError  # before its deadline was rescheduled

    def _make_room(self) -> None:
        oldest = next(iter(self._reading))
        oldest.is_evicted = True
        self._drop(oldest)
        if not oldest.limit.expired():
            oldest.limit.reschedule(asyncio.get_running_loop().time())

    def _drop(self, body: _BufferedBody) -> None:
        if body in self._reading:
            del self._reading[body]
            self.read_bytes -= len(body.data)
            if body.is_evicted:
                body.data = bytearray()
