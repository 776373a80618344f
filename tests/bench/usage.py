# SPDX-License-Identifier: Apache-2.0
"""CPU time of processes and their children, their memory, and the CPU time of other processes."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MB = 1_000_000
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat behind the name: proc(5) counts from 1, and the name is the second.
_CHILDREN_USER, _CHILDREN_SYSTEM = 16 - 3, 17 - 3


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """MB of 10^6 bytes. PSS divides a shared page by the number of its users."""

    rss_mb: float
    pss_mb: float
    anonymous_mb: float


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds so far of all threads, and of the children that have been waited for."""
    total_s = 0.0
    for pid in pids:
        # The clock's number is CPUCLOCK_SCHED of clock_getcpuclockid(3); children come in ticks.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total_s += time.clock_gettime((~pid << 3) | 2)
        total_s += (int(fields[_CHILDREN_USER]) + int(fields[_CHILDREN_SYSTEM])) * _TICK_S
    return total_s


def memory(pid: int) -> MemoryUsage:
    """The resident memory of a process."""
    fields: dict[str, float] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split(":")
        fields[name] = int(value.split()[0]) * 1024 / MB
    return MemoryUsage(fields["Rss"], fields["Pss"], fields["Anonymous"])


class Others:
    """The CPU time of all other processes than this one and its descendants.

    Descendants count after they have ended and were waited for: read it then.
    """

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._busy_s, self._ours_s = _busy_s(), _ours_s()

    def share(self) -> float:
        """Of all processors, since the beginning."""
        elapsed_s = (time.monotonic() - self._began_s) * (os.cpu_count() or 1)
        others_s = (_busy_s() - self._busy_s) - (_ours_s() - self._ours_s)
        return max(0.0, others_s / elapsed_s)


def _busy_s() -> float:
    """All processors' time that was not idle, from /proc/stat."""
    user, nice, system, _, _, interrupt, soft, stolen, *_ = (
        int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + interrupt + soft + stolen) * _TICK_S


def _ours_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
