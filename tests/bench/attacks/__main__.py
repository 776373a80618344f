# SPDX-License-Identifier: Apache-2.0
"""A neighbour's latency under attack: `python -m tests.bench.attacks`.

README.md of tests/bench explains the method. Exit code 0 for any figures, 1 when something did not run.
"""

import argparse
import functools
import json
import os
import shlex
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from daemonkit.status.server import StatusError, fetch
from tests.bench import fixture, handshakes, setting, usage
from tests.bench.attacked import (
    AttackedAgent,
    AttackedSlice,
    Latencies,
    NeighbourLatency,
    NeighbourLoad,
    measure_neighbour,
)
from tests.bench.attacks.attacker import ATTACKS
from tests.bench.figures import laid_out, number
from tests.bench.fixture import CONTAINER, NAMESPACE, Fixture
from tests.bench.processes import RunError
from tests.bench.programs import run_with
from tests.bench.subjects import OURS, BenchMachine, start_upstream

# The bound of a neighbour's p99 under attack, as a multiple of its p99 in quiet.
BOUND = 1.3
KEPT, NEW = "kept connections", "new connections"
_CONNECTIONS, _RATE = 4, 200
_PROGRAM = "tests.bench.attacks.attacker"


@dataclass(slots=True)
class AttackResult:
    """One attack: the neighbour's samples by its kind of load, quiet and attacked, and the daemon's cost."""

    name: str
    quiet: dict[str, list[NeighbourLatency]] = field(default_factory=dict)
    attacked: dict[str, list[AttackedSlice]] = field(default_factory=dict)
    audit_lost: float = 0.0

    @property
    def slices(self) -> list[AttackedSlice]:
        """The attacked slices of all kinds."""
        return [each for kind in self.attacked.values() for each in kind]


@dataclass(slots=True)
class AttackBench:
    """The shared kubelet, and the input of the programs."""

    machine: BenchMachine
    files: Fixture
    upstream: str
    command: Sequence[str]
    seconds: float

    def attack(self, name: str, rounds: int) -> AttackResult:
        """A fresh vn-agent; quiet and attacked slices alternate."""
        result = AttackResult(name)
        with AttackedAgent.started(self.machine, self.files, self.upstream, self.command, _PROGRAM) as agent:
            for _ in range(rounds):
                for kind in (KEPT, NEW):
                    measure = functools.partial(self._neighbour, agent, kind)
                    result.quiet.setdefault(kind, []).append(measure()[kind])
                    result.attacked.setdefault(kind, []).append(agent.under_attack(name, measure))
            result.audit_lost = self._metric("vcnode_vnagent_audit_lines_lost_total")
        return result

    def _neighbour(self, agent: AttackedAgent, kind: str) -> Latencies:
        """Raises RunError where it is not served."""
        base = f"{NAMESPACE}/{self.files.neighbour_pod}/{CONTAINER}"
        if kind == KEPT:
            load = NeighbourLoad(
                ("-mode", "paced", "-rate", str(_RATE), "-conns", str(_CONNECTIONS)),
                tuple(f"/containerLogs/{base}?tailLines={n}" for n in range(1, 51)),
            )
        else:
            target = f"/exec/{base}?command=true&input=1&output=1&error=1"
            load = NeighbourLoad(("-mode", "exec", "-conns", "1"), (target,))
        return measure_neighbour(self.machine, {kind: (agent.target, load)}, self.seconds)

    def _metric(self, name: str) -> float:
        try:
            page = fetch(self.machine.directory / f"{OURS}.sock", "/metrics", 5.0)[1].decode()
        except (OSError, StatusError) as error:
            raise RunError(f"vn-agent's status page: {error}") from error
        return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(name))


def main() -> int:
    arguments = _arguments()
    others = usage.Others()
    results = run_with(arguments.cache, lambda programs, scratch: _measure(arguments, programs, scratch))
    if results is None:
        return 1
    sys.stdout.write(f"{setting.describe(others.share())}\n\n{table(results)}\n")
    for result in results:
        for each in result.slices:
            if each.problem:
                sys.stdout.write(f"{result.name}: the neighbour was not served: {each.problem}\n")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    return 0


def table(results: Sequence[AttackResult]) -> str:
    """For each attack and kind of load: the neighbour's medians quiet and attacked, and their ratios."""
    rows: list[tuple[str, ...]] = [
        (
            *("attack", "neighbour", "p50 ms", "attacked", "ratio", "p99 ms", "attacked", "ratio"),
            *(f"<= {BOUND}", "CPU", "RSS MB", "audit lost"),
        )
    ]
    for result in results:
        for kind, quiet in result.quiet.items():
            cells = [result.name if kind == KEPT else "", kind]
            attacked = [each.latencies[kind] for each in result.attacked[kind] if each.latencies]
            ratio = float("inf")
            for pick in ("p50_ms", "p99_ms"):
                before = statistics.median(getattr(sample, pick) for sample in quiet)
                if attacked:
                    after = statistics.median(getattr(sample, pick) for sample in attacked)
                    ratio = after / before
                    cells += [number(before), number(after), f"{ratio:.2f}"]
                else:
                    cells += [number(before), "none", ""]
            cells.append("OK" if ratio <= BOUND else "ABOVE")
            if kind == KEPT:
                slices = result.slices
                cells.append(f"{statistics.mean(each.cpu_share for each in slices):.0%}")
                cells.append(number(max(each.rss_mb for each in slices)))
                cells.append(f"{result.audit_lost:.0f}")
            rows.append(tuple(cells))
    width = max(map(len, rows))
    return laid_out([row + ("",) * (width - len(row)) for row in rows], {0, 1})


def _measure(arguments: argparse.Namespace, programs: Path, scratch: Path) -> list[AttackResult]:
    cores = sorted(os.sched_getaffinity(0))
    machine = BenchMachine(programs, scratch, proxy_core=cores[0], load_core=cores[-1])
    files = fixture.make(scratch)
    handshakes.write_chains(files.caller_authority, files.directory)
    upstream, address = start_upstream(machine, files)
    try:
        bench = AttackBench(machine, files, address, shlex.split(arguments.program), arguments.seconds)
        results = []
        for name in arguments.only:
            results.append(bench.attack(name, arguments.rounds))
            counts = [dict(each.counted) for each in results[-1].slices]
            sys.stderr.write(f"bench: {name}: {counts}\n")
        return results
    finally:
        upstream.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.attacks", description=__doc__)
    parser.add_argument("--only", type=_names, default=tuple(ATTACKS), metavar="NAMES")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each slice")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all samples")
    parser.add_argument("--program", default=f"{sys.executable} -m vnagent", help="the command of vn-agent")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/vcnode/bench")
    return parser.parse_args()


def _names(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    unknown = [name for name in chosen if name not in ATTACKS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no attack {', '.join(unknown)}; there are {', '.join(ATTACKS)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
