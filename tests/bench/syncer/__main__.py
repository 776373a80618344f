# SPDX-License-Identifier: Apache-2.0
"""Measures vc-syncer between real API servers: `python -m tests.bench.syncer`.

README.md of tests/bench explains the method and the output.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from tests.bench import setting, usage
from tests.bench.bounded import document, table
from tests.bench.processes import RunError
from tests.bench.syncer import clusters, subject
from tests.bench.syncer.parts import FULL, PARTS, QUICK, BenchAmounts, SyncerBench, SyncerFigures
from tests.bench.syncer.report import GO, PEER, mean_of, tables, tables_of_turns
from tests.bench.syncer.subject import SyncerProgram
from tests.bench.syncer.turns import SyncerTurns
from tests.k8s import build

_FULL_TENANTS, _QUICK_TENANTS = 10, 3
# An API server with the watches of the syncer and the bench, at its largest, and what is left for the rest.
_APISERVER_BYTES, _SPARE_BYTES = 600 << 20, 2 << 30


def main() -> int:
    arguments = _arguments()
    begun_s = time.monotonic()
    others = usage.Others()
    tenants = _tenants(arguments)
    measure = _measure_in_turn if arguments.in_turn else _measure
    try:
        results = asyncio.run(measure(arguments, tenants))
    except (RunError, TimeoutError, OSError) as error:
        sys.stderr.write(f"bench: {type(error).__name__}: {error}\n")
        return 1
    described = setting.describe(others.share(), f"{tenants} tenants with real API servers")
    if arguments.in_turn:
        made = tables_of_turns(results["ours"], results["peer"])
    else:
        means = {name: mean_of(runs) for name, runs in results.items()}
        made = tables(means["ours"], means.get("peer"))
    sys.stdout.write(f"{described}\n")
    for title, rows in made:
        peers = [name for name in (GO, PEER) if any(name in each.peers for each in rows)]
        sys.stdout.write(f"\n{title}\n{table(rows, peers)}\n")
    _log(f"took {time.monotonic() - begun_s:.0f} s")
    if arguments.json:
        samples = {name: [dataclasses.asdict(each) for each in runs] for name, runs in results.items()}
        whole = {"setting": described, "figures": document(made), "samples": samples}
        arguments.json.write_text(json.dumps(whole, indent=1) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.syncer", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer tenants and pods, shorter parts")
    parser.add_argument("--only", type=_parts, default=PARTS, metavar="PARTS", help=f"of {','.join(PARTS)}")
    parser.add_argument("--tenants", type=int, help="real API servers of tenants")
    parser.add_argument("--pods", type=int, help="pods of the part `throughput`")
    parser.add_argument("--rate", type=float, help="pods a second of the parts `steady` and `hang`")
    parser.add_argument(
        "--peer", metavar="CMD", help="another syncer too: CMD gets the path of the super kubeconfig"
    )
    parser.add_argument(
        "--both-orders", action="store_true", help="ours, the peer, the peer, ours: the mean of each two"
    )
    parser.add_argument(
        "--in-turn", type=int, metavar="ROUNDS", help="both in turn between the same API servers instead"
    )
    parser.add_argument("--tree", type=Path, help="an installed tree, whose launcher is run")
    parser.add_argument(
        "--profile", type=Path, metavar="FILE", help="run ours under cProfile; not with --tree"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures")
    parser.add_argument("--keep-logs", type=Path, metavar="DIRECTORY", help="copy the logs there")
    parser.add_argument("--k8s-cache", type=Path, default=build.DEFAULT_CACHE, help="of tests/k8s/build.py")
    arguments = parser.parse_args()
    if arguments.in_turn and not arguments.peer:
        parser.error("--in-turn needs --peer")
    return arguments


def _parts(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    unknown = [part for part in chosen if part not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no part {', '.join(unknown)}")
    return chosen


def _tenants(arguments: argparse.Namespace) -> int:
    """As many as asked for, and as memory allows."""
    wanted: int = arguments.tenants or (_QUICK_TENANTS if arguments.quick else _FULL_TENANTS)
    free_bytes = _available_bytes() - _SPARE_BYTES
    return max(1, min(wanted, free_bytes // _APISERVER_BYTES - 1))


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def _amounts(arguments: argparse.Namespace) -> BenchAmounts:
    amounts = QUICK if arguments.quick else FULL
    return dataclasses.replace(
        amounts,
        throughput=arguments.pods or amounts.throughput,
        steady_rate=arguments.rate or amounts.steady_rate,
    )


async def _measure(arguments: argparse.Namespace, tenants: int) -> dict[str, list[SyncerFigures]]:
    """Measure ours, and the peer after it, each among control planes of its own. Raises RunError."""
    order = ["ours", "peer"] if arguments.peer else ["ours"]
    if arguments.both_orders:
        # A machine is seldom as fast in one half of an hour as in the other.
        order += reversed(order)
    results: dict[str, list[SyncerFigures]] = {name: [] for name in order}
    for name in order:
        async with _started(arguments, tenants, name) as started:
            program = _program(name, arguments, started)
            bench = SyncerBench(started, program, _amounts(arguments), _log)
            results[name].append(await bench.run(arguments.only))
    return results


async def _measure_in_turn(arguments: argparse.Namespace, tenants: int) -> dict[str, list[SyncerFigures]]:
    """Measure ours and the peer in many rounds. Raises RunError."""
    amounts = _amounts(arguments)
    async with _started(arguments, tenants, "turns") as started:
        programs = [_program(name, arguments, started) for name in ("ours", "peer")]
        turns = SyncerTurns(started, programs, amounts.restart, amounts.burst, _log)
        return await turns.run(arguments.in_turn)


@contextlib.asynccontextmanager
async def _started(
    arguments: argparse.Namespace, tenants: int, name: str
) -> AsyncIterator[clusters.BenchClusters]:
    """Fresh control planes, whose logs are kept if asked for. Raises RunError."""
    version = build.go_version()
    if version is None:
        raise RunError("no Go compiler")
    binaries, missing = build.find_binaries(arguments.k8s_cache, version)
    if missing:
        raise RunError(f"{', '.join(missing)} not built: run python3 tests/k8s/build.py")
    with tempfile.TemporaryDirectory(prefix=f"vcnode-bench-{name}-") as text:
        directory = Path(text)
        try:
            async with clusters.start(binaries, directory, tenants) as started:
                _log(f"{name}: the API servers run")
                yield started
        finally:
            if arguments.keep_logs is not None:
                _keep_logs(directory, arguments.keep_logs)


def _program(name: str, arguments: argparse.Namespace, started: clusters.BenchClusters) -> SyncerProgram:
    if name == "peer":
        return subject.peer(arguments.peer, started.super_kubeconfig)
    launcher = arguments.tree.resolve() / "bin" / "vc-syncer" if arguments.tree else None
    return subject.ours(
        started.directory, started.super_kubeconfig, launcher=launcher, profile=arguments.profile
    )


def _keep_logs(directory: Path, keep: Path) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    for log in directory.glob("*.log"):
        shutil.copy(log, keep)


def _log(line: str) -> None:
    sys.stderr.write(f"bench: {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
