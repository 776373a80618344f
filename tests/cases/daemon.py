# SPDX-License-Identifier: Apache-2.0
"""A vn-agent process under test, its status pages, and its state in /proc."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from daemonkit.status.server import StatusError, fetch
from tests import moved_clock
from tests.waiting import holds_within

ROOT = Path(__file__).resolve().parents[2]
AGENT = "vnagent"
_START_DEADLINE_S = 15.0
_STOP_DEADLINE_S = 15.0
_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")


class DaemonError(Exception):
    """The daemon did not start or reload, or its status page failed."""


class VnAgentProcess:
    """One `python -m vnagent` with the configuration at `config`.

    With `is_clock_movable` the same module runs under `moved_clock`, and `advance` works.
    """

    # A tree made by `packaging/tree.py`, whose daemon is then under test.
    tree: ClassVar[Path | None] = None

    def __init__(
        self, config: Path, socket: Path, *, is_clock_movable: bool = False, module: str = AGENT
    ) -> None:
        self._module = module
        self.config = config
        self.socket = socket
        self.log = config.with_suffix(".log")
        self._offset = config.with_suffix(".clock")
        self._offset_s = 0.0
        self._is_clock_movable = is_clock_movable
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def pid(self) -> int:
        if self._process is None:
            raise DaemonError("not started")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def spawn(self) -> None:
        """Start the process without waiting."""
        command = [sys.executable, "-m", self._module]
        if self._is_clock_movable:
            moved_clock.move(self._offset, self._offset_s)
            clock = ("tests.moved_clock", str(self._offset), "wall,monotonic")
            command = [sys.executable, "-m", *clock, AGENT]
        environment = None
        if self.tree is not None:
            # -P: without the working directory, which has the sources.
            command.insert(1, "-P")
            environment = {"PYTHONPATH": f"{self.tree}:{ROOT}"}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--config", str(self.config)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )

    def start(self) -> None:
        """Start it and wait until it is ready. Raises DaemonError."""
        self.spawn()
        if not holds_within(lambda: not self.is_running or self.is_ready(), _START_DEADLINE_S):
            raise DaemonError(f"not ready in {_START_DEADLINE_S} s: {self.log_tail()}")
        if not self.is_running:
            raise DaemonError(f"exit code {self.exit_code}: {self.log_tail()}")
        self.port = self.listen_port()

    def is_ready(self) -> bool:
        try:
            return self.get("/readyz")[0] == 200
        except DaemonError:
            return False

    def get(self, path: str) -> tuple[int, str]:
        """A status page. Raises DaemonError."""
        try:
            status, body = fetch(self.socket, path, 5.0)
        except (StatusError, OSError) as problem:
            raise DaemonError(f"status {path}: {problem}") from problem
        return status, body.decode()

    def status(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.get("/status")[1])
        return value

    def listen_port(self) -> int:
        """The port that it listens on. Raises DaemonError."""
        listen = self.status().get("listen")
        if isinstance(listen, dict) and isinstance(listen.get("port"), int):
            return int(listen["port"])
        raise DaemonError(f"no listen.port in /status: {listen!r}")

    def samples(self) -> dict[str, float]:
        """All metric series as `name{labels}` and their values."""
        found = {}
        for line in self.get("/metrics")[1].splitlines():
            match = _SAMPLE.match(line)
            if match is not None and not line.startswith("#"):
                name = match["name"] + (f"{{{match['labels']}}}" if match["labels"] else "")
                found[name] = float(match["value"])
        return found

    def metric(self, name: str) -> float:
        """The sum of a family's series."""
        return sum(v for k, v in self.samples().items() if k.partition("{")[0] == name)

    def reloads(self, result: str) -> float:
        return sum(
            value
            for name, value in self.samples().items()
            if name.startswith("vcnode_reloads_total{") and f'result="{result}"' in name
        )

    def after_reload(self, change: Callable[[], None], *, result: str = "ok", count: int = 1) -> None:
        """Change files and wait until the agent has reloaded them. Raises DaemonError."""
        before = self.reloads(result)
        change()
        if not holds_within(lambda: self.reloads(result) >= before + count, 5.0):
            raise DaemonError(f"no reload with result={result} within 5 s of a change of files")

    def resident_kib(self) -> int:
        """VmRSS. Raises DaemonError for a process that has ended."""
        try:
            text = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        except OSError as problem:
            raise DaemonError("the process is gone") from problem
        match = re.search(r"VmRSS:\s+(\d+) kB", text)
        return int(match[1]) if match else 0

    def open_sockets(self) -> int:
        count = 0
        for link in Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                count += str(link.readlink()).startswith("socket:")
            except OSError:
                continue  # closed meanwhile
        return count

    def tasks(self) -> int:
        return int(self.metric("vcnode_tasks"))

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int | None:
        """The exit code, or None while it runs."""
        if self._process is None:
            return None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not end it. May be called twice."""
        if self._process is None:
            return
        self._process.terminate()
        if self.wait(_STOP_DEADLINE_S) is None:
            self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_DEADLINE_S)

    def advance(self, seconds: float) -> None:
        """Advance its clock, and run its loop so that due timers fire."""
        if not self._is_clock_movable:
            raise DaemonError("this process' clock cannot be moved")
        self._offset_s += seconds
        moved_clock.move(self._offset, self._offset_s)
        for _ in range(3):  # due timers run in the iteration after the one that finds them due
            self.get("/healthz")

    def log_tail(self, size: int = 2000) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-size:]
