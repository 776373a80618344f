# SPDX-License-Identifier: Apache-2.0
"""When a change goes out: at once after a quiet spell, with what else has come after a busy one. Pure.

After each run there is a gap, and what changes within it waits for its end; the next run takes all
of it. A change after the gap goes out at once. So nothing waits longer than one gap and one run,
and a steady rain of changes makes a run each gap, never one a change.

The gap grows with the length of the runs: computing must leave half of the time to other tenants
and to the loop. That growth has a bound, which is the most that a change ever waits for its turn.
"""

from dataclasses import dataclass, replace

# kube-proxy has a minimum of 1 s (--iptables-min-sync-period), its change in a busy cluster waits
# 0.4 to 0.7 s. A rolling update makes its changes in tens of milliseconds.
GAP_S = 0.05
MAX_GAP_S = 1.0


@dataclass(frozen=True, slots=True)
class SyncRateLimiter:
    """The state for one tenant. Times are of one monotonic clock, in seconds.

    `waiting_since` is when the first change came that no run has taken yet, `open_at` when the gap
    after the last run ends.
    """

    waiting_since: float | None = None
    open_at: float = float("-inf")

    @property
    def due_at(self) -> float | None:
        """When to run, at the earliest; None while nothing has changed."""
        return None if self.waiting_since is None else max(self.waiting_since, self.open_at)

    def is_due(self, now: float) -> bool:
        due_at = self.due_at
        return due_at is not None and due_at <= now

    def changed(self, now: float) -> "SyncRateLimiter":
        """Something changed that a run has to take."""
        return self if self.waiting_since is not None else replace(self, waiting_since=now)

    def ran(self, started: float, ended: float, gap_s: float = GAP_S) -> "SyncRateLimiter":
        """A run took everything that had changed by `started`; `gap_s` is the least that follows."""
        # A clock that an administrator sets is not monotonic; no gap may become longer by it.
        return SyncRateLimiter(None, ended + min(max(gap_s, ended - started), MAX_GAP_S))
