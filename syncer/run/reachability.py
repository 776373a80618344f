# SPDX-License-Identifier: Apache-2.0
"""Reports tenants that cannot be read, and why, on the VirtualCluster, and that it is over.

Either the API server is away, or the process has no memory for what it serves.
"""

import time
from collections.abc import Callable, Mapping

from daemonkit.kube.freshness import Failure
from daemonkit.remedies import Cause
from syncer.run.report import TENANT
from syncer.tenant.session import TenantSession

NOT_REACHABLE = "NotReachable"
OUT_OF_MEMORY = "OutOfMemory"
"""The tenant is not served, or not wholly, as the process holds as much as it may."""
REASONS = (NOT_REACHABLE, OUT_OF_MEMORY)
# An API server that restarts is away for some seconds.
REPORT_AFTER_S = 10.0


class Reachability:
    """`report` is called with a session, one of the REASONS and why; with an empty text once that is over.

    `was_reported` says whether an earlier process has reported a tenant for a reason. `changes` gives another
    value after each change by which a tenant may fail, or fail no more.
    """

    def __init__(
        self,
        sessions: Mapping[str, TenantSession],
        report: Callable[[TenantSession, str, str], None],
        was_reported: Callable[[TenantSession, str], bool],
        *,
        changes: Callable[[], object] = object,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self._report = report
        self._was_reported = was_reported
        self._changes = changes
        self._clock = clock
        self._quiet: tuple[object, list[TenantSession]] | None = None
        self._since: dict[TenantSession, float] = {}
        self._reported: dict[TenantSession, str] = {}
        self._judged: set[TenantSession] = set()

    def poll(self) -> None:
        """Look at each tenant once. Call it each second."""
        state = self._changes(), list(self._sessions.values())
        if state == self._quiet:
            return  # none failed, and nothing has changed: a thousand tenants are not looked at each second
        now = self._clock()
        sessions = set(state[1])
        self._judged &= sessions
        for ended in (self._since.keys() | self._reported.keys()) - sessions:
            self._since.pop(ended, None)
            self._reported.pop(ended, None)
        for session in sessions:
            failure = session.caches.failure
            if failure is not None:
                is_lasting = now - self._since.setdefault(session, now) >= REPORT_AFTER_S
                reason = NOT_REACHABLE if session.memory.problem is None else OUT_OF_MEMORY
                # Its text may change at each try; one report is enough.
                if is_lasting and self._reported.get(session) != reason:
                    self._end_others(session, reason)
                    self._reported[session] = reason
                    self._report(session, reason, _message(failure))
            elif self._is_settled(session):
                continue
            elif session.caches.has_synced:
                self._since.pop(session, None)
                self._end_others(session, None)
        is_quiet = not (self._since or self._reported) and self._judged.issuperset(sessions)
        self._quiet = state if is_quiet else None

    def _is_settled(self, session: TenantSession) -> bool:
        """Whether nothing is to be ended of a tenant that can be read: of most, each second."""
        return session in self._judged and session not in self._since and session not in self._reported

    def _end_others(self, session: TenantSession, reason: str | None) -> None:
        """End what was reported for another reason, also by an earlier process."""
        before = self._reported.pop(session, None)
        for each in REASONS:
            is_of_earlier = session not in self._judged and self._was_reported(session, each)
            if each != reason and (each == before or is_of_earlier):
                self._report(session, each, "")
        self._judged.add(session)


def _message(failure: Failure) -> str:
    """Why, and what to do about it, where that is known."""
    if failure.cause is Cause.OTHER:
        return failure.message
    return f"{failure.message}; {TENANT.remedy(failure.cause)}"
