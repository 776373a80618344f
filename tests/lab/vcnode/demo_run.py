# SPDX-License-Identifier: Apache-2.0
"""The demo as root: its processes, its remains, its failures."""

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from tests.functional.vcnode_demo.demo_process import DemoProcess, output_of
from tests.lab.namespaces import Lab


class Demo(DemoProcess):
    """A running demo, with its processes."""

    _agent: int | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._agent is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._agent, signal.SIGKILL)

    def children(self) -> dict[int, str]:
        """Its running processes, with their command lines."""
        return {pid: command for pid, parent, command in _processes() if parent == self.process.pid}

    def child(self, module: str) -> int:
        (found,) = (pid for pid, command in self.children().items() if f"-m {module} " in command)
        return found

    def left_behind(self, children: dict[int, str]) -> list[str]:
        """The commands of these processes that still run, and remaining files."""
        return [*_running(children), *(str(path) for path in self.temporary.iterdir())]

    def kill_and_wait_for_all(self) -> None:
        """Kill it, and wait until all its processes have ended, except vn-agent.

        vn-agent is documented to stay, with its directory, until `__exit__`.
        """
        children = {pid: command for pid, command in self.children().items() if "-m vnagent" not in command}
        self._agent = self.child("vnagent")
        self.process.kill()
        self.ended()
        self.wait(lambda: not _running(children))


def _processes() -> Iterator[tuple[int, int, str]]:
    """Of all processes: id, its parent's, its command line."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            # The name may have blanks and parentheses: the fields follow the last one.
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            yield int(path.name), parent, command


def _running(children: dict[int, str]) -> list[str]:
    now = {pid: command for pid, _, command in _processes()}
    return [command for pid, command in children.items() if command and now.get(pid) == command]


def assert_failure_is_reported(demo: Demo, module: str, *logs: str) -> None:
    """Kill the daemon of this module: these logs are printed, and nothing is left behind."""
    children = demo.children()
    os.kill(demo.child(module), signal.SIGKILL)
    assert demo.ended() == 1, demo.text
    assert re.search(r"^vcnode: CHECK FAILED in step \d+: ", demo.text, re.MULTILINE), demo.text
    for name in logs:
        assert f"vcnode: {name} log: " in demo.text, demo.text
    left_behind = demo.left_behind(children)
    assert left_behind == [], left_behind


def output_without_mounts(lab: Lab) -> str:
    """The whole demo, as in a container with root but without the right to create namespaces."""
    bounded = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", "--")
    return output_of(*lab.namespace("demo").command(*bounded, sys.executable, "-m", "vcnode", "demo"))
