# SPDX-License-Identifier: Apache-2.0
"""The parts of the vn-agent bench: which slices each runs, and which figures it makes of them."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tests.bench.figures import Bound, Figure, RatioRow, row
from tests.bench.measuring import (
    EXECS,
    PACED,
    REQUESTS,
    STREAMS,
    LoadSample,
    LoadSlice,
    MemorySample,
    ProxyBench,
)
from tests.bench.nginx import NGINX
from tests.bench.subjects import OURS, PEER, MeasuredProxy, RunningProxy

DIRECT = "direct"
GB = 1_000_000_000

Sample = TypeVar("Sample", LoadSample, MemorySample)

Log = Callable[[str], None]


@dataclass(slots=True)
class Collected:
    """All samples of a run: slice name -> subject name -> one sample a round."""

    load: dict[str, dict[str, list[LoadSample]]] = field(default_factory=dict)
    memory: dict[str, list[MemorySample]] = field(default_factory=dict)

    def add(self, slice_name: str, subject: str, sample: LoadSample) -> None:
        self.load.setdefault(slice_name, {}).setdefault(subject, []).append(sample)


def run_loads(
    bench: ProxyBench, proxies: dict[str, RunningProxy], part: str, rounds: int, into: Collected, log: Log
) -> None:
    """Run one part: a warm-up round, then `rounds` rounds in which the order is shuffled."""
    slices = SLICES[part]
    for number in range(rounds + 1):
        for what in slices:
            subjects = [*proxies, *([DIRECT] if what is PACED else [])]
            for name in random.sample(subjects, k=len(subjects)):
                proxy = proxies.get(name)
                sample = bench.through(proxy, what) if proxy else bench.direct(what)
                if number > 0:
                    into.add(what.name, name, sample)
        log(f"{part}: round {number} of {rounds}" if number else f"{part}: warm-up round")


def run_memory(
    bench: ProxyBench, subjects: Sequence[MeasuredProxy], rounds: int, into: Collected, log: Log
) -> None:
    """Measure fresh processes only: a heap after load does not show the memory of idle tunnels."""
    for number in range(1, rounds + 1):
        for subject in random.sample(list(subjects), k=len(subjects)):
            proxy = subject.start()
            try:
                into.memory.setdefault(subject.name, []).append(bench.memory(proxy))
            finally:
                proxy.process.stop()
        log(f"memory: round {number} of {rounds}")


SLICES: dict[str, Sequence[LoadSlice]] = {
    "requests": (*REQUESTS, PACED),
    "stream": STREAMS,
    "exec": EXECS,
}
PARTS = (*SLICES, "memory")


def _per_cpu_second(sample: LoadSample) -> float:
    return sample.operations / sample.cpu_s


def _per_second(sample: LoadSample) -> float:
    return sample.operations / sample.seconds


def _cpu_us(sample: LoadSample) -> float:
    return sample.cpu_s / sample.operations * 1e6


def _mb_per_second(sample: LoadSample) -> float:
    return sample.total_bytes / sample.seconds / 1e6


def _cpu_per_gb(sample: LoadSample) -> float:
    return sample.cpu_s / sample.total_bytes * GB


def _p50_us(sample: LoadSample) -> float:
    return sample.p50_us


def _p99_us(sample: LoadSample) -> float:
    return sample.p99_us


def _at_least(value: float) -> Bound:
    return Bound(value, is_floor=True)


def _at_most(value: float) -> Bound:
    return Bound(value, is_floor=False)


def _own_at_most(value: float) -> Bound:
    return Bound(value, is_floor=False, is_absolute=True)


_TWICE = _at_least(2.0)
_FIGURES: dict[str, Sequence[tuple[Figure, Callable[[LoadSample], float]]]] = {
    "c1": (
        (Figure("1 KB requests, c=1", "per CPU s", None, _at_least(1.5)), _per_cpu_second),
        (Figure("", "per s"), _per_second),
        (Figure("", "p50 us"), _p50_us),
    ),
    "c32": (
        (Figure("1 KB requests, c=32", "per CPU s", _at_least(1.5), _TWICE), _per_cpu_second),
        (Figure("", "per s"), _per_second),
        (Figure("", "p99 us"), _p99_us),
    ),
    "c32-sized": (
        (
            Figure("same, Content-Length", "per CPU s", _at_least(1.5), _TWICE),
            _per_cpu_second,
        ),
        (Figure("", "per s"), _per_second),
    ),
    "paced": (
        (Figure("2000 requests/s, c=16", "p50 us"), _p50_us),
        (Figure("", "p99 us"), _p99_us),
        (Figure("", "CPU us each"), _cpu_us),
    ),
    "stream1": (
        (Figure("log stream x1", "MB/s", _at_least(1.0), _at_least(1.2)), _mb_per_second),
        (Figure("", "CPU s/GB", _at_most(1.0), _at_most(0.8)), _cpu_per_gb),
    ),
    "stream4": (
        (Figure("log stream x4", "MB/s", _at_least(1.0), _at_least(1.2)), _mb_per_second),
        (Figure("", "CPU s/GB", _at_most(1.0), _at_most(0.8)), _cpu_per_gb),
    ),
    "exec1": (
        (Figure("exec set-up, c=1", "p50 us", None, _at_most(1.0)), _p50_us),
        (Figure("", "per s"), _per_second),
        (Figure("", "CPU us each", None, _at_most(1.0)), _cpu_us),
    ),
    "exec4": (
        (Figure("exec set-up, c=4", "p50 us", None, _at_most(1.0)), _p50_us),
        (Figure("", "per s"), _per_second),
        (Figure("", "CPU us each", None, _at_most(1.0)), _cpu_us),
    ),
}
_ADDED = (
    (Figure("  added to no proxy", "p50 us", None, _at_most(1.0)), _p50_us),
    (Figure("", "p99 us", None, _at_most(1.0)), _p99_us),
)
# The bound is on the PSS of 500 tunnels. RSS, which counts shared pages in full, has no bound.
_MEMORY: Sequence[tuple[Figure, Callable[[MemorySample], float]]] = (
    (
        Figure("memory, 500 idle tunnels", "MB PSS", _own_at_most(45), _own_at_most(40)),
        lambda sample: sample.tunnels_pss_mb,
    ),
    (Figure("", "MB RSS"), lambda sample: sample.tunnels_rss_mb),
    (Figure("", "MB its own"), lambda sample: sample.tunnels_own_mb),
    (
        Figure("memory, 2 000 idle tunnels", "MB PSS", None, _own_at_most(110)),
        lambda sample: sample.many_pss_mb,
    ),
    (
        Figure("memory at start", "MB RSS", None, _own_at_most(25)),
        lambda sample: sample.start_rss_mb,
    ),
    (Figure("", "MB PSS"), lambda sample: sample.start_pss_mb),
    (Figure("", "MB its own"), lambda sample: sample.start_own_mb),
    (Figure("start to ready", "s", None, _own_at_most(0.15)), lambda sample: sample.start_s),
)


def rows(collected: Collected) -> list[RatioRow]:
    """Make every row that the samples allow, in the order of the parts."""
    made: list[RatioRow] = []
    for name, samples in collected.load.items():
        for figure, value in _FIGURES[name]:
            made.append(row(figure, *([value(each) for each in got] for got in _of_proxies(samples))))
        if name == PACED.name:
            made.extend(_added_rows(samples))
    for what, memory in _MEMORY if collected.memory else ():
        made.append(row(what, *([memory(each) for each in got] for got in _of_proxies(collected.memory))))
    return made


def _of_proxies(samples: dict[str, list[Sample]]) -> list[list[Sample]]:
    """Of vn-agent, of the peer, and of the second peer if there is one."""
    return [samples[who] for who in (OURS, PEER, NGINX) if who in samples]


def _added_rows(samples: dict[str, list[LoadSample]]) -> list[RatioRow]:
    made = []
    for figure, value in _ADDED:
        added = (
            [
                value(with_proxy) - value(without)
                for with_proxy, without in zip(got, samples[DIRECT], strict=True)
            ]
            for got in _of_proxies(samples)
        )
        made.append(row(figure, *added))
    return made
