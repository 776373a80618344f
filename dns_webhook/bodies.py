# SPDX-License-Identifier: Apache-2.0
"""Bodies that are being read, and how many bytes of them there are at most, all together.

Where there is no room, the one that has been coming for longest gives way. An API server sends a
review at once, so whoever holds places or bytes by sending slowly loses them to it; and one that is
merely slow loses its own only when all are taken, and is told to send it again.
"""

import asyncio
from typing import Protocol


class Stream(Protocol):
    """Where a body comes from; empty at its end (aiohttp's StreamReader)."""

    async def readany(self) -> bytes: ...


class GaveWayError(Exception):
    """There was no room for all, and this one had been coming for longest."""


class TooLargeError(Exception):
    """It is larger than one may be."""


class _Body:
    """One that is being read. `limit` is when it has to be here."""

    __slots__ = ("data", "gave_way", "limit")

    def __init__(self, limit: asyncio.Timeout) -> None:
        self.data = bytearray()
        self.gave_way = False
        self.limit = limit


class Bodies:
    """Reads at most `most` bodies at once, of `each_bytes` each and `all_bytes` together."""

    def __init__(self, most: int, each_bytes: int, all_bytes: int, read_s: float) -> None:
        if each_bytes > all_bytes:
            raise ValueError("one body has to fit")
        self._most = most
        self._each_bytes = each_bytes
        self._all_bytes = all_bytes
        self._read_s = read_s
        self._reading: dict[_Body, None] = {}  # in the order in which they began
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._reading)

    async def read(self, stream: Stream) -> bytes:
        """One whole body. Raises GaveWayError, TooLargeError, TimeoutError, and what `stream` raises."""
        limit = asyncio.timeout(self._read_s)
        body = _Body(limit)
        try:
            async with limit:
                if len(self._reading) >= self._most:
                    self._make_room()
                self._reading[body] = None
                await self._fill(body, stream)
        except TimeoutError:
            if body.gave_way:
                raise GaveWayError from None
            raise
        finally:
            self._drop(body)
        return bytes(body.data)

    async def _fill(self, body: _Body, stream: Stream) -> None:
        while chunk := await stream.readany():
            if len(body.data) + len(chunk) > self._each_bytes:
                raise TooLargeError
            while not body.gave_way and self.held_bytes + len(chunk) > self._all_bytes:
                self._make_room()
            if body.gave_way:
                raise GaveWayError
            body.data += chunk
            self.held_bytes += len(chunk)
        if body.gave_way:
            raise GaveWayError  # before its limit could end it

    def _make_room(self) -> None:
        oldest = next(iter(self._reading))
        oldest.gave_way = True
        self._drop(oldest)
        if not oldest.limit.expired():
            oldest.limit.reschedule(asyncio.get_running_loop().time())

    def _drop(self, body: _Body) -> None:
        if body in self._reading:
            del self._reading[body]
            self.held_bytes -= len(body.data)
            if body.gave_way:
                body.data = bytearray()
