# SPDX-License-Identifier: Apache-2.0
"""What `workers` gains: `python -m tests.bench.workers`.

The same load on one process and on N workers, in turns, all on one core. With N workers the work is spread,
and each has a core of its own on a larger machine. So the figure is the operations for each CPU second of the
busiest process: what bounds the throughput there. README.md beside this file explains more.
"""

import argparse
import contextlib
import os
import shlex
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from daemonkit.status.server import fetch
from tests.bench import fixture, usage
from tests.bench.figures import laid_out
from tests.bench.measuring import EXECS, REQUESTS, STREAMS, LoadSlice, ProxyBench
from tests.bench.programs import run_with
from tests.bench.subjects import BenchMachine, RunningProxy, VnAgent, start_upstream

SLICES = (REQUESTS[1], EXECS[1], STREAMS[1])
ROUNDS, QUICK_ROUNDS = 5, 2
QUICK_SCALE = 0.5
_STATUS_S = 5.0


@dataclass(frozen=True, slots=True)
class WorkSample:
    """Operations, or GB of a stream, and the CPU seconds of each process for them: the main process first."""

    amount: float
    cpu_s: tuple[float, ...]

    @property
    def per_busiest_s(self) -> float:
        return self.amount / max(self.cpu_s)

    @property
    def per_total_s(self) -> float:
        return self.amount / sum(self.cpu_s)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.workers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few and short rounds")
    parser.add_argument("--workers", type=int, default=2, help="beside one process (default: %(default)s)")
    parser.add_argument("--program", default=f"{sys.executable} -m vnagent", help="the command of vn-agent")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/vcnode/bench")
    arguments = parser.parse_args()
    rows = run_with(arguments.cache, lambda programs, scratch: _measure(arguments, programs, scratch))
    if rows is None:
        return 1
    sys.stdout.write(laid_out(rows, {0, 1}) + "\n")
    return 0


def _measure(arguments: argparse.Namespace, programs: Path, scratch: Path) -> list[tuple[str, ...]]:
    cores = sorted(os.sched_getaffinity(0))
    machine = BenchMachine(programs, scratch, proxy_core=cores[0], load_core=cores[-1])
    files = fixture.make(scratch)
    counts = (1, arguments.workers)
    samples: dict[tuple[str, int], list[WorkSample]] = {}
    with contextlib.ExitStack() as stack:
        upstream, address = start_upstream(machine, files, [])
        stack.callback(upstream.stop)
        bench = ProxyBench(machine, files, address, scale=QUICK_SCALE if arguments.quick else 1.0)
        proxies: dict[int, tuple[RunningProxy, list[int]]] = {}
        for count in counts:
            subject = VnAgent(
                machine,
                files,
                address,
                shlex.split(arguments.program),
                name=f"workers-{count}",
                workers=count,
            )
            proxy = subject.start()
            stack.callback(proxy.process.stop)
            proxies[count] = proxy, _pids(proxy, machine.directory / f"{subject.name}.sock")
        for number in range((QUICK_ROUNDS if arguments.quick else ROUNDS) + 1):
            for what in SLICES:
                for count, (proxy, pids) in proxies.items():
                    sample = _through(bench, proxy, pids, what)
                    if number:  # the first round warms up
                        samples.setdefault((what.name, count), []).append(sample)
            sys.stderr.write(f"bench: round {number}\n")
    return _rows(samples, counts)


def _pids(proxy: RunningProxy, status: Path) -> list[int]:
    _, body = fetch(status, "/status", _STATUS_S)
    workers = msgspec.json.decode(body)["workers"]
    return [proxy.process.pid, *(each["pid"] for each in workers)]


def _through(bench: ProxyBench, proxy: RunningProxy, pids: list[int], what: LoadSlice) -> WorkSample:
    before = [usage.cpu_s([pid]) for pid in pids]
    sample = bench.through(proxy, what)
    used = tuple(usage.cpu_s([pid]) - each for pid, each in zip(pids, before, strict=True))
    amount = sample.total_bytes / 1e9 if what.mode == "stream" else float(sample.operations)
    return WorkSample(amount, used)


def _rows(samples: dict[tuple[str, int], list[WorkSample]], counts: tuple[int, int]) -> list[tuple[str, ...]]:
    one, many = counts
    rows: list[tuple[str, ...]] = [
        ("LOAD", "FOR A CPU SECOND OF", "1 PROCESS", f"{many} WORKERS", "RATIO", "QUARTILES")
    ]
    for what in SLICES:
        pairs = list(zip(samples[what.name, one], samples[what.name, many], strict=True))
        for label, figure in (("the busiest process", "per_busiest_s"), ("all processes", "per_total_s")):
            ratios = [getattr(after, figure) / getattr(before, figure) for before, after in pairs]
            low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios * 3)
            rows.append(
                (
                    what.name,
                    label,
                    f"{statistics.median(getattr(each, figure) for each, _ in pairs):.3g}",
                    f"{statistics.median(getattr(each, figure) for _, each in pairs):.3g}",
                    f"{statistics.median(ratios):.2f}x",
                    f"{low:.2f} to {high:.2f}",
                )
            )
    return rows


if __name__ == "__main__":
    sys.exit(main())
