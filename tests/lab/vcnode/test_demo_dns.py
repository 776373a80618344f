# SPDX-License-Identifier: Apache-2.0
"""The demo's act of DNS: to the end, interrupted, failing, killed, kept. Nothing is left behind."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.namespaces import Lab
from tests.lab.vcnode.demo_run import DEADLINE_S, is_running, running

PROGRAMS = ("kata_bridge", "dnsconfig", "dns_program.py")
# Of the act's last step but one: all five pods are there, and four containers.
NEARLY_OVER = "\n30. "


def mounted(directory: Path) -> Iterator[str]:
    """Mounts of what is in the directory, in whatever namespace."""
    for path in Path("/proc").glob("[0-9]*/mountinfo"):
        with contextlib.suppress(OSError):
            yield from (line for line in path.read_text().splitlines() if str(directory) in line)


def test_dns_of_each_network_is_told_to_the_end(short_path: Path) -> None:
    with running(short_path) as demo:
        demo.until(NEARLY_OVER)
        children = demo.children()
        # A mount with its root in the directory: so the test can see them.
        assert any(mounted(demo.temporary))
        assert demo.ended() == 0, demo.text
        for name in PROGRAMS:
            assert any(name in command for command in children.values()), f"{name} was not there"
        assert is_running(children) == []
        assert list(demo.temporary.iterdir()) == []
        assert list(mounted(demo.temporary)) == []
        act = demo.text.partition("Act 4: DNS of each network\n")[2]
        for claim in (
            r"acme's cart \(default\) +10\.0\.0\.31 +10\.0\.0\.41 +- +- +-\n",
            r"globex's till \(blue\) +10\.0\.0\.34 +- +- +- +10\.0\.0\.44\n",
            r"ok: to globex acme's Services do not exist",
            r"server +10\.0\.0\.53 \(network blue: its status, ipam External\)",
            r"ok: globex's till has its answer from there after \d+ ms, by the process that was running",
            r"ok: nobody else's resolv.conf has changed",
            r"waiting: network red does not exist \(it is tried again by itself\)",
            r"waits +network red does not exist",
            r"ok: and its first question is answered by its own server",
            r"ok: no pod has ever asked the node's resolver",
            r"ok: who does it on purpose is answered there, and noticed",
        ):
            assert re.search(claim, act), claim


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_among_pods_it_leaves_nothing_behind(short_path: Path, number: signal.Signals) -> None:
    with running(short_path) as demo:
        demo.until(NEARLY_OVER)
        children = demo.children()
        demo.process.send_signal(number)
        assert demo.ended() == 128 + number
        assert is_running(children) == []
        assert list(demo.temporary.iterdir()) == []
        assert list(mounted(demo.temporary)) == []


def test_killed_it_takes_its_pods_and_their_daemons_with_it(short_path: Path) -> None:
    with running(short_path) as demo:
        demo.until(NEARLY_OVER)
        children = {pid: command for pid, command in demo.children().items() if "-m vnagent" not in command}
        agent = demo.child("vnagent")
        try:
            demo.process.kill()
            demo.ended()
            demo.wait(lambda: not is_running(children))
            assert list(mounted(demo.temporary)) == []
        finally:
            # It is documented to stay, with its directory.
            with contextlib.suppress(ProcessLookupError):
                os.kill(agent, signal.SIGKILL)


def test_a_failure_is_told_with_the_logs_and_leaves_nothing_behind(short_path: Path) -> None:
    with running(short_path) as demo:
        demo.until("\n27. ")
        children = demo.children()
        os.kill(demo.child("dnsconfig"), signal.SIGKILL)
        assert demo.ended() == 1
        assert re.search(r"^vcnode: NOT AS TOLD in step \d+: ", demo.text, re.MULTILINE), demo.text
        assert "vcnode: dnsconfig log: " in demo.text
        assert is_running(children) == []
        assert list(demo.temporary.iterdir()) == []


def test_kept_it_can_be_played_with(short_path: Path) -> None:
    with running(short_path, "--keep") as demo:
        demo.until("Ctrl-C takes it all down.")
        lines = [line.strip() for line in demo.text.splitlines() if line.startswith("  ")]
        asks = [line for line in lines if "getent ahostsv4 db" in line and line.startswith("nsenter")]
        assert len(asks) == 5
        found = [_output(*shlex.split(line, comments=True)) for line in asks]
        assert [text.split()[0] for text in found] == [
            "10.0.0.31",
            "10.0.0.32",
            "10.0.0.33",
            "10.0.0.36",
            "10.0.0.35",
        ]
        (explain,) = (line for line in lines if line.startswith("vcnode explain dns"))
        assert "10.0.0.31" in _output(sys.executable, "-m", *shlex.split(explain))
        status = next(line for line in lines if line.startswith("vcnode status"))
        assert "dnsconfig on node-1: ready" in _output(sys.executable, "-m", *shlex.split(status))
        demo.process.send_signal(signal.SIGINT)
        assert demo.ended() == 0


def _output(*argv: str) -> str:
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done
    return done.stdout


def test_the_act_is_left_out_where_mounts_are_not_allowed(lab: Lab) -> None:
    """As in a container that has root but not the right to make namespaces."""
    bounded = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", "--")
    command = lab.namespace("demo").command(*bounded, sys.executable, "-m", "vcnode", "demo")
    text = _output(*command)
    assert (
        "Act 4: DNS of each network: left out, it needs what this kernel or container does not allow" in text
    )
