# SPDX-License-Identifier: Apache-2.0
"""A program that keeps running and is used through its stdin and its outputs."""

import os
import select
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from guest_agent.kernel import programs

_READ_BYTES = 1 << 16
_MAX_ERROR_BYTES = 16_000
# How long a killed process may take to leave the kernel.
_KILLED_S = 5.0


class Coprocess:
    """One process. Not thread-safe.

    `has_echoed`: the expected output came since the last `write`. `errors`: the text on stderr since then.
    """

    def __init__(self, program: Path, *arguments: str) -> None:
        """Start it. Raises `FilterUnavailableError`."""
        self._process, self._stdin, stdout, stderr = programs.start(program, *arguments)
        self._stdout, self._stderr = stdout.fileno(), stderr.fileno()
        self._open = {self._stdout: stdout, self._stderr: stderr}
        os.set_blocking(self._stdin.fileno(), False)
        self._unsent = b""
        self._has_eof = False
        self.has_echoed = False
        self.errors = bytearray()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def has_consumed_input(self) -> bool:
        """Whether all its input was written, and then closed."""
        return self._has_eof and not self._unsent

    def write(self, data: bytes) -> None:
        """Queue input; `exchange` writes it."""
        self._unsent += data
        self.has_echoed = False
        self.errors.clear()

    def write_eof(self) -> None:
        """Close its input after what was queued."""
        self._has_eof = True

    def exchange(self, expected: bytes, until_s: float) -> bool:
        """Write and read until `expected` comes, both outputs end, or `until_s` of `time.monotonic`.

        With its input closed, `expected` is noted and the end awaited. Returns whether both ended.
        """
        poll = select.poll()
        for each in self._open:
            poll.register(each, select.POLLIN)
        if self._write():
            poll.register(self._stdin, select.POLLOUT)
        while self._open:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            for number, _ in poll.poll(left_s * 1e3):
                if number not in self._open:
                    if not self._write():
                        poll.unregister(number)
                    continue
                data = os.read(number, _READ_BYTES)
                if not data:
                    poll.unregister(number)
                    self._open.pop(number).close()
                elif number == self._stdout:
                    self.has_echoed = self.has_echoed or expected in data
                elif len(self.errors) < _MAX_ERROR_BYTES:
                    self.errors += data
            if self.has_echoed and not self._has_eof:
                return False
        return True

    def wait(self, until_s: float) -> int | None:
        """Its exit status, negative for a signal; None if it does not end in time."""
        try:
            return self._process.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        for each in (self._stdin, *self._open.values()):
            each.close()
        self._open.clear()
        self._process.kill()
        # subprocess collects a process that hangs in the kernel at the next start of another.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILLED_S)

    def _write(self) -> bool:
        """Write as much as the pipe takes; return whether something is left."""
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._stdin.fileno(), self._unsent) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            # It has ended, or reads no more. Its exit status has the reason.
            return False
        if self._has_eof:
            self._stdin.close()
        return False
