# SPDX-License-Identifier: Apache-2.0
"""All live channels of the process: one epoll for their sockets, one sweep for their deadlines."""

import asyncio
import contextlib
import select
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vnagent.channel import TlsChannel

_EVENTS = 64


class Channels:
    """All live channels: one epoll for their sockets, one sweep for their deadlines.

    `now` is the loop's clock as of the last sweep. Deadlines are seconds and up; asking the clock for
    each of them would be a noticeable part of a small request.
    """

    PERIOD_S = 0.25

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.now = loop.time()
        self.by_fd: dict[int, TlsChannel] = {}
        self.epoll = select.epoll()
        self._is_empty = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.loop.add_reader(self.epoll.fileno(), self._dispatch)
        self._sweep()

    def stop(self) -> None:
        """Abort what is left."""
        if self._timer is not None:
            self._timer.cancel()
        for channel in list(self.by_fd.values()):
            channel.abort()
        self.loop.remove_reader(self.epoll.fileno())
        self.epoll.close()

    async def wait_closed(self, timeout_s: float) -> None:
        """Wait until no channel is left, or so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.by_fd:
                    self._is_empty.clear()
                    await self._is_empty.wait()

    def forget(self, fd: int) -> None:
        """The socket is about to be closed, which takes it out of the epoll."""
        del self.by_fd[fd]
        if not self.by_fd:
            self._is_empty.set()

    def _dispatch(self) -> None:
        by_fd = self.by_fd
        for fd, events in self.epoll.poll(0, _EVENTS):
            # Gone, by an event before this one? A descriptor that was closed and opened again in
            # between gets an event too many, which a non-blocking receive takes for nothing.
            channel = by_fd.get(fd)
            if channel is not None:
                try:
                    channel.on_events(events)
                # The events that follow are other tenants' connections, and epoll tells of some of
                # them only once: after a fault in one owner they are still to be served.
                except Exception as error:  # noqa: BLE001 - told, and this channel alone ends
                    self._failed(channel, error)

    def soon(self, channel: "TlsChannel", call: Callable[[], None]) -> None:
        """Call something of a channel with the loop's next turn."""
        self.loop.call_soon(self.guarded, channel, call)

    def guarded(self, channel: "TlsChannel", call: Callable[[], None]) -> None:
        """Call something of a channel now; if that fails, this channel alone ends."""
        try:
            call()
        # Called by the loop, or for one channel after the other by `_sweep`, which must get to the last.
        except Exception as error:  # noqa: BLE001 - told, and this channel alone ends
            self._failed(channel, error)

    def _failed(self, channel: "TlsChannel", error: Exception) -> None:
        """The loop tells of it as of any callback that failed."""
        self.loop.call_exception_handler({"message": "a connection's owner failed", "exception": error})
        channel.fail()

    def _sweep(self) -> None:
        self.now = now = self.loop.time()
        self._timer = self.loop.call_later(self.PERIOD_S, self._sweep)
        for channel in list(self.by_fd.values()):
            if channel.deadline is not None and now >= channel.deadline:
                self.guarded(channel, channel.expire)
