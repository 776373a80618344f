# SPDX-License-Identifier: Apache-2.0
"""Polls the sockets of all TLS connections: the groups of all tenants, one wheel for all deadlines."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from daemonkit.fairness.scheduler import Account, TenantScheduler
from vnagent.transport.handler import ByteUsage
from vnagent.transport.poll_groups import PolledSocket, PollGroup, PollTurns
from vnagent.transport.timing_wheel import TICK_S, TICKS

# Events of a tenant that are handled in one iteration of the loop, some 0.05 ms each. A tenant may have a
# thousand connections that are ready at once; others are served in between. With 4, a tenant that alone keeps
# vn-agent busy was served 12 % less.
TENANT_EVENTS = 16
# Events of clients without a tenant: in their handshake, or without a registered certificate. The end of
# a handshake takes 1 ms: with 16, 150 that ended together delayed a neighbour's log by 39 ms (with 4, by 16).
SHARED_EVENTS = 4
# Events of vn-agent's own requests to the kubelet, 128 KiB each.
OWN_EVENTS = 4
# Each socket is looked at once in so many sweeps, every 16 s, and when its deadline passes. A look takes
# 2 us, of which the check for a vanished peer takes 0.6 us.
CHECKED_PARTS = TICKS
# Looks in one iteration of the loop: sockets that were opened together are looked at together.
LOOKED_AT_ONCE = 200
# Groups that are closed in one sweep, 0.01 ms each.
CLOSED_AT_ONCE = 100
# For how long connections and tunnels are looked at and end in one iteration of the loop. A look takes 2 us,
# an end 0.04 ms, and up to 0.17 ms for a tunnel. Ten thousand connections have ended after some thirty
# iterations.
ENDING_S = 0.015

Ending = TypeVar("Ending")


class SocketPoller(PollTurns):
    """All polled sockets: their groups, and one wheel for their deadlines. An account for each tenant, which
    also takes what other parts do for it (`scheduler`).

    `now` is the loop's clock as of the last sweep, up to PERIOD_S ago: deadlines are seconds, and reading the
    clock for each would be a noticeable part of a small request. `shared` is the group of clients without a
    tenant, so far. `own` is the group of vn-agent's own requests to the kubelet. All tenants' pages wait for
    these, so clients without an identity must not delay them.
    """

    PERIOD_S = TICK_S

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.thread_time
    ) -> None:
        """`clock` measures turns, in seconds: the processor time of the loop's thread, as tenants must not
        pay for what other processes do. Reading it takes 0.3 us, once an event."""
        super().__init__(loop, clock)
        self.now = loop.time()
        self.scheduler = TenantScheduler()
        self.shared = PollGroup(self, SHARED_EVENTS, self.scheduler.open("clients without a tenant"))
        self.own = PollGroup(self, OWN_EVENTS, self.scheduler.open("vn-agent"))
        self._accounts: dict[str, Account] = {}
        self._groups: dict[str, PollGroup] = {}
        # Tenants' groups that have lost their last socket, or had none yet.
        self._emptied: set[PollGroup] = set()
        self._is_empty = asyncio.Event()
        self._is_look_due = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.shared.start()
        self.own.start()
        self._sweep()

    def stop(self) -> None:
        """Abort what is left."""
        if self._timer is not None:
            self._timer.cancel()
        for polled in list(self.by_fd.values()):
            polled.abort()
        for group in (self.shared, self.own, *self._groups.values()):
            group.close()
        self._groups.clear()

    def account_of(self, tenant: str) -> Account:
        """What is done for the tenant on the loop, until `close_account`."""
        account = self._accounts.get(tenant)
        if account is None:
            account = self._accounts[tenant] = self.scheduler.open(tenant)
        return account

    def close_account(self, tenant: str) -> None:
        """The tenant was removed, and has nothing open."""
        account = self._accounts.pop(tenant, None)
        if account is not None:
            account.close()

    def group_of(self, tenant: str, usage: ByteUsage) -> PollGroup:
        """The tenant's group, with its `usage`; the shared one where no descriptor is left for it."""
        group = self._groups.get(tenant)
        if group is None:
            try:
                group = PollGroup(self, TENANT_EVENTS, self.account_of(tenant), has_debt=True)
            except OSError:
                return self.shared
            try:
                group.start()
            except OSError:
                group.close()
                return self.shared
            self._groups[tenant] = group
            self._emptied.add(group)
            self.tenant_count = len(self._groups)
        group.usage = usage
        group.use(self.account_of(tenant))
        return group

    def has_other_tenants(self, tenant: str) -> bool:
        """Whether another tenant than this one has connections."""
        return self.tenant_count > (1 if tenant in self._groups else 0)

    async def end_each(self, left: list[Ending], end: Callable[[Ending], object]) -> None:
        """Call `end` for each, for ENDING_S in one iteration of the loop. The list is empty then."""
        clock = self.clock
        while left:
            until_s = clock() + ENDING_S
            end(left.pop())
            while left and clock() < until_s:
                end(left.pop())
            await asyncio.sleep(0)

    async def abort_all(self) -> None:
        """Close all sockets at once, in steps: what `stop` would do in one."""
        await self.end_each(list(self.by_fd.values()), _abort)

    async def wait_closed(self, timeout_s: float) -> None:
        """Wait until all sockets are closed, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.by_fd:
                    self._is_empty.clear()
                    await self._is_empty.wait()

    def add(self, fd: int, polled: PolledSocket) -> None:
        """The socket is in the epoll of its group."""
        polled.group.join()
        self.by_fd[fd] = polled
        self.wheel.add(polled, self.now + CHECKED_PARTS * TICK_S)

    def forget(self, fd: int) -> None:
        """The socket is about to be closed, which takes it out of its epoll."""
        polled = self.by_fd.pop(fd)
        polled.group.leave()
        self.wheel.remove(polled)
        if not self.by_fd:
            self._is_empty.set()

    def _expire(self, polled: PolledSocket) -> None:
        """In its group's turn, as a thousand deadlines of a tenant may pass at once."""
        deadline = polled.deadline
        if deadline is not None and self.now >= deadline:  # not moved meanwhile
            polled.expire()
        self._look_later(polled)

    def _look_later(self, polled: PolledSocket) -> None:
        """Look at it again at its deadline, or when its peer is to be checked."""
        check_s, deadline = self.now + CHECKED_PARTS * TICK_S, polled.deadline
        self.wheel.put(polled, check_s if deadline is None or deadline > check_s else deadline)

    def close_if_empty(self, group: PollGroup) -> None:
        """Close a tenant's group in a sweep to come, if it still has no socket then."""
        if group is not self.shared and group is not self.own:
            self._emptied.add(group)

    def _close_empty(self) -> None:
        busy = []
        for _ in range(min(len(self._emptied), CLOSED_AT_ONCE)):
            group = self._emptied.pop()
            if group.is_empty:
                del self._groups[group.account.name]
                group.close()
            elif not group.size:
                busy.append(group)  # calls are left
        self._emptied.update(busy)
        self.tenant_count = len(self._groups)

    def _sweep(self) -> None:
        self.now = now = self.loop.time()
        self._timer = self.loop.call_at((int(now / TICK_S) + 1) * TICK_S, self._sweep)
        self._close_empty()
        self.wheel.turn(now)
        if not self._is_look_due:
            self._look()

    def _look(self) -> None:
        """Look at some sockets that are due, and at the others in the next iterations of the loop."""
        self._is_look_due = False
        for _ in range(LOOKED_AT_ONCE):
            polled = self.wheel.pop()
            if polled is None:
                return
            deadline = polled.deadline
            if deadline is not None and self.now >= deadline:
                polled.group.call_soon(polled, partial(self._expire, polled))
            else:
                self.call_guarded(polled, polled.check_peer)
                self._look_later(polled)
        self._is_look_due = True
        self.watcher.call_soon(self._look)


def _abort(polled: PolledSocket) -> None:
    polled.abort()
