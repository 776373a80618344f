# SPDX-License-Identifier: Apache-2.0
"""A neighbour's latency under attack: `python -m tests.bench.attacks`.

README.md of tests/bench explains the method. Exit code 0 for any figures, 1 when something did not run.
"""

import argparse
import contextlib
import json
import os
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from daemonkit.status.server import StatusError, fetch
from tests.bench import fixture, handshakes, setting, usage
from tests.bench.attacked import NeighbourLatency, NeighbourLoad, attacking, measure_neighbour
from tests.bench.attacks.attacker import ATTACKS
from tests.bench.figures import laid_out, number
from tests.bench.fixture import CONTAINER, NAMESPACE, Fixture
from tests.bench.processes import RunError
from tests.bench.programs import run_with
from tests.bench.subjects import BenchMachine, RunningProxy, VnAgent, start_upstream

# The bound of a neighbour's p99 under attack, as a multiple of its p99 in quiet.
BOUND = 1.3
KEPT, NEW = "kept connections", "new connections"
_CONNECTIONS, _RATE = 4, 200
_SETTLED_S = 1.0


@dataclass(slots=True)
class AttackResult:
    """One attack: the neighbour's samples by its kind of load, quiet and attacked, and the daemon's cost."""

    name: str
    quiet: dict[str, list[NeighbourLatency]] = field(default_factory=dict)
    attacked: dict[str, list[NeighbourLatency]] = field(default_factory=dict)
    rss_mb: float = 0.0
    cpu_share: list[float] = field(default_factory=list)
    audit_lost: float = 0.0
    counted: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class AttackBench:
    """The shared kubelet, and the input of the programs."""

    machine: BenchMachine
    files: Fixture
    upstream: str
    command: Sequence[str]
    seconds: float

    def attack(self, name: str, rounds: int) -> AttackResult:
        """A fresh vn-agent with its default limits; quiet and attacked slices alternate."""
        result = AttackResult(name)
        agent = VnAgent(self.machine, self.files, self.upstream, self.command, has_limits=True).start()
        # As on a node: its other threads need not share the event loop's core.
        os.sched_setaffinity(agent.process.pid, {self.machine.proxy_core, self.machine.load_core})
        try:
            for _ in range(rounds):
                for kind in (KEPT, NEW):
                    result.quiet.setdefault(kind, []).append(self._neighbour(agent, kind))
                    with self._attacker(agent, name, result):
                        cpu_s, begin_s = agent.process.cpu_s(), time.monotonic()
                        try:
                            result.attacked.setdefault(kind, []).append(self._neighbour(agent, kind))
                        except RunError as error:
                            result.problems.append(f"{kind}: {str(error).splitlines()[-1]}")
                        share = (agent.process.cpu_s() - cpu_s) / (time.monotonic() - begin_s)
                        result.cpu_share.append(share)
                        result.rss_mb = max(result.rss_mb, usage.memory(agent.process.pid).rss_mb)
                    # The end of the attack's connections is work that the next slice would contain.
                    time.sleep(_SETTLED_S)  # no event reports that vn-agent has ended them
            result.audit_lost = self._metric("vcnode_vnagent_audit_lines_lost_total")
        finally:
            agent.process.stop()
        return result

    def _neighbour(self, agent: RunningProxy, kind: str) -> NeighbourLatency:
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
        return measure_neighbour(self.machine, self.files, agent.address, {kind: load}, self.seconds)[kind]

    def _attacker(
        self, agent: RunningProxy, name: str, result: AttackResult
    ) -> contextlib.AbstractContextManager[None]:
        program = "tests.bench.attacks.attacker"
        return attacking(self.machine, self.files, agent.address, program, name, result.counted)

    def _metric(self, name: str) -> float:
        try:
            page = fetch(self.machine.directory / "status.sock", "/metrics", 5.0)[1].decode()
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
        for problem in result.problems:
            sys.stdout.write(f"{result.name}: the neighbour was not served: {problem}\n")
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
            attacked = result.attacked.get(kind, [])
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
                cells += [f"{statistics.mean(result.cpu_share):.0%}", number(result.rss_mb)]
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
            sys.stderr.write(f"bench: {name}: {dict(results[-1].counted)}\n")
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
