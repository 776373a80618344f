# SPDX-License-Identifier: Apache-2.0
"""Starts the ring's processes, and stops each by its id."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests import waiting

T = TypeVar("T")

_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.05

# A fixed search path: the ring's programs must not depend on who runs the tests.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class RingError(Exception):
    """A part of the ring did not start, did not respond, or ended."""


def wait_for(what: str, probe: Callable[[], T | None], *, timeout_s: float) -> T:
    """Call `probe` until its result is true, and return that.

    Raises:
        RingError: nothing true within `timeout_s`; the text names the condition.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        result = probe()
        if result:
            return result
        if time.monotonic() >= deadline:
            raise RingError(f"{what}: {waiting.failure(probe, timeout_s)}")
        time.sleep(_POLL_S)


def run(argv: list[str], *, stdin: bytes | None = None, timeout_s: float = 60.0) -> bytes:
    """Run a command to its end and return what it printed.

    Raises:
        RingError: it failed or took longer than `timeout_s`; the text has the end of its output.
    """
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RingError(f"{argv[:6]}: still running after {timeout_s:g} s") from error
    if done.returncode != 0:
        tail = (done.stdout + done.stderr)[-2000:].decode(errors="replace")
        raise RingError(f"{argv[:6]}: exit {done.returncode}: {tail}")
    return done.stdout


class RingProcess:
    """A process that runs until it is stopped, with its output in a file.

    `enters_pid_namespace`: `argv` is an nsenter that forks: the program is then its only
    child, and signals go to that one.
    """

    def __init__(
        self,
        name: str,
        argv: list[str],
        log: Path,
        *,
        path: str = SYSTEM_PATH,
        directory: Path | None = None,
        enters_pid_namespace: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        self._enters_pid_namespace = enters_pid_namespace
        self._argv, self._path, self._directory = argv, path, directory
        self._process = self._started()

    def start_again(self) -> None:
        """Start the same program once more, after it has ended."""
        assert not self.is_running(), f"{self.name} runs"
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._directory,
                env={"PATH": self._path, "HOME": str(self.log.parent), "LANG": "C.UTF-8"},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The id of the program itself, as this process sees it."""
        if not self._enters_pid_namespace:
            return self._process.pid
        return wait_for(f"{self.name} started", lambda: _only_child(self._process.pid), timeout_s=5)

    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        return self._process.poll()

    def wait_until(self, probe: Callable[[], object], *, timeout_s: float) -> None:
        """Wait for `probe`, but not for a process that has ended.

        Raises:
            RingError: it ended, or the time is over; the text has the end of its log.
        """

        def ready() -> bool:
            if not self.is_running():
                raise RingError(f"{self.name} ended: {self.tail()}")
            return bool(probe())

        try:
            wait_for(f"{self.name} ready", ready, timeout_s=timeout_s)
        except RingError as error:
            raise RingError(f"{error}\n{self.tail()}") from None

    def tail(self) -> str:
        """The last lines of its output."""
        return self.log.read_bytes()[-3000:].decode(errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program, if it still runs."""
        if self.is_running():
            _kill(self.pid, number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send the signal, and SIGKILL if it does not end in time."""
        if self.is_running():
            try:
                self.send(number)
                self._process.wait(_STOP_TIMEOUT_S)
            except (subprocess.TimeoutExpired, RingError):
                self._process.kill()
        self._process.wait(_STOP_TIMEOUT_S)


def _only_child(pid: int) -> int | None:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def _kill(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
