# SPDX-License-Identifier: Apache-2.0
"""A legacy `iptables-restore` that keeps running and loads script after script.

A change of one Service takes iptables and the kernel 0.6 ms; starting the program takes three times as
long. It commits each table when it has read its COMMIT, and holds the xtables lock from the table's
first line until then. So the effect is that of one program for each script: tables commit one by one,
and other users of iptables do not wait longer.

With --verbose it echoes the comments that it reads, each after all lines before it are done. So a
comment behind a script is echoed when the script is loaded. Its output is buffered, so the comment is
longer than two buffers. It reports a refused line as always, and ends.

It uses 0.2 MB of its own and stays as long as the agent: after a quiet hour the next change has to be
fast too. When the agent ends in any way, it reads the end of its input and ends too.
"""

import os
import time
from pathlib import Path

from guest_agent.core.filter_errors import LOCKED, renumber_lines
from guest_agent.core.packet_filter import FilterUnavailableError
from guest_agent.kernel import programs
from guest_agent.kernel.coprocess import Coprocess
from guest_agent.kernel.programs import ProgramResult

# --wait without a limit; the limit is ours. 1.8.8 and newer implement theirs by an alarm, which stays
# armed and would end the process later.
_ARGUMENTS = ("--noflush", "--verbose", "--wait")
_LOCK_WAIT_S = 5.0
_LOCKS = Path("/proc/locks")
# RESOURCE_PROBLEM of iptables' xtables.h: its exit status where it may not wait for the lock.
_STATUS_LOCKED = 4

# Against leaks; 1.8.9 has none. A new process costs 3 ms.
_SCRIPTS_PER_PROCESS = 1_000
# It reads lines into 10 240 bytes.
_COMMENT_BYTES = 8_192
# glibc buffers output into a pipe by the page; some ARM kernels have pages of 64 KiB.
_COMMENTS = max(1, 2 * os.sysconf("SC_PAGE_SIZE") // _COMMENT_BYTES)


class IptablesRestoreProcess:
    """Loads scripts by one program. Not thread-safe."""

    def __init__(
        self,
        program: Path,
        *,
        timeout_s: float = programs.TIMEOUT_S,
        lock_wait_s: float = _LOCK_WAIT_S,
        scripts_per_process: int = _SCRIPTS_PER_PROCESS,
    ) -> None:
        """Nothing is started yet.

        After `lock_wait_s` without an echo the process' input is closed. A program that does not echo
        then reports by its end that the script is loaded.
        """
        self._program = program
        self._timeout_s = timeout_s
        self._lock_wait_s = lock_wait_s
        self._scripts_per_process = scripts_per_process
        self._process: Coprocess | None = None
        self._file_id: tuple[int, ...] = ()
        self._scripts = 0
        self._lines_before = 0
        """How many lines the process had read before the current script."""
        self._is_one_shot = False
        """Whether it was seen to succeed without an echo: each script then has its own process."""

    @property
    def pid(self) -> int | None:
        """Of the process that waits for the next script, if there is one."""
        return self._process.pid if self._process is not None else None

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def load(self, script: str) -> ProgramResult:
        """Load a script; return the result as of a program that ran on it alone.

        Raises `FilterUnavailableError` if it does not start, does not end, or ends before it has read
        everything. Then, as with a status other than 0, any of the script's tables may be committed.
        """
        process = self._ready_process()
        is_reusable = False
        try:
            result = self._load(process, script)
            is_reusable = result is None
            self._lines_before += script.count("\n") + _COMMENTS
            return result or ProgramResult(0, "", "")
        finally:
            if not is_reusable:
                self.close()

    def _ready_process(self) -> Coprocess:
        """The running process if it can load another script, else a new one.

        Raises `FilterUnavailableError`.
        """
        file_id = _file_id(self._program)
        process = self._process
        if process is not None:
            is_fresh = self._scripts < self._scripts_per_process and file_id == self._file_id
            if is_fresh and process.is_running:
                return process
            self.close()
        self._process = process = Coprocess(self._program, *_ARGUMENTS)
        self._file_id, self._scripts, self._lines_before = file_id, 0, 0
        return process

    def _load(self, process: Coprocess, script: str) -> ProgramResult | None:
        """Load a script; None if it is loaded and the process waits for the next one."""
        self._scripts += 1
        # Unique in its output: names of chains have no semicolon.
        echo = b"#%d;" % self._scripts
        # Within a table that does not end, the echo would prove nothing.
        is_last = self._is_one_shot or not script.endswith("\nCOMMIT\n")
        comments = b"" if is_last else _comment(echo) * _COMMENTS
        process.write(script.encode() + comments)
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            if is_last:
                process.write_eof()
            has_ended = process.exchange(echo, min(deadline_s, time.monotonic() + self._lock_wait_s))
            if has_ended:
                result = self._exit_result(process, deadline_s)
                if comments and not result.status and not process.has_echoed:
                    self._is_one_shot = True
                return result
            if process.has_echoed and not is_last:
                return None
            if _is_waiting_for_lock(process):
                return ProgramResult(_STATUS_LOCKED, "", f"{LOCKED}, for {self._lock_wait_s:g} s now")
            if time.monotonic() >= deadline_s:
                raise self._timed_out()
            is_last = True

    def _exit_result(self, process: Coprocess, deadline_s: float) -> ProgramResult:
        status = process.wait(deadline_s)
        if status is None:
            raise self._timed_out()
        if not status and not process.has_consumed_input:
            raise FilterUnavailableError(f"{self._program.name} ended before it had read everything")
        errors = renumber_lines(programs.error_text(process.errors), self._lines_before)
        return ProgramResult(status, "", errors)

    def _timed_out(self) -> FilterUnavailableError:
        return FilterUnavailableError(f"{self._program.name} did not end within {self._timeout_s:g} s")


def _comment(echo: bytes) -> bytes:
    """A comment line that has `echo` in each part of it."""
    text = echo * (_COMMENT_BYTES // len(echo))
    return text[: _COMMENT_BYTES - 1] + b"\n"


def _file_id(program: Path) -> tuple[int, ...]:
    """Differs after the program's file was replaced; () without a file."""
    try:
        found = program.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _is_waiting_for_lock(process: Coprocess) -> bool:
    """Whether it waits for the xtables lock.

    Up to 1.8.7 it prints so. Later ones wait in flock(2), which /proc/locks shows:
    "7: -> FLOCK  ADVISORY  WRITE 4711 00:2d:2 0 EOF".
    """
    if LOCKED.encode() in process.errors:
        return True
    try:
        lines = _LOCKS.read_text().split("\n")
    except OSError:
        return False
    return any(
        words[1:3] == ["->", "FLOCK"] and words[5:6] == [str(process.pid)] for words in map(str.split, lines)
    )
