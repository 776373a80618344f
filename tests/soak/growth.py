# SPDX-License-Identifier: Apache-2.0
"""Whether a process stays flat: memory, descriptors, threads in quiet times. Values in, verdict out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

# A quarter with fewer samples than this says nothing.
LEAST_SAMPLES = 3
# Python frees arenas late, and caches of the daemons fill to their bounds.
MEMORY_SHARE, MEMORY_MB = 0.10, 4.0
# Connections of the pool to the kubelet come and go with the load: a few at any time.
DESCRIPTORS = 12
# The pools of threads that asyncio fills lazily.
THREADS = 4
# A longer series also has to show no steady growth: an hour of it would take this much.
STEADY_SPAN_S = 600.0
STEADY_MB_PER_HOUR = 24.0
# Of all pairs of samples, the share in which the later one is higher: 0.5 without a trend.
STEADY_SHARE = 0.85
# More samples than this are thinned before the pairs are formed.
_MOST_SAMPLES = 200


@dataclass(frozen=True, slots=True)
class UsageSample:
    """One look at a process; `pss_mb` in MB of 10^6 bytes."""

    at_s: float
    daemon: str
    pid: int
    pss_mb: float
    descriptors: int
    threads: int
    is_quiet: bool


@dataclass(frozen=True, slots=True)
class Growth:
    """The medians of the second and the last quarter of the longest life of a daemon's processes."""

    daemon: str
    span_s: float
    samples: int
    pss_mb: tuple[float, float]
    descriptors: tuple[float, float]
    threads: tuple[float, float]
    mb_per_hour: float
    rising_share: float


def growth(daemon: str, samples: Sequence[UsageSample]) -> Growth | None:
    """The growth of a daemon in its quiet times; None with too few samples of one process."""
    by_pid: dict[int, list[UsageSample]] = {}
    for sample in samples:
        if sample.daemon == daemon and sample.is_quiet:
            by_pid.setdefault(sample.pid, []).append(sample)
    longest = max(by_pid.values(), key=lambda life: life[-1].at_s - life[0].at_s, default=[])
    quarter = len(longest) // 4
    if quarter < LEAST_SAMPLES:
        return None
    first, last = longest[quarter : 2 * quarter], longest[-quarter:]

    def medians(value: Callable[[UsageSample], float]) -> tuple[float, float]:
        return median(map(value, first)), median(map(value, last))

    slope, rising = _trend([(each.at_s, each.pss_mb) for each in longest[quarter:]])
    return Growth(
        daemon,
        longest[-1].at_s - longest[quarter].at_s,
        len(longest),
        medians(lambda each: each.pss_mb),
        medians(lambda each: each.descriptors),
        medians(lambda each: each.threads),
        slope * 3600,
        rising,
    )


def growth_problems(grown: Growth) -> list[str]:
    """In what the daemon is not flat."""
    found = []
    first, last = grown.pss_mb
    if last > first * (1 + MEMORY_SHARE) + MEMORY_MB:
        found.append(f"the memory of {grown.daemon} grew from {first:.1f} to {last:.1f} MB")
    is_steady = grown.rising_share >= STEADY_SHARE and grown.mb_per_hour >= STEADY_MB_PER_HOUR
    if grown.span_s >= STEADY_SPAN_S and is_steady:
        found.append(f"the memory of {grown.daemon} grows steadily, by {grown.mb_per_hour:.0f} MB an hour")
    for what, (begin, end), room in (
        ("descriptors", grown.descriptors, DESCRIPTORS),
        ("threads", grown.threads, THREADS),
    ):
        if end > begin + room:
            found.append(f"the {what} of {grown.daemon} grew from {begin:.0f} to {end:.0f}")
    return found


def _trend(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The median slope of all pairs (Theil-Sen), and the share of pairs that rise."""
    step = -(-len(points) // _MOST_SAMPLES)
    kept = points[::step]
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for index, earlier in enumerate(kept)
        for later in kept[index + 1 :]
        if later[0] > earlier[0]
    ]
    if not slopes:
        return 0.0, 0.0
    return median(slopes), sum(slope > 0 for slope in slopes) / len(slopes)
