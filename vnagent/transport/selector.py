# SPDX-License-Identifier: Apache-2.0
"""The selector of vn-agent's event loop: it calls the callbacks of watched descriptors itself.

asyncio makes a handle of each event, and reads its clock and its queues before the next poll: 15 us for each
event, which is more than all other work of ours in a small request. So `select` calls the callbacks of the
descriptors that are watched here, and polls again while the loop has nothing else to do. It returns when
another descriptor of the loop's is ready (the pipe of threads and signals among them), when a callback has
scheduled a call or a timer (`has_scheduled`), and at the time that asyncio has set, which is its next timer.

One poll is one iteration of the loop to those who count turns: each watched descriptor that is ready has one
callback in it.
"""

import asyncio
import contextlib
import math
import select
import selectors
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

# Of one poll. Beyond them, epoll reports the others first in the next one.
_MAX_EVENTS = 256
_READ = select.EPOLLIN


class DescriptorWatcher(Protocol):
    """Calls back on the event loop."""

    # Of the current iteration: the descriptors that are ready.
    ready_count: int

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call `callback`, and no earlier one, in each iteration in which `fd` is readable.

        Raises OSError where the kernel has no room to watch it.
        """

    def unwatch(self, fd: int) -> None:
        """Watch it no more. It may not be watched."""

    def call_soon(self, call: Callable[[], None]) -> None:
        """Make a call in the loop's next iteration."""


class LoopWatcher:
    """The watcher of any asyncio loop, by a handle for each event. It does not know how many are ready."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ready_count = 1
        self._loop = loop

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        self._loop.add_reader(fd, callback)

    def unwatch(self, fd: int) -> None:
        self._loop.remove_reader(fd)

    def call_soon(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(call)


class CallbackSelector:
    """A `DescriptorWatcher`, with what `asyncio.SelectorEventLoop` needs of a `selectors.BaseSelector`.

    The loop sets `has_scheduled` with each call or timer that is scheduled.
    """

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        """`on_failure` gets what a callback raised."""
        self.has_scheduled = False
        self.ready_count = 0
        self._on_failure = on_failure
        # What asyncio registers: one descriptor among the watched ones.
        self._others = selectors.EpollSelector()
        self._others_fd = self._others.fileno()
        self._epoll = select.epoll()
        self._epoll.register(self._others_fd, _READ)
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._calls: deque[Callable[[], None]] = deque()

    # ---- what vn-agent's parts call

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        if fd not in self._callbacks:
            self._epoll.register(fd, _READ)
        self._callbacks[fd] = callback

    def unwatch(self, fd: int) -> None:
        if self._callbacks.pop(fd, None) is not None:
            with contextlib.suppress(OSError):  # it is closed already
                self._epoll.unregister(fd)

    def call_soon(self, call: Callable[[], None]) -> None:
        self._calls.append(call)

    # ---- what asyncio calls

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Run callbacks until the loop has something to do, for `timeout` seconds at most. None: no limit.

        Returns the ready descriptors that asyncio has registered, with their events.
        """
        self.has_scheduled = False
        if timeout is not None and timeout <= 0.0:
            return self._iterate(0.0)
        end_s = math.inf if timeout is None else time.monotonic() + timeout
        wait_s = -1.0 if timeout is None else timeout
        while True:
            found = self._iterate(wait_s)
            if found or self.has_scheduled:
                return found
            if timeout is not None:
                wait_s = end_s - time.monotonic()
                if wait_s <= 0.0:
                    return found

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._others.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._others.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._others.modify(fileobj, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._others.get_key(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._others.get_map()

    def close(self) -> None:
        self._callbacks.clear()
        self._calls.clear()
        self._epoll.close()
        self._others.close()

    # ---- one iteration

    def _iterate(self, wait_s: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Poll once; make the calls that were due before, then the callbacks of what is ready."""
        calls, callbacks = self._calls, self._callbacks
        call_count = len(calls)
        is_other_ready = False
        ready = self._epoll.poll(0.0 if call_count else wait_s, min(len(callbacks) + 1, _MAX_EVENTS))
        self.ready_count = len(ready)
        for _ in range(call_count):
            self._call_guarded(calls.popleft())
        for fd, _ in ready:
            if fd == self._others_fd:
                is_other_ready = True
                continue
            callback = callbacks.get(fd)  # an earlier callback may have closed it
            if callback is not None:
                self._call_guarded(callback)
        return self._others.select(0) if is_other_ready else []

    def _call_guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        # As asyncio does with its handles.
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - one callback's bug must not end the loop
            self._on_failure(error)
