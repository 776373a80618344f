# SPDX-License-Identifier: Apache-2.0
"""Runs the soak in network, mount and process namespaces of its own.

    python -m tests.soak --minutes 3 [--seed N] [--require]

Exit code 0 when all held, 1 on a violation, 0 with one line where this machine cannot run it (1 with
`--require`).
"""

import argparse
import faulthandler
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

from daemonkit import logs
from tests.soak import report
from tests.soak.node import SoakNode
from tests.soak.run import Run, SoakOutcome, keep_logs
from vcnode.terminal import ToolError
from vcnode_demo import dns_guests, vpc
from vcnode_demo.guest import BOUND

# Its processes, mounts and ports end with it, however it ends.
_NAMESPACES = (*BOUND, "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
_SMALL_DISK = "64m"
_KEPT = Path("build/soak")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=None, help="repeats the order of another run")
    parser.add_argument("--require", action="store_true")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    seed = chosen.seed if chosen.seed is not None else random.randrange(1_000_000)  # noqa: S311 - an order
    if chosen.inside is not None:
        return _inside(chosen.inside, chosen.minutes, seed)
    signal.signal(signal.SIGTERM, _end)  # removes the directory
    why = vpc.missing_requirement() or dns_guests.missing_requirement()
    if why:
        _print_line(f"soak: LEFT OUT, it {why}")
        return 1 if chosen.require else 0
    # The path of a socket is short (unix(7)).
    with tempfile.TemporaryDirectory(prefix="vcnode-soak-", dir="/tmp") as directory:
        command = [sys.executable, "-m", "tests.soak", "--minutes", str(chosen.minutes), "--seed", str(seed)]
        return subprocess.run([*_NAMESPACES, *command, "--inside", directory], check=False).returncode


def _inside(directory: Path, minutes: float, seed: int) -> int:
    # `kill -USR1` shows where each thread of a run that hangs stands.
    faulthandler.register(signal.SIGUSR1)
    logs.setup(level="error")  # of the fakes, which run in this process
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    _mount(directory)
    (directory / "full").mkdir()
    _mount(directory / "full", f"size={_SMALL_DISK}")
    _print_line(f"soak: {minutes:g} minutes, --seed {seed}")
    node = SoakNode(directory)
    try:
        node.open()
        outcome = Run(node, seed, minutes, _print_line).run()
    except ToolError as error:
        _print_line(f"soak: FAILED: {error}")
        for daemon in node.daemons.values():
            _print_line("\n".join(daemon.last_log_lines()))
        return 1
    finally:
        node.close()
        keep_logs(node, _KEPT)
    _print(outcome)
    return 1 if outcome.violations else 0


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _mount(directory: Path, *options: str) -> None:
    # The daemons refuse a directory that others can write to.
    chosen = ",".join(("mode=0700", *options))
    subprocess.run(["mount", "-t", "tmpfs", "-o", chosen, "none", str(directory)], check=True)


def _print(outcome: SoakOutcome) -> None:
    for part in (
        report.requests(outcome.counts),
        report.faults(outcome.windows),
        report.daemons(outcome.growths),
    ):
        _print_line("\n" + "\n".join(part))
    cuts = ", ".join(f"{cut_s:.1f} s" for cut_s in outcome.cuts_s)
    _print_line(f"\nstreams of removed tenants ended after {cuts}")
    for line in outcome.unjudged:
        _print_line(line)
    for line in report.violations(outcome.violations):
        _print_line(line)
    _print_line(
        f"soak: {outcome.seconds:.0f} s, {outcome.cycles} cycles of faults, {outcome.rounds} rounds of load,"
        f" --seed {outcome.seed}, logs in {_KEPT}"
    )
    _print_line(f"{len(outcome.windows)} passed, {len(outcome.violations)} failed")


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
