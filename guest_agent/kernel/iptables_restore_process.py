# SPDX-License-Identifier: Apache-2.0
"""One legacy `iptables-restore` that stays, for one text after the other.

A change of one Service takes iptables and the kernel 0.6 ms, and starting the program three times as
long. It acts on each table when it has read its COMMIT, and holds the lock of iptables from the
table's first line to there. So nothing is otherwise than with a program for each text: tables commit
one by one, and whoever else uses iptables is not kept waiting.

How it is known that a text is done: told to be verbose, it writes the comments that it reads to its
output, and it reads them when all before them is done. What it writes is buffered, so the comment is
longer than two buffers. What it refuses it says as ever, and ends.

It has 0.2 MB of its own, and stays as long as the agent: it is after a quiet hour that somebody
waits for a change. When the agent ends, in whatever way, it reads the end of its input and ends too.
"""

import os
import time
from pathlib import Path

from guest_agent.core.filter_errors import LOCKED, renumbered
from guest_agent.core.packet_filter import Broken
from guest_agent.kernel import programs
from guest_agent.kernel.coprocess import KeptProcess
from guest_agent.kernel.programs import Ended

# With no limit to the wait for the lock, which is ours to keep: 1.8.8 and newer keep theirs by an
# alarm that they leave behind, and that would end the process later.
_ARGUMENTS = ("--noflush", "--verbose", "--wait")
_LOCK_WAIT_S = 5.0
_LOCKS = Path("/proc/locks")
# RESOURCE_PROBLEM of iptables' xtables.h, which it ends with itself where it may not wait.
_STATUS_LOCKED = 4

# Against leaks; 1.8.9 has none. Starting it anew is 3 ms.
_TEXTS_A_PROCESS = 1_000
# It reads lines into 10 240 bytes.
_COMMENT_BYTES = 8_192
# glibc buffers what goes into a pipe by the page, and some kernels of ARM have pages of 64 KiB.
_COMMENTS = max(1, 2 * os.sysconf("SC_PAGE_SIZE") // _COMMENT_BYTES)


class Restorer:
    """Loads texts by one program. Not for several threads."""

    def __init__(
        self,
        program: Path,
        *,
        timeout_s: float = programs.TIMEOUT_S,
        lock_wait_s: float = _LOCK_WAIT_S,
        texts_a_process: int = _TEXTS_A_PROCESS,
    ) -> None:
        """Start nothing yet. `lock_wait_s` is also how long an answer is waited for before the text
        is made the process' last: one that does not echo says by its end that all is in.
        """
        self._program = program
        self._timeout_s = timeout_s
        self._lock_wait_s = lock_wait_s
        self._texts_a_process = texts_a_process
        self._process: KeptProcess | None = None
        self._version: tuple[int, ...] = ()
        self._texts = 0
        self._lines = 0
        """That the process had read before the text that is under way."""
        self._is_mute = False
        """Whether it was seen to do well without an answer: each text has its own process then."""

    @property
    def pid(self) -> int | None:
        """Of the process that waits for the next text, if there is one."""
        return self._process.pid if self._process is not None else None

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def run(self, text: str) -> Ended:
        """Load a text; return what a program that ran on it alone would have come to.

        Raises `Broken` if it does not start, does not end, or ends before its input did. Then, as
        with another status than 0, the kernel may have any of the text's tables.
        """
        process = self._ready()
        is_staying = False
        try:
            ended = self._run(process, text)
            is_staying = ended is None
            self._lines += text.count("\n") + _COMMENTS
            return ended or Ended(0, "", "")
        finally:
            if not is_staying:
                self.close()

    def _ready(self) -> KeptProcess:
        """The process that waits, if it is good for another text, else a new one. Raises `Broken`."""
        version = _version(self._program)
        process = self._process
        if process is not None:
            if self._texts < self._texts_a_process and version == self._version and process.is_there:
                return process
            self.close()
        self._process = process = KeptProcess(self._program, *_ARGUMENTS)
        self._version, self._texts, self._lines = version, 0, 0
        return process

    def _run(self, process: KeptProcess, text: str) -> Ended | None:
        """Load a text: None if it is in and the process waits for the next one."""
        self._texts += 1
        # Nothing else that is printed has this in it: no name of a chain has a semicolon.
        answer = b"#%d;" % self._texts
        # In a table that does not end a comment is echoed too, and says nothing.
        is_last = self._is_mute or not text.endswith("\nCOMMIT\n")
        question = b"" if is_last else _comment(answer) * _COMMENTS
        process.give(text.encode() + question)
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            if is_last:
                process.give_end()
            has_ended = process.converse(answer, min(deadline_s, time.monotonic() + self._lock_wait_s))
            if has_ended:
                ended = self._end_of(process, deadline_s)
                self._is_mute = self._is_mute or bool(question and not ended.status and not process.answered)
                return ended
            if process.answered and not is_last:
                return None
            if _is_locked_out(process):
                return Ended(_STATUS_LOCKED, "", f"{LOCKED}, for {self._lock_wait_s:g} s now")
            if time.monotonic() >= deadline_s:
                raise self._never_ended()
            is_last = True

    def _end_of(self, process: KeptProcess, deadline_s: float) -> Ended:
        """What a process said by its end."""
        status = process.wait(deadline_s)
        if status is None:
            raise self._never_ended()
        if not status and not process.has_read:
            raise Broken(f"{self._program.name} ended before it had read everything")
        return Ended(status, "", renumbered(programs.said(process.errors), self._lines))

    def _never_ended(self) -> Broken:
        return Broken(f"{self._program.name} did not end within {self._timeout_s:g} s")


def _comment(answer: bytes) -> bytes:
    """A line of comment that has `answer` in whatever part of it is seen."""
    words = answer * (_COMMENT_BYTES // len(answer))
    return words[: _COMMENT_BYTES - 1] + b"\n"


def _version(program: Path) -> tuple[int, ...]:
    """What is another when the program's file is; () where there is none."""
    try:
        found = program.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _is_locked_out(process: KeptProcess) -> bool:
    """Whether it waits for the lock of iptables.

    Up to 1.8.7 it says so; later ones wait in flock(2), which /proc/locks shows:
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
