# SPDX-License-Identifier: Apache-2.0
"""All live channels of the process: an epoll for each tenant's sockets, one sweep for all deadlines."""

import asyncio
import contextlib
import select
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from vnagent.transport.handler import NO_ACCOUNT, Account

if TYPE_CHECKING:
    from vnagent.transport.tls_connection import TlsChannel

# Events of a tenant that are handled in one turn of the loop, some 0.05 ms each. A tenant may have a thousand
# connections that are ready at once; others are served in between. With 4, a tenant that keeps vn-agent busy
# by itself was served 12 % less.
TENANT_EVENTS = 16
# Calls of any group in one turn, and requests of a tenant that begin after a wait: 0.05 ms each.
CALLS = 4
# Events of clients that are no tenant's: in their handshake, or without a registered certificate. The end of
# a handshake takes 1 ms: with 16, 150 that ended together delayed a neighbour's log by 39 ms (with 4, by 16).
SHARED_EVENTS = 4
# Events of vn-agent's own requests to the kubelet, 128 KiB each.
OWN_EVENTS = 4


class Group:
    """Channels that take turns with those of other groups: in one turn of the loop each group has so many
    of its events handled, and a few of its calls made. `size` counts its channels. `account` is the tenant's:
    above its limit the channels receive little at once."""

    __slots__ = ("_calls", "_channels", "_events", "_is_scheduled", "account", "epoll", "size")

    def __init__(self, channels: "Channels", events: int) -> None:
        """Raises OSError where no descriptor is left."""
        self._channels = channels
        self._events = events
        self._calls: deque[tuple[TlsChannel, Callable[[], None]]] = deque()
        self._is_scheduled = False
        self.account: Account = NO_ACCOUNT
        self.epoll = select.epoll()
        self.size = 0

    def start(self) -> None:
        self._channels.loop.add_reader(self.epoll.fileno(), self._dispatch)

    def close(self) -> None:
        self._channels.loop.remove_reader(self.epoll.fileno())
        self.epoll.close()

    @property
    def is_empty(self) -> bool:
        return not self.size and not self._calls

    def soon(self, channel: "TlsChannel", call: Callable[[], None]) -> None:
        """Call something of a channel when its turn comes, in the next turn of the loop at the earliest."""
        self._calls.append((channel, call))
        self._schedule()

    def _schedule(self) -> None:
        if self._calls and not self._is_scheduled:
            self._is_scheduled = True
            self._channels.loop.call_soon(self._run_calls)

    def _run_calls(self) -> None:
        self._is_scheduled = False
        try:
            for _ in range(min(len(self._calls), CALLS)):
                self._channels.guarded(*self._calls.popleft())
        finally:  # also after what `guarded` does not catch, or the calls behind it would wait for good
            self._schedule()

    def _dispatch(self) -> None:
        by_fd = self._channels.by_fd
        # Those that are not among them are the first of the next turn: epoll reports in the order in which
        # they became ready, and puts what was reported behind.
        for fd, events in self.epoll.poll(0, self._events):
            # Gone, by an event before this one? A descriptor that was closed and opened again in
            # between gets an event too many, which a non-blocking receive takes for nothing.
            channel = by_fd.get(fd)
            if channel is not None:
                try:
                    channel.on_events(events)
                # This channel alone ends. The events that follow belong to other connections, and epoll
                # reports some of them only once.
                except Exception as error:  # noqa: BLE001 - one owner's bug must not lose others' events
                    self._channels.failed(channel, error)


class Channels:
    """All live channels: their groups, and one sweep for their deadlines.

    `now` is the loop's clock as of the last sweep. Deadlines are seconds and up; asking the clock for
    each of them would be a noticeable part of a small request. `shared` is the group of clients that are no
    tenant's, or not yet. `own` is that of vn-agent's own requests to the kubelet: all tenants' pages wait for
    these, so clients without an identity must not delay them.
    """

    PERIOD_S = 0.25

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.now = loop.time()
        self.by_fd: dict[int, TlsChannel] = {}
        self.shared = Group(self, SHARED_EVENTS)
        self.own = Group(self, OWN_EVENTS)
        self._groups: dict[str, Group] = {}
        self._is_empty = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.shared.start()
        self.own.start()
        self._sweep()

    def stop(self) -> None:
        """Abort what is left."""
        if self._timer is not None:
            self._timer.cancel()
        for channel in list(self.by_fd.values()):
            channel.abort()
        for group in (self.shared, self.own, *self._groups.values()):
            group.close()
        self._groups.clear()

    def group_of(self, tenant: str, account: Account) -> Group:
        """The tenant's group, with its `account`; the shared one where no descriptor is left for it."""
        group = self._groups.get(tenant)
        if group is None:
            try:
                group = Group(self, TENANT_EVENTS)
            except OSError:
                return self.shared
            try:
                group.start()
            except OSError:
                group.close()
                return self.shared
            self._groups[tenant] = group
        group.account = account
        return group

    async def wait_closed(self, timeout_s: float) -> None:
        """Wait until no channel is left, or so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.by_fd:
                    self._is_empty.clear()
                    await self._is_empty.wait()

    def forget(self, fd: int) -> None:
        """The socket is about to be closed, which takes it out of its epoll."""
        self.by_fd.pop(fd).group.size -= 1
        if not self.by_fd:
            self._is_empty.set()

    def guarded(self, channel: "TlsChannel", call: Callable[[], None]) -> None:
        """Call something of a channel now; if that fails, this channel alone ends."""
        try:
            call()
        # The loop calls this, or `_sweep` for each channel.
        except Exception as error:  # noqa: BLE001 - one owner's bug must not keep others from their calls
            self.failed(channel, error)

    def failed(self, channel: "TlsChannel", error: Exception) -> None:
        """End the channel whose owner failed. The loop's handler logs it as it does for any callback."""
        self.loop.call_exception_handler({"message": "a connection's owner failed", "exception": error})
        channel.fail()

    def _sweep(self) -> None:
        self.now = now = self.loop.time()
        self._timer = self.loop.call_later(self.PERIOD_S, self._sweep)
        for tenant in [tenant for tenant, group in self._groups.items() if group.is_empty]:
            self._groups.pop(tenant).close()
        for channel in list(self.by_fd.values()):
            if channel.deadline is not None and now >= channel.deadline:
                self.guarded(channel, channel.expire)
