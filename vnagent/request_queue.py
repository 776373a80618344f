# SPDX-License-Identifier: Apache-2.0
"""Requests that wait: for their tenant's rate, or for room in the audit log."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from vnagent.core.limits import Use
from vnagent.transport.poller import CALLS, Channels

if TYPE_CHECKING:
    from vnagent.downstream.client_connection import ClientConnection

# How often they are looked at. At the default rate of 1 000 a second five have come due by then; 50 at once
# would hold up a neighbour for 2 ms, twenty times a second.
PERIOD_S = 0.005


class WaitingRequests:
    """By tenant, in the order in which they came; `use_of(tenant).waiting` counts them.

    `may_begin(tenant)` is how many of a tenant's may begin now. `stop_waiting` of a connection begins its
    request, or calls `add` again.
    """

    def __init__(
        self, channels: Channels, use_of: Callable[[str], Use], may_begin: Callable[[str], int]
    ) -> None:
        self._channels = channels
        self._use_of = use_of
        self._may_begin = may_begin
        self._queues: dict[str, OrderedDict[ClientConnection, None]] = {}
        self._is_scheduled = False

    def add(self, connection: "ClientConnection", tenant: str) -> None:
        """Call the connection's `stop_waiting` when its turn may have come."""
        self._queues.setdefault(tenant, OrderedDict())[connection] = None
        self._use_of(tenant).waiting += 1
        self._schedule(PERIOD_S)

    def discard(self, connection: "ClientConnection", tenant: str) -> None:
        """The connection ends, and with it its request: that may have 192 KiB, which no account answers for
        from now on."""
        queue = self._queues.get(tenant)
        if queue is not None and connection in queue:
            del queue[connection]
            self._use_of(tenant).waiting -= 1

    def _schedule(self, delay_s: float) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._channels.loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        # Still scheduled: what is added meanwhile must not choose the delay.
        has_more = False
        for tenant, queue in list(self._queues.items()):
            ready = self._may_begin(tenant)
            has_more = has_more or ready > CALLS
            for _ in range(min(ready, CALLS)):
                if not queue:
                    break  # what began has ended others
                connection = queue.popitem(last=False)[0]
                self._use_of(tenant).waiting -= 1
                self._channels.guarded(connection.channel, connection.stop_waiting)
                if connection in queue:  # it has to wait again, and those behind it with it
                    queue.move_to_end(connection, last=False)
                    break
            if not queue:
                del self._queues[tenant]
        self._is_scheduled = False
        if self._queues:
            # With the next turn of the loop others are served in between.
            self._schedule(0.0 if has_more else PERIOD_S)
