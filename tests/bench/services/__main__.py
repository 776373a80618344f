# SPDX-License-Identifier: Apache-2.0
"""Measures Services in guests: `python -m tests.bench.services`.

README.md of tests/bench explains the method and the output.
"""

import argparse
import dataclasses
import json
import os
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tests.bench import setting, usage
from tests.bench.bounded import Tables, document, table
from tests.bench.processes import RunError
from tests.bench.services import cluster
from tests.bench.services.guests import GuestFilter
from tests.bench.services.node import programs
from tests.bench.services.parts import FULL, ON_GUESTS, PARTS, QUICK, Results, ServicesBench, versions
from tests.bench.services.report import PEERS, tables
from tests.k8s import build
from tests.k8s.ring.processes import RingError
from tests.lab.namespaces import SYSTEM_PATH, ProgramError

_PROGRAMS = ("iptables-legacy", "iptables-nft", "nft", "ip", "nsenter", "setpriv", "unshare", "ldconfig")


def main() -> int:
    arguments = _arguments()
    begun_s = time.monotonic()
    others = usage.Others()
    try:
        results = _measure(arguments)
    except (RunError, RingError, ProgramError) as error:
        sys.stderr.write(f"bench: {error}\n")
        return 1
    share = others.share()
    made = tables(results)
    sys.stdout.write(f"{setting.describe(share, versions())}\n")
    for title, rows in made:
        sys.stdout.write(f"\n{title}\n{table(rows, PEERS)}\n")
    _log(f"took {time.monotonic() - begun_s:.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(_document(results, made, share, arguments), indent=1) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.services", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about 4 minutes: fewer and shorter rounds")
    parser.add_argument("--only", type=_parts, default=PARTS, metavar="PARTS", help=f"of {','.join(PARTS)}")
    parser.add_argument(
        "--guests",
        type=_kinds,
        default=(GuestFilter.NFT, GuestFilter.LEGACY),
        metavar="KINDS",
        help=f"of {','.join(kind.value for kind in GuestFilter)}; default nft,legacy",
    )
    parser.add_argument("--rounds", type=int, help="rounds of changes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all samples and figures")
    parser.add_argument("--tree", type=Path, help="an installed tree, whose launchers are run")
    parser.add_argument("--keep-logs", type=Path, metavar="DIRECTORY", help="copy the daemons' logs there")
    parser.add_argument("--k8s-cache", type=Path, default=build.DEFAULT_CACHE, help="of tests/k8s/build.py")
    return parser.parse_args()


def _parts(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    unknown = [part for part in chosen if part not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no part {', '.join(unknown)}")
    return chosen


def _kinds(text: str) -> tuple[GuestFilter, ...]:
    try:
        return tuple(GuestFilter(each) for each in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _measure(arguments: argparse.Namespace) -> Results:
    """Run the requested parts. Raises RunError, RingError, ProgramError."""
    binaries = _binaries(arguments.k8s_cache)
    amounts = QUICK if arguments.quick else FULL
    if arguments.rounds:
        amounts = dataclasses.replace(amounts, rounds=arguments.rounds)
    with ExitStack() as stack:
        made = cluster.start(binaries, stack, _log)
        if arguments.keep_logs is not None:
            stack.callback(_keep_logs, made.directory, arguments.keep_logs)
        bench = ServicesBench(made, binaries, programs(arguments.tree), amounts, _log)
        if set(arguments.only) & set(ON_GUESTS):
            bench.run_guests(arguments.guests, arguments.only)
        if "memory" in arguments.only:
            bench.run_memory(arguments.guests[0])
        if "scale" in arguments.only:
            bench.run_scale(arguments.guests[0])
        return bench.results


def _binaries(cache: Path) -> build.Binaries:
    """The real Kubernetes. Raises RunError with everything that this machine lacks."""
    lacks = [] if os.geteuid() == 0 else ["needs root"]
    lacks += [f"no {name}" for name in _PROGRAMS if not shutil.which(name, path=SYSTEM_PATH)]
    version = build.go_version()
    if version is None:
        raise RunError("; ".join([*lacks, "no Go compiler"]))
    binaries, missing = build.find_binaries(cache, version)
    if {"kubernetes", "etcd"} & set(missing):
        lacks.append("run `python3 tests/k8s/build.py` once")
    if lacks:
        raise RunError("; ".join(lacks))
    return binaries


def _log(line: str) -> None:
    sys.stderr.write(f"bench: {line}\n")
    sys.stderr.flush()


def _keep_logs(directory: Path, keep: Path) -> None:
    for log in directory.rglob("*log"):
        target = keep / log.relative_to(directory)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(log, target)


def _document(
    results: Results, made: Tables, share: float, arguments: argparse.Namespace
) -> dict[str, object]:
    def plain(value: object) -> object:
        return value.value if isinstance(value, GuestFilter) else str(value)

    samples: object = json.loads(json.dumps(dataclasses.asdict(results), default=plain))
    return {
        "setting": setting.describe(share, versions()),
        "quick": arguments.quick,
        "figures": document(made),
        "samples": samples,
    }


if __name__ == "__main__":
    sys.exit(main())
