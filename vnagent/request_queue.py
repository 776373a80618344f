# SPDX-License-Identifier: Apache-2.0
"""Requests that wait for their tenant's rate, or for room in the audit log."""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from vnagent.core.limits import TenantUsage
from vnagent.exchange.port import ClientPort
from vnagent.transport.poller import SocketPoller

# How often the queues are looked at. At the default rate of 1 000 a second five requests come due by then.
PERIOD_S = 0.005
# Queues that are looked at in one iteration of the loop, 4 us each.
LOOKED_AT_ONCE = 200


class RequestQueue:
    """One queue for each tenant, in order of arrival; `usage_of(tenant).waiting` counts it.

    `ready_count(tenant)` returns how many may begin now. They begin one after the other, each as a call of
    the tenant's group, which is charged and has its turn. `stop_waiting` of a connection begins its request,
    or calls `add` again.
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
        # Tenants whose first request is a call of their group already.
        self._scheduled: set[str] = set()
        self._is_scheduled = False
        # Tenants whose queues are still to be looked at in this period.
        self._left: list[str] = []

    def add(self, connection: ClientPort, tenant: str) -> None:
        """Call the connection's `stop_waiting` when its request may be served."""
        self._queues.setdefault(tenant, OrderedDict())[connection] = None
        self._usage_of(tenant).waiting += 1
        self._schedule()

    def discard(self, connection: ClientPort, tenant: str) -> None:
        """The connection ends, and with it its request of up to 192 KiB."""
        queue = self._queues.get(tenant)
        if queue is not None and connection in queue:
            del queue[connection]
            self._usage_of(tenant).waiting -= 1

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._poller.loop.call_later(PERIOD_S, self._serve)

    def _serve(self) -> None:
        left = self._left = self._left or list(self._queues)
        for _ in range(min(len(left), LOOKED_AT_ONCE)):
            self._call_next(left.pop())
        if left:
            self._poller.loop.call_soon(self._serve)
            return
        self._is_scheduled = False
        if self._queues:
            self._schedule()

    def _call_next(self, tenant: str) -> None:
        """Have the tenant's next request begin, if it may."""
        queue = self._queues.get(tenant)
        if queue is None:
            return  # it was empty meanwhile
        if not queue:
            del self._queues[tenant]
        elif tenant not in self._scheduled and self._ready_count(tenant):
            self._scheduled.add(tenant)
            connection = next(iter(queue))
            group = self._poller.group_of(tenant, self._usage_of(tenant))
            group.call_soon(connection.transport, partial(self._begin, tenant, connection))

    def _begin(self, tenant: str, connection: ClientPort) -> None:
        self._scheduled.discard(tenant)
        queue = self._queues.get(tenant)
        if queue is None:
            return  # all have ended
        try:
            if connection in queue and self._ready_count(tenant):
                del queue[connection]
                self._usage_of(tenant).waiting -= 1
                connection.stop_waiting()
                if connection in queue:  # it waits again, and those behind it with it
                    queue.move_to_end(connection, last=False)
                    return
        finally:  # also where this connection fails
            if self._queues.get(tenant) is queue and connection not in queue:
                self._call_next(tenant)
