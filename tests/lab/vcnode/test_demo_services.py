# SPDX-License-Identifier: Apache-2.0
"""The demo as root: complete, interrupted, failing, killed. Nothing is left behind."""

import re
import signal
import time
from pathlib import Path

import pytest

from tests.functional.vcnode_demo.demo_process import command_of, output_of
from tests.lab.namespaces import Lab
from tests.lab.vcnode.demo_run import Demo, assert_failure_is_reported, output_without_mounts

LIMIT_S = 90.0
PROGRAMS = ("vnagent", "kata_bridge", "kubeproxy_ext", "guest_agent", "guest_program.py")


def test_services_scenario_runs_to_the_end(short_dir: Path) -> None:
    began_s = time.monotonic()
    with Demo(short_dir) as demo:
        demo.until("\n23. ")
        children = demo.children()
        assert demo.ended() == 0, demo.text
        assert time.monotonic() - began_s < LIMIT_S
        for name in PROGRAMS:
            assert any(name in command for command in children.values()), f"{name} did not run"
        assert demo.left_behind(children) == []
        steps = [int(number) for number in re.findall(r"^(\d+)\. ", demo.text, re.MULTILINE)]
        assert steps == list(range(1, len(steps) + 1))
        assert re.search(rf"^All checks passed: {len(steps)} steps, \d+ checks, ", demo.text, re.MULTILINE)
        output = demo.text.partition("Scenario 3: Services inside guests\n")[2]
        for claim in (
            r"ok: its rules were live in acme's guest after \d+ ms",
            r"ok: acme's guest reaches each of its two endpoints and no other pod",
            r"ok: globex's guest reaches its one endpoint and no other pod",
            r"ok: refused at once, after [0-9.]+ ms, without waiting for a time-out",
            r"ok: it answered for the last time \d+ ms after its removal from the Service",
            r"ok: \d+ ms after the flush the rules were applied again, without an operator",
            r"rules +drifted: changed inside the guest: missing ",
            r"ok: these are the desired rules: kata-bridge applied none again",
        ):
            assert re.search(claim, output), claim


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_among_guests_leaves_nothing_behind(short_dir: Path, number: signal.Signals) -> None:
    with Demo(short_dir) as demo:
        demo.until("\n18. ")
        children = demo.children()
        assert sum("guest_program.py" in command for command in children.values()) == 7
        demo.process.send_signal(number)
        assert demo.ended() == 128 + number
        assert demo.left_behind(children) == []


def test_killed_demo_ends_its_guests_and_daemons(short_dir: Path) -> None:
    with Demo(short_dir) as demo:
        demo.until("\n18. ")
        demo.kill_and_wait_for_all()


def test_a_failure_shows_the_logs_and_cleans_up(short_dir: Path) -> None:
    with Demo(short_dir) as demo:
        demo.until("\n17. ")
        assert_failure_is_reported(
            demo, "kubeproxy_ext", "kata-bridge", "kubeproxy-ext", "acme's guest agent"
        )


def test_kept_demo_accepts_its_printed_commands(short_dir: Path) -> None:
    with Demo(short_dir, "--keep") as demo:
        lines = demo.cheatsheet()
        for start, expected in (
            ("vcnode guests", "web/front "),
            ("vcnode explain", "-> goes to 10.0.0.21:8080, as expected"),
            ("vcnode status", "\nkata-bridge: ready"),
            ("vcnode status", "\nkubeproxy-ext on node-1: ready"),
        ):
            assert expected in output_of(*command_of(lines, start))
        enters = [line for line in lines if line.startswith("nsenter") and "curl" in line]
        assert len(enters) == 2
        demo.process.send_signal(signal.SIGINT)
        assert demo.ended() == 0


def test_scenario_is_skipped_where_namespaces_are_denied(lab: Lab) -> None:
    assert (
        "Scenario 3: Services inside guests: skipped, it needs what this kernel or container does not allow"
        in output_without_mounts(lab)
    )
