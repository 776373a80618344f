# SPDX-License-Identifier: Apache-2.0
"""The demo as root runs it, in a process: what it says, what it has started, what it leaves."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# On an idle machine it takes eight seconds; the rest is for a machine that does other things.
DEADLINE_S = 90.0


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
        """Wait until it has said this. Fails with all that it said when it ends before."""

        def has_said() -> bool:
            has_ended = self.process.poll() is not None
            text = self.text
            assert mark in text or not has_ended, text
            return mark in text

        self.wait(has_said)

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
