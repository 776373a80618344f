# SPDX-License-Identifier: Apache-2.0
"""The demo as a user runs it: in a process, to the end, interrupted, and kept."""

import contextlib
import os
import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.vcnode_demo.demo_process import DemoProcess, command_of, output_of
from vcnode_demo import cheatsheet

# Never as root: a user namespace without a mapping has no root. tests/lab runs the demo as root.
_UNPRIVILEGED = ["unshare", "--user", "--"] if os.geteuid() == 0 else []
_DAEMONS = (b"vnagent", b"syncer", b"tenant_operator")


class Demo(DemoProcess):
    """A demo that runs without privileges."""

    def __init__(self, directory: Path, *options: str) -> None:
        super().__init__(directory, *options, enter=_UNPRIVILEGED)

    def left_behind(self) -> list[str]:
        """Files of the demo, and daemons that still run with a configuration in its directory."""
        return [*(str(path) for path in self.temporary.iterdir()), *self._daemons()]

    def _daemons(self) -> Iterator[str]:
        mark = f"{self.temporary}/".encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                command = path.read_bytes()
                if mark in command and any(name in command for name in _DAEMONS):
                    yield str(path)


def test_all_scenarios_pass(short_dir: Path) -> None:
    with Demo(short_dir) as demo:
        assert demo.ended() == 0, demo.text
        steps = [int(number) for number in re.findall(r"^(\d+)\. ", demo.text, re.MULTILINE)]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) >= 15
        assert re.search(rf"^All checks passed: {len(steps)} steps, \d+ checks, ", demo.text, re.MULTILINE)
        assert "CHECK FAILED" not in demo.text
        skipped = [line for line in demo.text.splitlines() if line.startswith(("Scenario 3", "Scenario 4"))]
        assert skipped == [
            "Scenario 3: Services inside guests: skipped, it needs root",
            "Scenario 4: DNS of each network: skipped, it needs root",
        ]
        output = demo.text.partition("Scenario 5: vc-syncer, from tenants' objects to running pods\n")[2]
        for claim in (
            "both pods run",
            "hooli's objects are in its own super namespace, and carry its cluster key",
            "it is the log of the pod that runs for umbrella",
            "umbrella's Service and that in the super cluster name each other's address",
            "its tenant has an Event of it",
            "it is as the tenant has it again",
            "the tenant's pod is deleted too, so it is not lost unseen",
            "vc-syncer holds its deletions",
            "nothing of hooli's is deleted, and its pod runs on",
            "hooli's namespace and pod are deleted in the super cluster",
        ):
            assert f"\n   ok: {claim}" in output, claim
        output = demo.text.partition("Scenario 6: vc-operator, from one object to a tenant and to nothing\n")[
            2
        ]
        for line in (
            "   person > kubectl vc create wayne -n team-wayne",
            "   ok: the node's vn-agent knows its API server",
            "   ok: what nodes read of it has certificates alone, no key",
            "   ok: an object is made in the tenant",
            "   ok: its API server does not listen",
            "   ok: its object is there again",
            "   ok: no Secret, no workload and no volume is left, nor its kubeconfig",
            "   ok: and vn-agent has forgotten its API server",
        ):
            assert f"\n{line}" in output, line
        assert demo.left_behind() == []


def test_an_interrupt_ends_the_operator(short_dir: Path) -> None:
    with Demo(short_dir) as demo:
        demo.until("What vc-operator has made of that one object")
        demo.process.send_signal(signal.SIGTERM)
        assert demo.ended() == 128 + signal.SIGTERM
        assert demo.left_behind() == []


def test_an_interrupt_ends_the_syncer(short_dir: Path) -> None:
    with Demo(short_dir) as demo:
        demo.until("As by kubectl logs: each tenant's API server asks")
        demo.process.send_signal(signal.SIGTERM)
        assert demo.ended() == 128 + signal.SIGTERM
        assert demo.left_behind() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_behind(short_dir: Path, number: signal.Signals) -> None:
    with Demo(short_dir) as demo:
        demo.until("\n1. ")
        demo.process.send_signal(number)
        assert demo.ended() == 128 + number
        assert demo.left_behind() == []


def test_keep_runs_until_it_is_interrupted(short_dir: Path) -> None:
    with Demo(short_dir, "--keep") as demo:
        lines = demo.cheatsheet()
        programs = {name for line in lines for name in cheatsheet.programs(f"  {line}")}
        left_out = set(re.findall(r"# (\S+) is not installed: ", "\n".join(lines)))
        assert {cheatsheet.vcnode(), "curl", "openssl", "tail", "less"} <= programs | left_out
        assert {name for name in programs | left_out if shutil.which(name) is None} == left_out
        output = output_of(*command_of(lines, "vcnode status"), timeout_s=30)
        assert output.startswith("vn-agent on node-1: ready")
        assert "\nvc-syncer: ready" in output
        assert "synced" in output_of(*command_of(lines, "vcnode explain object"), timeout_s=30)
        files = {part for line in lines if line.startswith(("curl", "tail")) for part in shlex.split(line)}
        named = [Path(part) for part in files if part.startswith(str(demo.temporary))]
        assert len(named) >= 8
        assert [path for path in named if not path.exists()] == []
        demo.process.send_signal(signal.SIGINT)
        assert demo.ended() == 0
        assert demo.left_behind() == []
