# SPDX-License-Identifier: Apache-2.0
"""Requests that wait for their tenant's rate, or for room in the audit log."""

from collections import OrderedDict
from collections.abc import Callable

from vnagent.core.limits import TenantUsage
from vnagent.exchange.port import ClientPort
from vnagent.transport.poller import CALLS, SocketPoller

# How often the queues are served. At the default rate of 1 000 a second five requests come due by then; 50 at
# once would hold up a neighbour for 2 ms, twenty times a second. Beside other tenants one begins in an
# iteration of the loop.
PERIOD_S = 0.005


class RequestQueue:
    """One queue for each tenant, in order of arrival; `usage_of(tenant).waiting` counts it.

    `ready_count(tenant)` returns how many may begin now. `stop_waiting` of a connection begins its
    request, or calls `add` again.
    """

    def __init__(
        self,
        poller: SocketPoller,
        usage_of: Callable[[str], TenantUsage],
        ready_count: Callable[[str], int],
    ) -> None:
        self._poller = poller
        self._usage_of = usage_of
        self._ready_count = ready_count
        self._queues: dict[str, OrderedDict[ClientPort, None]] = {}
        self._is_scheduled = False

    def add(self, connection: ClientPort, tenant: str) -> None:
        """Call the connection's `stop_waiting` when its request may be served."""
        self._queues.setdefault(tenant, OrderedDict())[connection] = None
        self._usage_of(tenant).waiting += 1
        self._schedule(PERIOD_S)

    def discard(self, connection: ClientPort, tenant: str) -> None:
        """The connection ends, and with it its request of up to 192 KiB."""
        queue = self._queues.get(tenant)
        if queue is not None and connection in queue:
            del queue[connection]
            self._usage_of(tenant).waiting -= 1

    def _schedule(self, delay_s: float) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._poller.loop.call_later(delay_s, self._serve)

    def _serve(self) -> None:
        # Still scheduled: an `add` meanwhile must not choose the delay.
        has_more = False
        for tenant, queue in list(self._queues.items()):
            ready = self._ready_count(tenant)
            most = 1 if self._poller.has_other_tenants(tenant) else CALLS
            has_more = has_more or ready > most
            for _ in range(min(ready, most)):
                if not queue:
                    break  # a request that began has ended others
                connection = queue.popitem(last=False)[0]
                self._usage_of(tenant).waiting -= 1
                self._poller.call_guarded(connection.transport, connection.stop_waiting)
                if connection in queue:  # it waits again, and those behind it with it
                    queue.move_to_end(connection, last=False)
                    break
            if not queue:
                del self._queues[tenant]
        self._is_scheduled = False
        if self._queues:
            # With the loop's next iteration, others are served in between.
            self._schedule(0.0 if has_more else PERIOD_S)
