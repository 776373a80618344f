# SPDX-License-Identifier: Apache-2.0
"""Times of Leases, and clocks by which a holder and others judge them. Pure.

A holder stops `RENEW_DEADLINE_S` after the *begin* of its last accepted renewal. Others wait
`LEASE_DURATION_S` after they *saw* it. So clocks need not agree; they must only run about equally fast. A
clock may even stop, as the monotonic one does while a machine is suspended: a holder's own deadline has
passed as soon as one of its two clocks shows it (`Instant.elapsed_s`).
"""

import datetime as dt
from dataclasses import dataclass

# The defaults of client-go's leader election.
LEASE_DURATION_S = 15
RENEW_DEADLINE_S = 10.0
RETRY_S = 2.0

DRIFT = 0.1
"""How far a clock's rate may be from that of true time."""

# What others write is believed within these: zero would expire at once, and a year never.
_DURATIONS_S = (1.0, 300.0)


@dataclass(frozen=True, slots=True)
class Instant:
    """A time by a monotonic and by a wall clock of one machine."""

    monotonic_s: float
    wall_s: float

    def elapsed_s(self, until: "Instant") -> float:
        """The longer of what both clocks measured: one may have stopped, or was set back."""
        return max(until.monotonic_s - self.monotonic_s, until.wall_s - self.wall_s)


def duration_s(written: object) -> float:
    """`leaseDurationSeconds` of a Lease, bounded. What is no number counts as the default."""
    shortest_s, longest_s = _DURATIONS_S
    found = float(written) if isinstance(written, int) else float(LEASE_DURATION_S)
    return min(max(found, shortest_s), longest_s)


def lease_time(wall_s: float) -> str:
    """A time of day as a Lease has it."""
    return dt.datetime.fromtimestamp(wall_s, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
