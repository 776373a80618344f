# SPDX-License-Identifier: Apache-2.0
"""A semaphore for calls into guests that no tenant can take whole.

A compromised guest answers just before each deadline and so holds its slot as long as a call may last.
Without a limit per tenant, enough guests of one tenant would block those of all others.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CallSemaphore:
    """`size` slots, at most `per_tenant` for one tenant; the waiting tenant with fewest slots is next."""

    def __init__(self, size: int, per_tenant: int) -> None:
        self._free = size
        self._per_tenant = per_tenant
        self._used: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def slot(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a slot and hold it until the block ends."""
        await self._acquire(tenant)
        try:
            yield
        finally:
            self._release(tenant)

    async def _acquire(self, tenant: str) -> None:
        if self._free and self._used[tenant] < self._per_tenant:
            self._take(tenant)  # all that wait are at their tenant's limit
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._stop_waiting(tenant, granted)
            else:
                self._release(tenant)
            raise

    def _take(self, tenant: str) -> None:
        self._free -= 1
        self._used[tenant] += 1

    def _release(self, tenant: str) -> None:
        self._free += 1
        self._used[tenant] -= 1
        if not self._used[tenant]:
            del self._used[tenant]
        self._grant_free_slots()

    def _stop_waiting(self, tenant: str, granted: "asyncio.Future[None]") -> None:
        waiting = self._waiting.get(tenant)
        if waiting is not None and granted in waiting:
            waiting.remove(granted)
            if not waiting:
                del self._waiting[tenant]

    def _grant_free_slots(self) -> None:
        while self._free:
            eligible = [tenant for tenant in self._waiting if self._used[tenant] < self._per_tenant]
            if not eligible:
                return
            tenant = min(eligible, key=self._used.__getitem__)
            waiting = self._waiting[tenant]
            granted = waiting.popleft()
            del self._waiting[tenant]
            if waiting:
                self._waiting[tenant] = waiting  # behind other tenants with as many slots
            if not granted.done():
                self._take(tenant)
                granted.set_result(None)
