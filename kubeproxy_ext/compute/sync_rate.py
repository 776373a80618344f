# SPDX-License-Identifier: Apache-2.0
"""The sync rate limiter: when a tenant's rules are computed. Pure.

After each run there is a gap. The first change after the gap is run at once; changes within the gap wait
for its end, and one run takes them all. So a change waits for at most one gap and one run, and constant
changes make one run a gap. (kube-proxy: BoundedFrequencyRunner.)

The gap is at least as long as the last run, so that computing leaves half of the time to others. It has a
maximum.
"""

from dataclasses import dataclass, replace

# kube-proxy's minimum is 1 s (--iptables-min-sync-period): in a busy cluster a change waits 0.4 to 0.7 s.
# The changes of a rolling update are tens of milliseconds apart.
GAP_S = 0.05
MAX_GAP_S = 1.0


@dataclass(frozen=True, slots=True)
class SyncRateLimiter:
    """The state of one tenant. Times are of one monotonic clock, in seconds.

    `waiting_since` is the time of the first change that no run has taken; `open_at` is the end of the gap.
    """

    waiting_since: float | None = None
    open_at: float = float("-inf")

    @property
    def due_at(self) -> float | None:
        """The earliest time of the next run; None without a change."""
        return None if self.waiting_since is None else max(self.waiting_since, self.open_at)

    def is_due(self, now: float) -> bool:
        due_at = self.due_at
        return due_at is not None and due_at <= now

    def changed(self, now: float) -> "SyncRateLimiter":
        """A change came."""
        return self if self.waiting_since is not None else replace(self, waiting_since=now)

    def ran(self, started: float, ended: float, gap_s: float = GAP_S) -> "SyncRateLimiter":
        """A run took all changes until `started`. `gap_s` is the least gap after it."""
        # The maximum also holds where the clock jumps.
        return SyncRateLimiter(None, ended + min(max(gap_s, ended - started), MAX_GAP_S))
