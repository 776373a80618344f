# SPDX-License-Identifier: Apache-2.0
"""Whether a process stays flat: memory, descriptors, threads in quiet times. Values in, verdict out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

# The levels are judged from so many samples of one process over so long, the trend from so many over so long.
# Fewer say nothing: caches fill, and one garbage collection is a trend.
LEVEL_SAMPLES, LEVEL_SPAN_S = 20, 30.0
TREND_SAMPLES, TREND_SPAN_S = 100, 600.0
# Python frees arenas late, and caches of the daemons fill to their bounds.
MEMORY_SHARE, MEMORY_MB = 0.10, 4.0
# Connections of the pool to the kubelet come and go with the load: a few at any time.
DESCRIPTORS = 12
# The pools of threads that asyncio fills lazily.
THREADS = 4
# Steady growth: what an hour of it would take.
STEADY_MB_PER_HOUR = 24.0
STEADY_DESCRIPTORS_PER_HOUR = 6.0
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
class Trend:
    """The median slope of all pairs of samples (Theil-Sen), and the share of pairs that rise."""

    per_hour: float
    rising_share: float


@dataclass(frozen=True, slots=True)
class Growth:
    """The longest life of a daemon's processes, without its first quarter: medians of the second and the last
    quarter, and trends."""

    daemon: str
    span_s: float
    samples: int
    pss_mb: tuple[float, float]
    descriptors: tuple[float, float]
    threads: tuple[float, float]
    pss_trend: Trend
    descriptor_trend: Trend

    @property
    def has_levels(self) -> bool:
        """Whether the medians can be compared."""
        return self.samples >= LEVEL_SAMPLES and self.span_s >= LEVEL_SPAN_S

    @property
    def has_trend(self) -> bool:
        """Whether the trends say anything."""
        return self.samples >= TREND_SAMPLES and self.span_s >= TREND_SPAN_S


def growth(daemon: str, samples: Sequence[UsageSample]) -> Growth | None:
    """The growth of a daemon in its quiet times; None where no process has a sample in each quarter."""
    by_pid: dict[int, list[UsageSample]] = {}
    for sample in samples:
        if sample.daemon == daemon and sample.is_quiet:
            by_pid.setdefault(sample.pid, []).append(sample)
    longest = max(by_pid.values(), key=lambda life: life[-1].at_s - life[0].at_s, default=[])
    quarter = len(longest) // 4
    if not quarter:
        return None
    first, last, judged = longest[quarter : 2 * quarter], longest[-quarter:], longest[quarter:]

    def medians(value: Callable[[UsageSample], float]) -> tuple[float, float]:
        return median(map(value, first)), median(map(value, last))

    return Growth(
        daemon,
        longest[-1].at_s - longest[quarter].at_s,
        len(judged),
        medians(lambda each: each.pss_mb),
        medians(lambda each: each.descriptors),
        medians(lambda each: each.threads),
        _trend([(each.at_s, each.pss_mb) for each in judged]),
        _trend([(each.at_s, each.descriptors) for each in judged]),
    )


def growth_problems(grown: Growth) -> list[str]:
    """In what the daemon is not flat, as far as there are samples to judge it."""
    found = []
    if grown.has_levels:
        first, last = grown.pss_mb
        if last > first * (1 + MEMORY_SHARE) + MEMORY_MB:
            found.append(f"the memory of {grown.daemon} grew from {first:.1f} to {last:.1f} MB")
        for what, (begin, end), room in (
            ("descriptors", grown.descriptors, DESCRIPTORS),
            ("threads", grown.threads, THREADS),
        ):
            if end > begin + room:
                found.append(f"the {what} of {grown.daemon} grew from {begin:.0f} to {end:.0f}")
    if grown.has_trend:
        for what, trend, most, unit in (
            ("memory", grown.pss_trend, STEADY_MB_PER_HOUR, " MB"),
            ("number of descriptors", grown.descriptor_trend, STEADY_DESCRIPTORS_PER_HOUR, ""),
        ):
            if trend.rising_share >= STEADY_SHARE and trend.per_hour >= most:
                text = f"the {what} of {grown.daemon} grows steadily, by {trend.per_hour:.0f}{unit} an hour"
                found.append(text)
    return found


def not_judged(daemon: str, grown: Growth | None) -> str:
    """What could not be judged, and why; empty if all was."""
    if grown is None:
        return f"{daemon}: growth was not judged: no process has lived for four samples"
    seen = f"{grown.samples} samples over {grown.span_s:.0f} s"
    if not grown.has_levels:
        needed = f"{LEVEL_SAMPLES} over {LEVEL_SPAN_S:.0f} s"
        return f"{daemon}: growth was not judged: {seen} of one process, and it takes {needed}"
    if not grown.has_trend:
        needed = f"{TREND_SAMPLES} over {TREND_SPAN_S:.0f} s"
        return f"{daemon}: steady growth was not judged: {seen} of one process, and it takes {needed}"
    return ""


def _trend(points: Sequence[tuple[float, float]]) -> Trend:
    step = -(-len(points) // _MOST_SAMPLES)
    kept = points[::step]
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for index, earlier in enumerate(kept)
        for later in kept[index + 1 :]
        if later[0] > earlier[0]
    ]
    if not slopes:
        return Trend(0.0, 0.0)
    return Trend(median(slopes) * 3600, sum(slope > 0 for slope in slopes) / len(slopes))
