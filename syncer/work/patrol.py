# SPDX-License-Identifier: Apache-2.0
"""Compares both sides of every object, and has those planned again that have not been verified.

A pair of versions that was once planned without anything to do is verified. So a patrol compares two texts an
object, and decodes nothing. Of a kind whose caches have not changed it compares those alone that were not
verified. What changed was queued by its event already; a patrol finds what lost its event, and what waits
without a watch.
"""

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Generator, Mapping

from daemonkit.fairness.steps import in_steps
from syncer.metrics import SyncerMetrics
from syncer.tenant.deletions import SyncKey
from syncer.tenant.session import TenantSession
from syncer.work.queue import WorkQueue

# Objects between two turns of the loop: a millisecond, and 5 ms where each is queued.
_BATCH = 250
# After the first patrol of a tenant, which deletes nothing: long enough for the lists' echoes.
SECOND_AFTER_S = 2.0
# Events of this long before a start are copied: those that an earlier run may have missed.
RECENT_EVENTS_S = 120.0


class Patrol:
    """Patrols each attached tenant: at its start, soon after, and then at an interval."""

    def __init__(
        self,
        queue: WorkQueue,
        metrics: SyncerMetrics,
        sessions: Mapping[str, TenantSession],
        *,
        interval_s: float,
        patrolled: Callable[[TenantSession], Generator[None, None, None]],
        cpu_clock: Callable[[], float] = time.process_time,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._queue = queue
        self._metrics = metrics
        self._sessions = sessions
        self._interval_s = interval_s
        self._patrolled = patrolled
        self._cpu_clock = cpu_clock
        self._wall = wall

    async def start(self, session: TenantSession) -> None:
        """The first two patrols of a tenant. What only the super cluster has is deleted by the second."""
        before = dt.datetime.fromtimestamp(self._wall() - RECENT_EVENTS_S, dt.UTC)
        await in_steps(session.enqueue_unreadable())
        await session.verified.skip_events(before.strftime("%Y-%m-%dT%H:%M:%SZ"))
        await self.check(session)
        await asyncio.sleep(SECOND_AFTER_S)
        session.deletion_judge.end_first_patrol()
        await self.check(session)

    async def run(self) -> None:
        """Patrol all tenants at each interval, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            for session in list(self._sessions.values()):
                if session.deletion_judge.has_patrolled:
                    await session.account.run(self.check(session))

    async def check(self, session: TenantSession) -> int:
        """Queue every pair that is not verified; returns their number."""
        began = self._cpu_clock()
        found, pairs = 0, list[SyncKey]()
        session.check_api_server()
        for items in session.compared.unverified(_BATCH):
            found += len(items)
            for item, is_whole in items:
                # What is on one side alone lacks something. A pair most often lacks nothing, and waits
                # until all of the others are found: after a start thousands are planned meanwhile.
                if is_whole:
                    pairs.append(item)
                else:
                    self._queue.add(session, item)
            await asyncio.sleep(0)
        for count, item in enumerate(pairs, 1):
            self._queue.add(session, item, is_low_priority=True)
            if count % _BATCH == 0:
                await asyncio.sleep(0)
        await in_steps(self._patrolled(session))
        await session.deletion_judge.judge()
        if session.deletion_judge.has_patrolled:
            self._metrics.repairs.inc(found)
        self._metrics.patrol_seconds.observe(self._cpu_clock() - began)
        return found
