# SPDX-License-Identifier: Apache-2.0
"""A program that is kept running, and talked to by its input and its outputs."""

import os
import select
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from guest_agent.kernel import programs

_READ_BYTES = 1 << 16
_MAX_ERROR_BYTES = 16_000
# A process that was killed goes when it leaves the kernel.
_KILLED_S = 5.0


class KeptProcess:
    """One process. Not for several threads.

    `answered` says whether what was waited for has come since the last `give`; `errors` is what was
    written to stderr since.
    """

    def __init__(self, program: Path, *arguments: str) -> None:
        """Start it. Raises `Broken`."""
        self._process, self._stdin, stdout, stderr = programs.start(program, *arguments)
        self._stdout, self._stderr = stdout.fileno(), stderr.fileno()
        self._open = {self._stdout: stdout, self._stderr: stderr}
        os.set_blocking(self._stdin.fileno(), False)
        self._unsent = b""
        self._has_end = False
        self.answered = False
        self.errors = bytearray()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_there(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    @property
    def has_read(self) -> bool:
        """Whether all that it was given went, and then the end of its input."""
        return self._has_end and not self._unsent

    def give(self, data: bytes) -> None:
        """What to write next; `converse` writes it."""
        self._unsent += data
        self.answered = False
        self.errors.clear()

    def give_end(self) -> None:
        """Let its input end behind what it was given."""
        self._has_end = True

    def converse(self, answer: bytes, until_s: float) -> bool:
        """Write, and read until `answer` is there, both its outputs end, or the time; whether they ended.

        Where its input ends, an answer is noted, and the end waited for. `until_s` is of `time.monotonic`.
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
                    self.answered = self.answered or answer in data
                elif len(self.errors) < _MAX_ERROR_BYTES:
                    self.errors += data
            if self.answered and not self._has_end:
                return False
        return True

    def wait(self, until_s: float) -> int | None:
        """Its status; None if it did not end in time. Negative for a signal."""
        try:
            return self._process.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        """Kill it, unless it has ended."""
        for each in (self._stdin, *self._open.values()):
            each.close()
        self._open.clear()
        self._process.kill()
        # What hangs in the kernel is collected when something else is started.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILLED_S)

    def _write(self) -> bool:
        """Write as much as there is room for; return whether something is left."""
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._stdin.fileno(), self._unsent) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            # It has ended, or will not read on: that is what it says by its end.
            return False
        if self._has_end:
            self._stdin.close()
        return False
