# SPDX-License-Identifier: Apache-2.0
"""Reports tenants whose API server cannot be read: on the VirtualCluster, and that it is over."""

import asyncio
import time
from collections.abc import Callable, Mapping

from syncer.tenant.session import TenantSession

REASON = "NotReachable"
POLL_S = 1.0
# An API server that restarts is away for some seconds.
REPORT_AFTER_S = 10.0


class Reachability:
    """`report` is called with a session and why it cannot be read; with an empty text once it can.

    `was_reported` says whether an earlier process has reported a tenant.
    """

    def __init__(
        self,
        sessions: Mapping[str, TenantSession],
        report: Callable[[TenantSession, str], None],
        was_reported: Callable[[TenantSession], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self._report = report
        self._was_reported = was_reported
        self._clock = clock
        self._since: dict[TenantSession, float] = {}
        self._reported: set[TenantSession] = set()
        self._judged: set[TenantSession] = set()

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            self.poll()
            await asyncio.sleep(POLL_S)

    def poll(self) -> None:
        """Look at each tenant once."""
        now = self._clock()
        sessions = set(self._sessions.values())
        self._judged &= sessions
        for ended in (self._since.keys() | self._reported) - sessions:
            self._since.pop(ended, None)
            self._reported.discard(ended)
        for session in sessions:
            failure = session.caches.failure
            if failure is not None:
                is_lasting = now - self._since.setdefault(session, now) >= REPORT_AFTER_S
                # Its text may change at each try; one report is enough.
                if is_lasting and session not in self._reported:
                    self._judged.add(session)
                    self._reported.add(session)
                    self._report(session, failure.message)
            elif session.caches.has_synced:
                self._note_reachable(session)

    def _note_reachable(self, session: TenantSession) -> None:
        self._since.pop(session, None)
        is_over = session in self._reported
        if is_over or (session not in self._judged and self._was_reported(session)):
            self._report(session, "")
        self._reported.discard(session)
        self._judged.add(session)
