# SPDX-License-Identifier: Apache-2.0
"""The demo as root plays it: to the end, interrupted, failing, killed. Nothing is left behind."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.namespaces import Lab

# On an idle machine it takes six seconds; the rest is for a machine that does other things.
DEADLINE_S = 90.0
PROMISED_S = 90.0
PROGRAMS = ("vnagent", "kata_bridge", "kubeproxy_ext", "kata_bridge.guest", "guest_program.py")


class Demo:
    """A demo that runs, with its output so far and all that it has started."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.temporary = directory / "t"
        self.temporary.mkdir()
        self._output = directory / "output"
        environment = os.environ | {"TMPDIR": str(self.temporary)}  # noqa: TID251 - a child's, with one more
        command = [sys.executable, "-u", "-m", "vcnode", "demo", *options]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)

    @property
    def text(self) -> str:
        return self._output.read_text()

    def until(self, mark: str) -> None:
        self.wait(lambda: mark in self.text)

    def wait(self, condition: Callable[[], object]) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end_s, self.text
            time.sleep(0.02)

    def ended(self) -> int:
        return self.process.wait(DEADLINE_S)

    def children(self) -> dict[int, str]:
        """The processes that it has started and that run, with what they are."""
        return {pid: command for pid, parent, command in _processes() if parent == self.process.pid}

    def child(self, module: str) -> int:
        (found,) = (pid for pid, command in self.children().items() if f"-m {module} " in command)
        return found


def _processes() -> Iterator[tuple[int, int, str]]:
    """Of all processes: id, its parent's, its command line."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            # The name may have blanks and parentheses in it: what follows the last one is plain.
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            yield int(path.name), parent, command


def is_running(children: dict[int, str]) -> list[str]:
    """Those of some processes that still run."""
    now = {pid: command for pid, _, command in _processes()}
    return [command for pid, command in children.items() if command and now.get(pid) == command]


@contextlib.contextmanager
def running(directory: Path, *options: str) -> Iterator[Demo]:
    demo = Demo(directory, *options)
    try:
        yield demo
    finally:
        if demo.process.poll() is None:
            demo.process.terminate()
            demo.process.wait(DEADLINE_S)


@pytest.fixture
def short_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("d")


def test_services_inside_guests_are_told_to_the_end(short_path: Path) -> None:
    began_s = time.monotonic()
    with running(short_path) as demo:
        demo.until("\n23. ")
        children = demo.children()
        assert demo.ended() == 0, demo.text
        assert time.monotonic() - began_s < PROMISED_S
        for name in PROGRAMS:
            assert any(name in command for command in children.values()), f"{name} was not there"
        assert is_running(children) == []
        assert list(demo.temporary.iterdir()) == []
        steps = [int(number) for number in re.findall(r"^(\d+)\. ", demo.text, re.MULTILINE)]
        assert steps == list(range(1, len(steps) + 1))
        assert re.search(rf"^All as told: {len(steps)} steps, \d+ checks, ", demo.text, re.MULTILINE)
        act = demo.text.partition("Act 3: Services inside guests\n")[2]
        for claim in (
            r"ok: its rules were live in acme's guest after \d+ ms",
            r"ok: acme's guest reaches each of its two endpoints, and nobody else's",
            r"ok: globex's guest reaches its one endpoint, and nobody else's",
            r"ok: refused at once, after [0-9.]+ ms: nobody waits for a time-out",
            r"ok: it answered for the last time \d+ ms after it was gone from the Service",
            r"ok: \d+ ms after the flush the rules were back, without anybody's help",
            r"rules   drifted: somebody changed them in the guest: missing ",
            r"ok: it is what they should hold: nothing was applied again",
        ):
            assert re.search(claim, act), claim


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_among_guests_it_leaves_nothing_behind(short_path: Path, number: signal.Signals) -> None:
    with running(short_path) as demo:
        demo.until("\n18. ")
        children = demo.children()
        assert sum("guest_program.py" in command for command in children.values()) == 7
        demo.process.send_signal(number)
        assert demo.ended() == 128 + number
        assert is_running(children) == []
        assert list(demo.temporary.iterdir()) == []


def test_killed_it_takes_its_guests_and_their_daemons_with_it(short_path: Path) -> None:
    with running(short_path) as demo:
        demo.until("\n18. ")
        children = {pid: command for pid, command in demo.children().items() if "-m vnagent" not in command}
        agent = demo.child("vnagent")
        try:
            demo.process.kill()
            demo.ended()
            demo.wait(lambda: not is_running(children))
        finally:
            # It is documented to stay, with its directory.
            with contextlib.suppress(ProcessLookupError):
                os.kill(agent, signal.SIGKILL)


def test_a_failure_is_told_with_the_logs_and_leaves_nothing_behind(short_path: Path) -> None:
    with running(short_path) as demo:
        demo.until("\n17. ")
        children = demo.children()
        os.kill(demo.child("kubeproxy_ext"), signal.SIGKILL)
        assert demo.ended() == 1
        assert re.search(r"^vcnode: NOT AS TOLD in step \d+: ", demo.text, re.MULTILINE), demo.text
        for name in ("kata-bridge", "kubeproxy-ext", "acme's guest agent"):
            assert f"vcnode: {name} log: " in demo.text
        assert is_running(children) == []
        assert list(demo.temporary.iterdir()) == []


def test_kept_it_can_be_played_with(short_path: Path) -> None:
    with running(short_path, "--keep") as demo:
        demo.until("Ctrl-C takes it all down.")
        lines = [line.strip() for line in demo.text.splitlines() if line.startswith("  ")]
        for start, expected in (
            ("vcnode guests", "acme-front "),
            ("vcnode explain", "-> goes to 10.0.0.21:8080, as it should"),
            ("vcnode status", "\nkata-bridge: ready"),
            ("vcnode status", "\nkubeproxy-ext on node-1: ready"),
        ):
            command = [line for line in lines if line.startswith(start)][-1]
            asked = subprocess.run(
                [sys.executable, "-m", *shlex.split(command)],
                check=False,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
            )
            assert asked.returncode == 0, asked
            assert expected in asked.stdout
        enters = [line for line in lines if line.startswith("nsenter") and "curl" in line]
        assert len(enters) == 2
        demo.process.send_signal(signal.SIGINT)
        assert demo.ended() == 0


def test_the_act_is_left_out_where_namespaces_are_not_allowed(lab: Lab) -> None:
    """As in a container that has root but not the right to make namespaces."""
    inside = lab.namespace("demo")
    bounded = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", "--")
    done = subprocess.run(
        inside.command(*bounded, sys.executable, "-m", "vcnode", "demo"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (
        "Act 3: Services inside guests: left out, it needs what this kernel or container does not allow"
        in (done.stdout)
    )
