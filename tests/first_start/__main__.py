# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.first_start`: follows the README's install section on an empty node.

Exit code 0 when all daemons served, 1 when one did not, 0 with one line where this machine cannot run it
(1 with `--require`).
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack

from tests.first_start import commands, site, workload
from tests.first_start.site import Site
from tests.k8s.build import DEFAULT_CACHE, Binaries
from tests.k8s.ring import debian, machine
from tests.k8s.ring.processes import RingError, wait_for

# The deadline of polled conditions; a busy machine of CI needs part of it.
_READY_S = 90.0


def main() -> int:
    """Run it and print each step."""
    binaries, lacks = machine.find(DEFAULT_CACHE)
    if not (commands.ROOT / "build/tree/bin/vn-agent").exists():
        lacks.append("no tree: make build/tree/bin/vn-agent")
    if lacks:
        _print_line(f"first start: LEFT OUT: {'; '.join(lacks)}")
        return 1 if "--require" in sys.argv else 0
    began = time.monotonic()
    steps = commands.read((commands.ROOT / "README.md").read_text())
    with ExitStack() as stack:
        try:
            _follow(binaries, steps, stack)
        except (RingError, AssertionError) as error:
            _print_line(f"first start: FAILED: {error}")
            return 1
    _print_line(f"first start: all four daemons serve, after {time.monotonic() - began:.0f} s")
    return 0


def _follow(binaries: Binaries, steps: commands.Steps, stack: ExitStack) -> None:
    made, authorities = site.start(binaries, stack)
    _print_line(
        f"an empty {debian.suite()} with containerd and kubelet, beside a super cluster and a tenant's"
    )
    made.syncer.create_namespace(made.tenant, "kube-system")
    _run(made, "cluster", steps["cluster"], is_on_node=False)
    _run(made, "node", steps["node"])
    site.give_certificates(made, authorities)
    _run(made, "check", steps["check"])
    _print_line("start")
    daemons = site.start_script(made, "daemons", steps["start"])
    try:
        _run(made, "tenant", steps["tenant"], directory="/root")
        _run(made, "network", steps["network"], is_on_node=False)
        wait_for("every daemon is ready", lambda: _is_ready(made, steps["ask"]), timeout_s=_READY_S)
        _print_line(made.run_on_node(steps["ask"]))
        for line in workload.check(made):
            _print_line(line)
    except (RingError, AssertionError) as error:
        raise RingError(f"{error}\n{_state(made, steps['ask'])}\n{daemons.tail()}") from None


def _run(made: Site, name: str, script: str, *, is_on_node: bool = True, directory: str = "") -> None:
    _print_line(f"{name}:\n{script}")
    if not is_on_node:
        _print_line(made.run_as_administrator(script))
    elif directory:
        _print_line(made.run_on_node(script, directory))
    else:
        _print_line(made.run_on_node(script))


def _is_ready(made: Site, script: str) -> bool:
    """`vcnode status` ends with 0 if all that it found are ready; it must have found four."""
    try:
        return made.run_on_node(script).count(": ready") == workload.DAEMONS
    except RingError:
        return False


def _state(made: Site, script: str) -> str:
    return made.run_on_node(f"{script.strip()} || true; /usr/lib/vcnode/bin/vcnode guests || true")


def _print_line(text: str) -> None:
    sys.stdout.write(f"{text.rstrip()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
