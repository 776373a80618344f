# SPDX-License-Identifier: Apache-2.0
"""Turns of calls into guests: few at once on the node, and not all of them one tenant's.

A guest that was taken over answers just before each deadline, and so has its turn for as long as a call may
take. Where all turns could be one tenant's, as many of its guests kept everybody else's waiting.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CallSemaphore:
    """`count` at once, of one tenant `most`; of those that wait the tenant with fewest turns is next."""

    def __init__(self, count: int, most: int) -> None:
        self._free = count
        self._most = most
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a turn of `tenant`, and have it until the block ends."""
        await self._begin(tenant)
        try:
            yield
        finally:
            self._over(tenant)

    async def _begin(self, tenant: str) -> None:
        if self._free and self._held[tenant] < self._most:
            self._take(tenant)  # who waits has as many turns as its tenant may have
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._leave(tenant, granted)
            else:
                self._over(tenant)
            raise

    def _take(self, tenant: str) -> None:
        self._free -= 1
        self._held[tenant] += 1

    def _over(self, tenant: str) -> None:
        self._free += 1
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
        self._advance()

    def _leave(self, tenant: str, granted: "asyncio.Future[None]") -> None:
        waiting = self._waiting.get(tenant)
        if waiting is not None and granted in waiting:
            waiting.remove(granted)
            if not waiting:
                del self._waiting[tenant]

    def _advance(self) -> None:
        while self._free:
            able = [tenant for tenant in self._waiting if self._held[tenant] < self._most]
            if not able:
                return
            tenant = min(able, key=self._held.__getitem__)
            waiting = self._waiting[tenant]
            granted = waiting.popleft()
            del self._waiting[tenant]
            if waiting:
                self._waiting[tenant] = waiting  # behind the others that have as many
            if not granted.done():
                self._take(tenant)
                granted.set_result(None)
