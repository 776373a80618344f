# SPDX-License-Identifier: Apache-2.0
"""The demo as a user runs it: in a process, to the end, interrupted, and kept."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# On an idle machine it takes three seconds; the rest is for a machine that does other things.
DEADLINE_S = 90.0
# Not as root, whoever we are: in a user namespace root is nobody. tests/lab has the demo as root.
_AS_NOBODY = ["unshare", "--user", "--"] if os.geteuid() == 0 else []
COMMAND = [*_AS_NOBODY, sys.executable, "-u", "-m", "vcnode", "demo"]


class Demo:
    """A demo that runs, with its output so far, in a directory for temporary files of its own."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.output = directory / "output"
        self.temporary = directory / "t"
        self.temporary.mkdir()
        environment = os.environ | {"TMPDIR": str(self.temporary)}  # noqa: TID251 - a child's, with one more
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*COMMAND, *options], stdout=output, stderr=subprocess.STDOUT, env=environment
            )

    @property
    def text(self) -> str:
        return self.output.read_text()

    def until(self, mark: str) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while mark not in self.text:
            assert self.process.poll() is None, self.text
            assert time.monotonic() < end_s, self.text
            time.sleep(0.05)

    def ended(self) -> int:
        return self.process.wait(DEADLINE_S)

    def left_behind(self) -> list[str]:
        """Files of the demo, and agents that still run with a configuration in its directory."""
        return [*(str(path) for path in self.temporary.iterdir()), *self._agents()]

    def _agents(self) -> Iterator[str]:
        mark = f"{self.temporary}/".encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                command = path.read_bytes()
                if b"vnagent" in command and mark in command:
                    yield str(path)


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


def test_it_tells_its_story_to_the_end(short_path: Path) -> None:
    with running(short_path) as demo:
        assert demo.ended() == 0, demo.text
        steps = [int(number) for number in re.findall(r"^(\d+)\. ", demo.text, re.MULTILINE)]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) >= 15
        assert re.search(rf"^All as told: {len(steps)} steps, \d+ checks, ", demo.text, re.MULTILINE)
        assert "NOT AS TOLD" not in demo.text
        left_out = [line for line in demo.text.splitlines() if line.startswith(("Act 3", "Act 4"))]
        assert left_out == [
            "Act 3: Services inside guests: left out, it needs root",
            "Act 4: DNS of each network: left out, it needs root",
        ]
        assert demo.left_behind() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_cleans_up_when_it_is_interrupted(short_path: Path, number: signal.Signals) -> None:
    with running(short_path) as demo:
        demo.until("\n1. ")
        demo.process.send_signal(number)
        assert demo.ended() == 128 + number
        assert demo.left_behind() == []


def test_kept_it_can_be_played_with_until_it_is_interrupted(short_path: Path) -> None:
    with running(short_path, "--keep") as demo:
        demo.until("Ctrl-C takes it all down.")
        lines = [line.strip() for line in demo.text.splitlines() if line.startswith("  ")]
        status = next(line for line in lines if line.startswith("vcnode status"))
        asked = subprocess.run(
            [sys.executable, "-m", *shlex.split(status)],
            check=False,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert asked.returncode == 0, asked.stderr
        assert asked.stdout.startswith("vn-agent on node-1: ready")
        files = {part for line in lines if line.startswith(("curl", "tail")) for part in shlex.split(line)}
        named = [Path(part) for part in files if part.startswith(str(demo.temporary))]
        assert len(named) >= 8
        assert [path for path in named if not path.exists()] == []
        demo.process.send_signal(signal.SIGINT)
        assert demo.ended() == 0
        assert demo.left_behind() == []
