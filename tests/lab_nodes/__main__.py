# SPDX-License-Identifier: Apache-2.0
"""Runs the lab of `lab/` without Vagrant.

    python -m tests.lab_nodes check [--require]      start it, try it, stop it
    python -m tests.lab_nodes up                     start it; it stays
    python -m tests.lab_nodes enter MACHINE [COMMAND...]
    python -m tests.lab_nodes down

`check` also asks vagrant and shellcheck about `lab/`. Exit code 0 when all held, 1 when something did not, 0
with one line where this machine cannot run it (1 with `--require`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.k8s.build import DEFAULT_CACHE
from tests.k8s.ring import machine
from tests.k8s.ring.processes import SYSTEM_PATH, RingError, wait_for
from tests.lab_nodes import machines, static, topology

_ROOT = Path(__file__).resolve().parents[2]
_STATE = _ROOT / "build" / "lab"
_PID, _LOG, _MACHINES = _STATE / "pid", _STATE / "log", _STATE / "machines.json"
_UP_S = 600.0
_DOWN_S = 120.0


@dataclass(frozen=True, slots=True)
class _Built:
    """The debs, and what they were made of."""

    packages: Path
    tree: Path


class _EndedError(Exception):
    """SIGTERM came."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab_nodes")
    parser.add_argument("--packages", type=Path, default=_ROOT / "build/packages", metavar="DIR")
    parser.add_argument("--tree", type=Path, default=_ROOT / "build/tree", metavar="DIR")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("check").add_argument("--require", action="store_true")
    for verb in ("up", "down", "stay"):
        verbs.add_parser(verb)
    enter = verbs.add_parser("enter")
    enter.add_argument("machine")
    enter.add_argument("command", nargs=argparse.REMAINDER)
    chosen = parser.parse_args(argv)
    built = _Built(chosen.packages.resolve(), chosen.tree.resolve())
    match chosen.verb:
        case "check":
            return _check(built, is_required=chosen.require)
        case "up":
            return _up(built)
        case "stay":
            return _stay(built)
        case "down":
            return _down()
        case _:
            return _enter(chosen.machine, chosen.command)


def _check(built: _Built, *, is_required: bool) -> int:
    """The ring."""
    lacks = [*machine.find(DEFAULT_CACHE)[1], *machine.lacking("systemd-nspawn", "systemd-container")]
    missing = static.lacking()
    for line in (*missing, *(f"machines: LEFT OUT: {each}" for each in lacks)):
        _print_line(f"lab_nodes: {line}")
    if is_required and (lacks or missing):
        return 1
    try:
        for line in static.check():
            _print_line(line)
        if not lacks:
            _run(built)
    except (RingError, AssertionError) as error:
        _print_line(f"lab_nodes: FAILED: {error}")
        return 1
    return 0


def _run(built: _Built) -> None:
    began = time.monotonic()
    with ExitStack() as stack:
        lab = _start(built, stack)
        _print_line(f"lab_nodes: provisioned after {time.monotonic() - began:.0f} s")
        _print_line(lab.provision(lab.topology.control, "try"))
        for worker in lab.topology.workers:
            _print_line(lab.by_name[worker.name].run("vcnode doctor"))
        looked = "\n".join(lab.provision(name, "look") for name in lab.by_name)
        _print_line(looked)
        for tenant in lab.topology.tenants:
            _check_looked(looked, lab.key_of(tenant))
    _print_line(f"lab_nodes: all held, after {time.monotonic() - began:.0f} s")


def _check_looked(looked: str, key: str) -> None:
    """Whether the README's commands have shown this tenant's own. Raises AssertionError."""
    for expected in (
        f"super cluster  Pod {key}-shop/client\nstate          synced\n",
        # No Service has the addresses of the README.
        f"tcp [0-9.]+ -> 10.96.0.10:80 from shop/client of tenant {key}\n-> is rejected: .*, as expected\n",
        # A plus sign begins the next command.
        f"pod +shop/client .super cluster: {key}-shop/client[^+]* A  @[0-9.]+ .* NOERROR\n",
    ):
        assert re.search(expected, looked), f"no machine shows {expected}"


def _start(built: _Built, stack: ExitStack) -> machines.Machines:
    binaries, _ = machine.find(DEFAULT_CACHE)
    return machines.start(binaries, topology.read(), built.packages, built.tree, stack, _print_line)


def _up(built: _Built) -> int:
    if _running() is not None:
        _print_line("the lab is up already: make lab-down ends it")
        return 1
    _STATE.mkdir(parents=True, exist_ok=True)
    _MACHINES.unlink(missing_ok=True)
    with _LOG.open("wb") as log:
        stays = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.lab_nodes",
                f"--packages={built.packages}",
                f"--tree={built.tree}",
                "stay",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=_ROOT,
            start_new_session=True,
        )
    _PID.write_text(str(stays.pid))
    try:
        wait_for("the lab", lambda: _MACHINES.exists() or stays.poll() is not None, timeout_s=_UP_S)
    except RingError as error:
        _print_line(f"{error}; {_LOG} has the steps so far. make lab-down ends it")
        return 1
    _print_line(_LOG.read_text())
    if not _MACHINES.exists():
        return 1
    enter = f"{sys.executable} -m tests.lab_nodes enter"
    _print_line(
        f"The lab is up. Try it:\n  {enter} control /vagrant/lab/provision/try.sh\n"
        f"  {enter} worker-1 vcnode status\n  {enter} control\nmake lab-down ends it."
    )
    return 0


def _stay(built: _Built) -> int:
    """Run it until SIGTERM comes."""

    def end(_number: int, _frame: object) -> None:
        # Another one would interrupt the end of a machine.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _EndedError

    signal.signal(signal.SIGTERM, end)
    try:
        with ExitStack() as stack:
            lab = _start(built, stack)
            _MACHINES.write_text(json.dumps({name: each.leader for name, each in lab.by_name.items()}))
            signal.pause()
    except _EndedError:
        return 0
    except RingError as error:
        _print_line(f"lab_nodes: FAILED: {error}")
        return 1
    finally:
        _MACHINES.unlink(missing_ok=True)
    return 0


def _down() -> int:
    pid = _running()
    if pid is None:
        _print_line("the lab is not up")
        return 0
    os.kill(pid, signal.SIGTERM)
    try:
        wait_for("the lab ends", lambda: _running() is None, timeout_s=_DOWN_S)
    except RingError as error:
        _print_line(f"{error}; it goes on ending")
        return 1
    return 0


def _running() -> int | None:
    """The process that keeps the lab, if there is one."""
    try:
        pid = int(_PID.read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return pid if b"tests.lab_nodes" in command else None


def _enter(name: str, command: Sequence[str]) -> int:
    leaders = json.loads(_MACHINES.read_text()) if _running() is not None and _MACHINES.exists() else {}
    if name not in leaders:
        _print_line(f"no machine {name}: {', '.join(leaders) or 'the lab is not up'}")
        return 1
    environment = ["env", "-i", f"PATH={SYSTEM_PATH}", "HOME=/root", "TERM=xterm", "LANG=C.UTF-8"]
    inside = ["nsenter", f"--target={leaders[name]}", "--all"]
    at_home = ["sh", "-c", 'cd; exec "$@"', "sh", *(command or ["bash"])]
    return subprocess.run([*inside, *environment, *at_home], check=False).returncode


def _print_line(text: str) -> None:
    sys.stdout.write(f"{text.rstrip()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
