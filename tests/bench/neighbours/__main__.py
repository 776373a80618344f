# SPDX-License-Identifier: Apache-2.0
"""A tenant's latency beside each kind of abuser at its limits: `python -m tests.bench.neighbours`.

README.md of tests/bench explains the method. Exit code 0 for any figures, 1 when something did not run.
"""

import argparse
import itertools
import json
import os
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.bench import fixture, setting, usage
from tests.bench.attacked import NeighbourLatency, NeighbourLoad, attacking, measure_neighbour
from tests.bench.figures import laid_out, number
from tests.bench.fixture import CONTAINER, NAMESPACE, Fixture
from tests.bench.neighbours.abuser import ABUSERS
from tests.bench.processes import RunError
from tests.bench.programs import run_with
from tests.bench.subjects import BenchMachine, RunningProxy, VnAgent, start_upstream

# The goal for a neighbour's p99, as a multiple of its p99 alone.
GOAL = 1.3
_PROGRAM = "tests.bench.neighbours.abuser"
# The end of the abuser's connections is work that the next slice would contain.
_SETTLED_S = 1.0

Latencies = dict[str, NeighbourLatency]


@dataclass(slots=True)
class NeighbourResult:
    """One abuser. Each slice beside it stands between two slices of the neighbour alone."""

    name: str
    alone: list[Latencies] = field(default_factory=list)
    beside: list[Latencies] = field(default_factory=list)
    cpu_share: list[float] = field(default_factory=list)
    rss_mb: float = 0.0
    counted: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class NeighbourBench:
    """The shared kubelet, and the input of the programs."""

    machine: BenchMachine
    files: Fixture
    upstream: str
    command: Sequence[str]
    seconds: float

    def beside(self, name: str, rounds: int) -> NeighbourResult:
        """A fresh vn-agent with default limits; slices alone and beside the abuser alternate."""
        result = NeighbourResult(name)
        agent = VnAgent(self.machine, self.files, self.upstream, self.command, has_limits=True).start()
        # As on a node: its other threads need not share the event loop's core.
        os.sched_setaffinity(agent.process.pid, {self.machine.proxy_core, self.machine.load_core})
        try:
            self._measure(agent)  # the first slice warms caches
            result.alone.append(self._measure(agent))
            for _ in range(rounds):
                with attacking(self.machine, self.files, agent.address, _PROGRAM, name, result.counted):
                    cpu_s, begin_s = agent.process.cpu_s(), time.monotonic()
                    try:
                        result.beside.append(self._measure(agent))
                    except RunError as error:
                        result.problems.append(str(error).splitlines()[-1])
                    share = (agent.process.cpu_s() - cpu_s) / (time.monotonic() - begin_s)
                    result.cpu_share.append(share)
                    result.rss_mb = max(result.rss_mb, usage.memory(agent.process.pid).rss_mb)
                time.sleep(_SETTLED_S)  # no event reports that vn-agent has ended the abuser's connections
                result.alone.append(self._measure(agent))
        finally:
            agent.process.stop()
        return result

    def _measure(self, agent: RunningProxy) -> Latencies:
        base = f"{NAMESPACE}/{self.files.neighbour_pod}/{CONTAINER}"
        loads = {
            "log": NeighbourLoad(
                ("-mode", "paced", "-rate", "100", "-conns", "4"),
                tuple(f"/containerLogs/{base}?tailLines={n}" for n in range(1, 51)),
            ),
            "echo": NeighbourLoad(
                ("-mode", "echoes", "-rate", "100", "-conns", "2"),
                (f"/exec/{base}?command=cat&input=1&output=1",),
            ),
            "page": NeighbourLoad(
                ("-mode", "paced", "-rate", "50", "-conns", "1", "-small", "0"), ("/metrics/resource",)
            ),
        }
        return measure_neighbour(self.machine, self.files, agent.address, loads, self.seconds)


def table(results: Sequence[NeighbourResult]) -> str:
    """For each abuser and kind of request: the medians alone and beside it, and the median ratio."""
    rows: list[tuple[str, ...]] = [
        (
            *("abuser", "request", "p50 ms", "beside", "ratio", "p99 ms", "beside", "ratio"),
            *(f"<= {GOAL}", "CPU", "RSS MB"),
        )
    ]
    for result in results:
        for kind in result.alone[0]:
            is_first = kind == next(iter(result.alone[0]))
            cells = [result.name if is_first else "", kind]
            ratio = float("inf")
            for pick in ("p50_ms", "p99_ms"):
                alone = [getattr(each[kind], pick) for each in result.alone]
                cells.append(number(statistics.median(alone)))
                # A slice without an answer has no latency: the pairs would not fit.
                if not result.problems:
                    beside = [getattr(each[kind], pick) for each in result.beside]
                    ratio = statistics.median(ratios(alone, beside))
                    cells += [number(statistics.median(beside)), f"{ratio:.2f}"]
                else:
                    cells += ["none", ""]
            cells.append("OK" if ratio <= GOAL else "ABOVE")
            if is_first:
                cells += [f"{statistics.mean(result.cpu_share):.0%}", number(result.rss_mb)]
            else:
                cells += ["", ""]
            rows.append(tuple(cells))
    return laid_out(rows, {0, 1})


def ratios(alone: Sequence[float], beside: Sequence[float]) -> list[float]:
    """Each slice beside the abuser, as a multiple of the mean of those before and behind it."""
    around = itertools.pairwise(alone)
    return [one / ((before + after) / 2) for one, (before, after) in zip(beside, around, strict=True)]


def main() -> int:
    arguments = _arguments()
    others = usage.Others()
    results = run_with(arguments.cache, lambda programs, scratch: _measure(arguments, programs, scratch))
    if results is None:
        return 1
    sys.stdout.write(f"{setting.describe(others.share())}\n\n{table(results)}\n")
    for result in results:
        for problem in result.problems:
            sys.stdout.write(f"{result.name}: the neighbour was not served: {problem}\n")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    return 0


def _measure(arguments: argparse.Namespace, programs: Path, scratch: Path) -> list[NeighbourResult]:
    cores = sorted(os.sched_getaffinity(0))
    machine = BenchMachine(programs, scratch, proxy_core=cores[0], load_core=cores[-1])
    files = fixture.make(scratch)
    upstream, address = start_upstream(machine, files)
    try:
        command = shlex.split(arguments.program)
        bench = NeighbourBench(
            machine, files, address, command, 2.0 if arguments.quick else arguments.seconds
        )
        results = []
        for name in arguments.only:
            results.append(bench.beside(name, 1 if arguments.quick else arguments.rounds))
            sys.stderr.write(f"bench: {name}: {results[-1].counted}\n")
        return results
    finally:
        upstream.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.neighbours", description=__doc__)
    parser.add_argument("--only", type=_names, default=tuple(ABUSERS), metavar="NAMES")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each slice")
    parser.add_argument("--quick", action="store_true", help="one round of 2 s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all samples")
    parser.add_argument("--program", default=f"{sys.executable} -m vnagent", help="the command of vn-agent")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/vcnode/bench")
    return parser.parse_args()


def _names(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    unknown = [name for name in chosen if name not in ABUSERS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no abuser {', '.join(unknown)}; there are {', '.join(ABUSERS)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
