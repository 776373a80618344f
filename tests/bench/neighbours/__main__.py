# SPDX-License-Identifier: Apache-2.0
"""A tenant's latency beside each kind of abuser at its limits: `python -m tests.bench.neighbours`.

README.md of tests/bench explains the method. Exit code 0 for any figures, 1 when something did not run.
"""

import argparse
import functools
import itertools
import json
import os
import shlex
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.bench import fixture, setting, usage
from tests.bench.attacked import (
    AttackedAgent,
    AttackedSlice,
    Latencies,
    LoadTarget,
    NeighbourLoad,
    measure_neighbour,
)
from tests.bench.figures import laid_out, number, quartiles
from tests.bench.fixture import CONTAINER, NAMESPACE, Fixture, super_namespace, tenant_key
from tests.bench.neighbours.abuser import ABUSERS
from tests.bench.programs import run_with
from tests.bench.subjects import BenchMachine, start_upstream

# The goal for a neighbour's p99, as a multiple of its p99 alone.
GOAL = 1.3
_PROGRAM = "tests.bench.neighbours.abuser"
# Straight at the kubelet: what the cores do that are shared with it and with the load.
DIRECT = "no vn-agent"


@dataclass(slots=True)
class NeighbourResult:
    """One abuser. Each slice beside it stands between two slices of the neighbour alone."""

    name: str
    alone: list[Latencies] = field(default_factory=list)
    beside: list[AttackedSlice] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """Why the neighbour was not served."""
        return [each.problem for each in self.beside if each.problem]

    def ratios(self, kind: str, figure: str) -> list[float]:
        """Each slice beside the abuser, as a multiple of the mean of those before and behind it."""
        alone = [getattr(each[kind], figure) for each in self.alone]
        around = zip(self.beside, itertools.pairwise(alone), strict=True)
        return [
            getattr(each.latencies[kind], figure) / ((before + after) / 2)
            for each, (before, after) in around
            if each.latencies
        ]


@dataclass(slots=True)
class NeighbourBench:
    """The shared kubelet, and the input of the programs."""

    machine: BenchMachine
    files: Fixture
    upstream: str
    command: Sequence[str]
    seconds: float

    def beside(self, name: str, rounds: int) -> NeighbourResult:
        """A fresh vn-agent; slices alone and beside the abuser alternate."""
        result = NeighbourResult(name)
        with AttackedAgent.started(self.machine, self.files, self.upstream, self.command, _PROGRAM) as agent:
            measure = functools.partial(self._measure, agent)
            measure()  # the first slice warms caches
            result.alone.append(measure())
            for _ in range(rounds):
                result.beside.append(agent.under_attack(name, measure))
                result.alone.append(measure())
        return result

    def _measure(self, agent: AttackedAgent) -> Latencies:
        files = self.files
        pod = f"{NAMESPACE}/{files.neighbour_pod}/{CONTAINER}"
        super_pod = f"{super_namespace(tenant_key(1))}/{files.neighbour_pod}/{CONTAINER}"
        kubelet = LoadTarget(self.upstream, files.super_ca, files.kubelet_client)
        echoes = NeighbourLoad(
            ("-mode", "echoes", "-rate", "100", "-conns", "2"), (f"/exec/{pod}?command=cat&input=1&output=1",)
        )
        pages = NeighbourLoad(
            ("-mode", "paced", "-rate", "50", "-conns", "1", "-small", "0"), ("/metrics/resource",)
        )
        loads = {
            "log": (agent.target, _logs(pod)),
            "echo": (agent.target, echoes),
            "page": (agent.target, pages),
            DIRECT: (kubelet, _logs(super_pod)),
        }
        return measure_neighbour(self.machine, loads, self.seconds)


def _logs(pod: str) -> NeighbourLoad:
    targets = (f"/containerLogs/{pod}?tailLines={n}" for n in range(1, 51))
    return NeighbourLoad(("-mode", "paced", "-rate", "100", "-conns", "4"), tuple(targets))


def table(results: Sequence[NeighbourResult]) -> str:
    """For each abuser and kind of request: the medians alone and beside it, and the median ratio."""
    rows: list[tuple[str, ...]] = [
        (
            *("abuser", "request", "p50 ms", "beside", "ratio", "p99 ms", "beside", "ratio", "quartiles"),
            *(f"<= {GOAL}", "CPU", "RSS MB"),
        )
    ]
    for result in results:
        first = next(iter(result.alone[0]))
        for kind in result.alone[0]:
            cells = [result.name if kind == first else "", kind]
            for figure in ("p50_ms", "p99_ms"):
                cells += _cells(result, kind, figure)
            cells += _verdict(result.ratios(kind, "p99_ms"), has_goal=kind != DIRECT)
            if kind == first:
                cells.append(f"{statistics.mean(each.cpu_share for each in result.beside):.0%}")
                cells.append(number(max(each.rss_mb for each in result.beside)))
            rows.append(tuple(cells))
    width = max(map(len, rows))
    return laid_out([row + ("",) * (width - len(row)) for row in rows], {0, 1})


def _cells(result: NeighbourResult, kind: str, figure: str) -> list[str]:
    alone = statistics.median(getattr(each[kind], figure) for each in result.alone)
    beside = [getattr(each.latencies[kind], figure) for each in result.beside if each.latencies]
    if not beside:
        return [number(alone), "none", ""]
    ratio = statistics.median(result.ratios(kind, figure))
    return [number(alone), number(statistics.median(beside)), f"{ratio:.2f}"]


def _verdict(ratios: Sequence[float], *, has_goal: bool) -> list[str]:
    """The quartiles, and whether the goal is met: with a `?` where it lies within them."""
    if not ratios:
        return ["", "ABOVE"]
    low, high = quartiles(ratios)
    word = "OK" if statistics.median(ratios) <= GOAL else "ABOVE"
    doubt = "?" if low <= GOAL < high else ""
    return [f"{low:.2f}-{high:.2f}", f"{word}{doubt}" if has_goal else ""]


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
    upstream, address = start_upstream(machine, files, ("-bulk-aside",))
    try:
        command = shlex.split(arguments.program)
        bench = NeighbourBench(
            machine, files, address, command, 2.0 if arguments.quick else arguments.seconds
        )
        results = []
        for name in arguments.only:
            results.append(bench.beside(name, 2 if arguments.quick else arguments.rounds))
            counts = [dict(each.counted) for each in results[-1].beside]
            sys.stderr.write(f"bench: {name}: {counts}\n")
        return results
    finally:
        upstream.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.neighbours", description=__doc__)
    parser.add_argument("--only", type=_names, default=tuple(ABUSERS), metavar="NAMES")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each slice")
    parser.add_argument("--quick", action="store_true", help="two rounds of 2 s")
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
