# SPDX-License-Identifier: Apache-2.0
"""The fair queue on the loop's clock: `get` waits until an item is due."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping

from daemonkit.fairness.emptying import Holder
from daemonkit.metrics import Histogram
from syncer.core.fair_queue import Depths, FairQueue, FairQueueSettings
from syncer.core.plan import Direction
from syncer.metrics import TENANT_CLASSES, tenant_class
from syncer.tenant.api_server import MAX_IN_FLIGHT
from syncer.tenant.deletions import SyncKey
from syncer.tenant.session import TenantSession


class WorkQueue:
    """Items of attached tenants. `now` is monotonic, `jitter` draws from 0 to 1."""

    def __init__(
        self, now: Callable[[], float], jitter: Callable[[], float], waited: Mapping[str, Histogram]
    ) -> None:
        """`waited` has a histogram for each class of tenants."""
        self._queue: FairQueue[SyncKey] = FairQueue(FairQueueSettings(max_in_flight=MAX_IN_FLIGHT))
        self._now = now
        self._jitter = jitter
        self._waited = waited
        self._sessions: dict[str, TenantSession] = {}
        self._woken = asyncio.Event()
        self._ended = asyncio.Event()

    def attach(self, session: TenantSession) -> None:
        """Let the tenant's items in."""
        self._sessions[session.tenant.key] = session
        self._queue.set_weight(session.tenant.key, session.tenant.weight)

    def detach(self, session: TenantSession) -> tuple[Holder, ...]:
        """Forget the tenant's items; those under way end. Returns what held them, to be emptied in steps."""
        if self._sessions.get(session.tenant.key) is not session:
            return ()
        del self._sessions[session.tenant.key]
        return self._queue.remove_tenant(session.tenant.key)

    def add(self, session: TenantSession, item: SyncKey, *, is_low_priority: bool = False) -> None:
        """Queue an item of an attached tenant; nothing happens if it is queued already."""
        if self._sessions.get(session.tenant.key) is session:
            self._queue.add(session.tenant.key, item, self._now(), is_low_priority=is_low_priority)
            self._wake()

    def add_after(self, session: TenantSession, item: SyncKey, delay_s: float) -> None:
        """Queue an item later."""
        if self._sessions.get(session.tenant.key) is session:
            self._queue.add_after(session.tenant.key, item, delay_s, self._now())
            self._woken.set()

    async def get(self) -> tuple[TenantSession, SyncKey]:
        """Wait for the next item; `done` must follow."""
        while True:
            self._woken.clear()
            now = self._now()
            found = self._queue.get(now)
            if found is not None:
                session = self._sessions.get(found.tenant)
                if session is not None:
                    self._waited[tenant_class(session.tenant.weight)].observe(now - found.added_s)
                    return session, found.item
                self._queue.done(found.tenant, found.item)
                continue
            due = self._queue.next_due_s()
            if due is None:
                await self._woken.wait()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due - now)):
                    await self._woken.wait()

    def retry(
        self, session: TenantSession, item: SyncKey, direction: Direction, retry_after_s: float = 0.0
    ) -> float:
        """Have one direction of an item that failed tried again, after a backoff of its own.

        Not before the server allows it. Returns when that is.
        """
        tenant, now = session.tenant.key, self._now()
        if self._sessions.get(tenant) is not session:
            return now
        found = self._queue.retry(tenant, item, now, self._jitter(), at_least_s=retry_after_s, part=direction)
        self._woken.set()
        return found

    def forget(self, session: TenantSession, item: SyncKey, direction: Direction) -> None:
        """One direction of an item did not fail: its next backoff is the first one."""
        self._queue.forget(session.tenant.key, item, direction)

    def wait_s(self, until_s: float) -> float:
        """How long it is until then; not positive if it was."""
        return until_s - self._now()

    def begin_writes(self, session: TenantSession, item: SyncKey) -> None:
        """An item that `get` gave has something to write: what is of low priority waits no more for it."""
        self._queue.begin_writes(session.tenant.key, item)
        self._wake()

    def done(self, session: TenantSession, item: SyncKey) -> None:
        """End an item that `get` gave."""
        self._queue.done(session.tenant.key, item)
        self._wake()
        self._ended.set()

    def _wake(self) -> None:
        """Have `get` look again, if it would find something."""
        if self._queue.has_ready:
            self._woken.set()

    def depths(self, session: TenantSession) -> Depths:
        """What the items of a tenant wait for."""
        return self._queue.depths(session.tenant.key)

    def totals(self) -> dict[tuple[str, ...], float]:
        """The items of all tenants, by their class and by state."""
        found: Counter[tuple[str, str]] = Counter()
        for tenant in self._queue.tenants():
            depths, of = self._queue.depths(tenant), self._class_of(tenant)
            found[of, "ready"] += depths.ready
            found[of, "delayed"] += depths.delayed
            found[of, "inFlight"] += depths.in_flight
        states = ("ready", "delayed", "inFlight")
        return {(of, state): float(found[of, state]) for of in TENANT_CLASSES for state in states}

    def oldest_ages_s(self) -> dict[tuple[str, ...], float]:
        """How long the oldest item of each class of tenants waits; 0 where none does."""
        ages = dict.fromkeys(TENANT_CLASSES, 0.0)
        now = self._now()
        for tenant in self._queue.tenants():
            oldest_s, of = self._queue.depths(tenant).oldest_s, self._class_of(tenant)
            if oldest_s is not None:
                ages[of] = max(ages[of], now - oldest_s)
        return {(of,): age_s for of, age_s in ages.items()}

    def _class_of(self, tenant: str) -> str:
        session = self._sessions.get(tenant)
        return tenant_class(1 if session is None else session.tenant.weight)

    async def drain(self, timeout_s: float) -> None:
        """Give out nothing more, and wait for what is under way, for `timeout_s` at most."""
        self._queue.shut_down()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._queue.has_drained:
                    self._ended.clear()
                    await self._ended.wait()
