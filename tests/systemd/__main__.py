# SPDX-License-Identifier: Apache-2.0
"""Follows the README's install section on a booted node.

    python -m tests.systemd --packages DIRECTORY --previous DIRECTORY

Then it restarts each daemon under load, goes to the previous build and back, and purges. The rpms come after
that. Exit code 0 when all held, 1 when something did not, 0 with one line where this machine cannot run it
(1 with `--require`).
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tests import guide
from tests.k8s.build import DEFAULT_CACHE, Binaries
from tests.k8s.ring import debian, machine
from tests.k8s.ring.processes import RingError
from tests.systemd import lifecycle, netns_channel, restarts, rpms, site, units, workload
from tests.systemd.site import Site


def main() -> int:
    """Run it and print each step."""
    parser = argparse.ArgumentParser(prog="python -m tests.systemd")
    parser.add_argument("--packages", type=Path, required=True, metavar="DIR", help="debs of this build")
    parser.add_argument("--previous", type=Path, required=True, metavar="DIR", help="of another version")
    parser.add_argument("--record", type=Path, metavar="DIR", help="write pages for tests/reference there")
    parser.add_argument("--require", action="store_true")
    chosen = parser.parse_args()
    binaries, lacks = machine.find(DEFAULT_CACHE)
    lacks += machine.lacking("systemd-nspawn", "systemd-container")
    if lacks:
        _print_line(f"systemd: LEFT OUT: {'; '.join(lacks)}")
        return 1 if chosen.require else 0
    began = time.monotonic()
    steps = guide.read("README.md", "install", guide.STEPS)
    operate = guide.read("docs/operate.md", "operate", guide.OPERATE_STEPS)
    with ExitStack() as stack:
        try:
            _follow(binaries, {**steps, **operate}, stack, chosen)
        except (RingError, AssertionError) as error:
            _print_line(f"systemd: FAILED: {error}")
            return 1
    _print_line(f"systemd: all held, after {time.monotonic() - began:.0f} s")
    return 0


def _follow(binaries: Binaries, steps: guide.Steps, stack: ExitStack, chosen: argparse.Namespace) -> None:
    packages = chosen.packages.resolve()
    made = site.start(binaries, stack, packages, chosen.previous.resolve())
    _print_line(
        f"a booted {debian.suite()} with containerd and kubelet, beside a super cluster and a tenant's"
    )
    guide_began = time.monotonic()
    before = lifecycle.files(made), lifecycle.accounts(made)
    began = time.monotonic()
    for name in ("authorities", "bundle", "cluster"):
        _show(name, steps[name], made.run_as_administrator(steps[name]))
    site.copy_bundle(made)
    _show("packages", steps["packages"], made.booted.run(steps["packages"], site.PACKAGES))
    _show("node", steps["node"], made.booted.run(steps["node"]))
    ours_s = time.monotonic() - began
    tenant = site.start_tenant(made, binaries, stack)
    try:
        began = time.monotonic()
        _show("start", steps["start"], made.booted.run(steps["start"]))
        _show("tenant", steps["tenant"], made.booted.run(steps["tenant"]))
        _show("network", steps["network"], made.run_as_administrator(steps["network"]))
        lifecycle.wait_until_ready(made)
        _show("ask", steps["ask"], made.booted.run(steps["ask"]))
        ours_s += time.monotonic() - began
        first_logs = workload.check_logs(made, tenant)
        _print_line(first_logs)
        _print_line(
            f"the install section: {time.monotonic() - guide_began:.0f} s (at most 300) until that,"
            f" {ours_s:.1f} s (at most 60) of vcnode's own commands"
        )
        for line in workload.check(made, tenant):
            _print_line(line)
        if chosen.record is not None:
            _record(made, chosen.record)
        for check in (netns_channel.check, units.check, restarts.check):
            for line in check(made, tenant):
                _print_line(line)
        for line in lifecycle.check(made, tenant, steps):
            _print_line(line)
        _print_line(lifecycle.check_purge(made, before, steps))
        _print_line(rpms.check_files(packages))
        for line in rpms.check(made, tenant, steps, before[0]):
            _print_line(line)
    except (RingError, AssertionError) as error:
        raise RingError(f"{error}\n{_state(made)}") from None


def _record(made: Site, directory: Path) -> None:
    for verb in ("status", "guests"):
        (directory / f"{verb}.json").write_text(made.booted.run(f"vcnode {verb} -o json"))


def _state(made: Site) -> str:
    """What an operator would look at."""
    pods = made.api.get("/api/v1/pods")["items"]
    states = [str({**each["status"], "name": each["metadata"]["name"]}) for each in pods]
    return (
        "\n".join(states)
        + made.booted.try_run(
            "set +e; vcnode status; vcnode guests; systemctl --no-pager --lines=0 status 'vcnode.slice'; "
            "journalctl --no-pager --lines=200 --output=short-precise"
        )[1]
    )


def _show(name: str, script: str, printed: str) -> None:
    _print_line(f"{name}:\n{script}{printed}")


def _print_line(text: str) -> None:
    sys.stdout.write(f"{text.rstrip()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
