# SPDX-License-Identifier: Apache-2.0
"""The demo's DNS scenario: complete, interrupted, failing, killed, kept. Nothing is left behind."""

import contextlib
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.vcnode_demo.demo_process import command_of, output_of
from tests.lab.namespaces import Lab
from tests.lab.vcnode.demo_run import Demo, assert_failure_is_reported, output_without_mounts

PROGRAMS = ("kata_bridge", "dnsconfig", "dns_program.py")
# The scenario's last step but one: all five pods exist, and four containers.
NEARLY_OVER = "\n30. "


def mounted(directory: Path) -> Iterator[str]:
    """Mounts of files in the directory, in all namespaces."""
    for path in Path("/proc").glob("[0-9]*/mountinfo"):
        with contextlib.suppress(OSError):
            yield from (line for line in path.read_text().splitlines() if str(directory) in line)


def test_dns_scenario_runs_to_the_end(short_dir: Path) -> None:
    with Demo(short_dir) as demo:
        demo.until(NEARLY_OVER)
        children = demo.children()
        # A mount with its root in the directory: so the test can see them.
        assert any(mounted(demo.temporary))
        assert demo.ended() == 0, demo.text
        for name in PROGRAMS:
            assert any(name in command for command in children.values()), f"{name} did not run"
        assert demo.left_behind(children) == []
        assert list(mounted(demo.temporary)) == []
        output = demo.text.partition("Scenario 4: DNS of each network\n")[2]
        for claim in (
            r"acme's cart \(default\) +10\.0\.0\.31 +10\.0\.0\.41 +- +- +-\n",
            r"globex's till \(blue\) +10\.0\.0\.34 +- +- +- +10\.0\.0\.44\n",
            r"ok: acme's Services do not exist for globex",
            r"server +10\.0\.0\.53 \(network blue: its status, ipam External\)",
            r"ok: globex's till has its answer from there after \d+ ms, by the process that was running",
            r"ok: the resolv.conf of all other pods is unchanged",
            r"waiting: network red does not exist \(the kubelet tries again\)",
            r"waits +network red does not exist",
            r"ok: and its own server answers its first query",
            r"ok: no pod has ever queried the node's resolver",
            r"ok: a deliberate query to it is answered, and observed",
        ):
            assert re.search(claim, output), claim


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_among_pods_leaves_nothing_behind(short_dir: Path, number: signal.Signals) -> None:
    with Demo(short_dir) as demo:
        demo.until(NEARLY_OVER)
        children = demo.children()
        demo.process.send_signal(number)
        assert demo.ended() == 128 + number
        assert demo.left_behind(children) == []
        assert list(mounted(demo.temporary)) == []


def test_killed_demo_ends_its_pods_and_daemons(short_dir: Path) -> None:
    with Demo(short_dir) as demo:
        demo.until(NEARLY_OVER)
        demo.kill_and_wait_for_all()
        assert list(mounted(demo.temporary)) == []


def test_a_failure_shows_the_logs_and_cleans_up(short_dir: Path) -> None:
    with Demo(short_dir) as demo:
        demo.until("\n27. ")
        assert_failure_is_reported(demo, "dnsconfig", "dnsconfig")


def test_kept_demo_accepts_its_printed_commands(short_dir: Path) -> None:
    with Demo(short_dir, "--keep") as demo:
        lines = demo.cheatsheet()
        lookups = [line for line in lines if "getent ahostsv4 db" in line and line.startswith("nsenter")]
        assert len(lookups) == 5
        found = [output_of(*shlex.split(line, comments=True)) for line in lookups]
        assert [text.split()[0] for text in found] == [
            "10.0.0.31",
            "10.0.0.32",
            "10.0.0.33",
            "10.0.0.36",
            "10.0.0.35",
        ]
        assert "10.0.0.31" in output_of(*command_of(lines, "vcnode explain dns"))
        assert "dnsconfig on node-1: ready" in output_of(*command_of(lines, "vcnode status"))
        demo.process.send_signal(signal.SIGINT)
        assert demo.ended() == 0


def test_scenario_is_skipped_where_mounts_are_denied(lab: Lab) -> None:
    assert (
        "Scenario 4: DNS of each network: skipped, it needs what this kernel or container does not allow"
        in output_without_mounts(lab)
    )
