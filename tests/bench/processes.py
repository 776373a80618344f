# SPDX-License-Identifier: Apache-2.0
"""A measured process: pinned to a core, its log in a file, its CPU time and memory readable."""

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_NONE_MORE: Mapping[str, str] = {}
START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 10.0
# A load ends itself; its longest part holds 500 tunnels open and is given a minute for that.
LINE_TIMEOUT_S = 90.0


class RunError(Exception):
    """A program of the bench did not start, failed or printed nothing; the message has the end of its log."""


class Process:
    """One child on one core. Standard output is a pipe of lines, standard error a file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        core: int,
        log: Path,
        environment: Mapping[str, str] = _NONE_MORE,
    ) -> None:
        """`environment` is added to that of the bench."""
        self.name = name
        self._log = log
        # A child inherits its parent's cores, and the Go runtime counts them only once, at start:
        # setting them after the fork would come too late.
        mine = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {core})
        try:
            with log.open("ab") as errors:
                self._child = subprocess.Popen(
                    [str(word) for word in command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env={**os.environ, **environment},  # noqa: TID251 - it goes through
                )
        finally:
            os.sched_setaffinity(0, mine)

    @property
    def pid(self) -> int:
        return self._child.pid

    def is_running(self) -> bool:
        return self._child.poll() is None

    def read_line(self, timeout_s: float = LINE_TIMEOUT_S) -> str:
        """Return the next line of standard output. Raises RunError on its end or on silence."""
        assert self._child.stdout is not None
        ready, _, _ = select.select([self._child.stdout], [], [], timeout_s)
        line = self._child.stdout.readline().decode() if ready else ""
        if not line:
            raise self.error("printed nothing" if not ready else "ended")
        return line.strip()

    def write_line(self, line: str) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(line.encode() + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            raise self.error("ended") from None

    def close_input(self) -> None:
        """End its standard input."""
        assert self._child.stdin is not None
        self._child.stdin.close()

    def finish(self) -> None:
        """End standard input and wait for exit code 0. Raises RunError on any other."""
        self.close_input()
        try:
            code = self._child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise self.error("did not end") from None
        if code != 0:
            raise self.error(f"exit code {code}")

    def stop(self) -> None:
        """Terminate, and kill it after a deadline."""
        if self.is_running():
            self._child.terminate()
            try:
                self._child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def error(self, what: str) -> RunError:
        log = self._log.read_text(errors="replace")[-2000:]
        return RunError(f"{self.name} {what}; its log {self._log} ends with:\n{log}")

    def cpu_s(self) -> float:
        """CPU seconds of all threads so far.

        The process's CPU clock is the sum that /proc/PID/stat shows as utime + stime, but in
        nanoseconds instead of ticks of 10 ms. Its number is the kernel's CPUCLOCK_SCHED encoding
        (clock_getcpuclockid(3)), which Python only offers for threads of its own.
        """
        return time.clock_gettime((~self.pid << 3) | 2)

    def settled_cpu_s(self, deadline_s: float = 1.0) -> float:
        """CPU seconds once the work after the load (closing, freeing) is done."""
        end = time.monotonic() + deadline_s
        before = self.cpu_s()
        while time.monotonic() < end:
            # A busy process uses far more CPU in this interval than the 0.5 ms below.
            time.sleep(0.02)  # pace: in a shorter interval a pause between two steps would look like the end
            now = self.cpu_s()
            if now - before < 0.0005:
                break
            before = now
        return self.cpu_s()

    def waited_s(self) -> float:
        """Seconds that its threads were ready to run and did not get the core (proc(5), schedstat)."""
        waited_ns = 0
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # the thread has ended
                waited_ns += int((thread / "schedstat").read_text().split()[1])
        return waited_ns / 1e9
