# SPDX-License-Identifier: Apache-2.0
"""The audit log's file: lines in, batches out, a full disk survived.

Lines are gathered for a few milliseconds. When the disk refuses them they wait in a bounded
buffer and are tried again; what does not fit is counted, and said once when it begins.
"""

import asyncio
import os
import select
import stat
import sys
from pathlib import Path

from daemonkit import logs
from daemonkit.metrics import Counter

MAX_WAITING_BYTES = 1 << 20
RETRY_S = 1.0
# Under load a write for each turn of the loop costs as much as the request that it tells of.
GATHER_S = 0.005

_PAGE_BYTES = 4096

_log = logs.get(__name__)


class AuditLog:
    """Appends to a file, or to stderr for None. `lost` counts lines that could not be kept."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path | None, lost: Counter) -> None:
        self._loop = loop
        self._path = path
        self._lost = lost
        self._descriptor = sys.stderr.fileno() if path is None else -1
        self._lines: list[bytes] = []
        self._size = 0
        self._is_scheduled = False
        self._is_failing = False
        self._is_regular = True

    def open(self) -> None:
        """Open the file, or open it again after it was moved away. Raises OSError."""
        if self._path is None:
            self._is_regular = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o640)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor
        self._is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)

    def write(self, line: bytes) -> None:
        """Add a line, line end included."""
        if self._size + len(line) > MAX_WAITING_BYTES:
            self._lost.inc()
            return
        self._lines.append(line)
        self._size += len(line)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_later(GATHER_S, self.flush)

    def flush(self) -> None:
        """Write what waits."""
        self._is_scheduled = False
        if not self._lines:
            return
        data = b"".join(self._lines)
        written = self._write(data)
        if written == len(data):
            self._lines.clear()
            self._size = 0
            if self._is_failing:
                self._is_failing = False
                _log.info("audit log is written again")
            return
        # A full disk takes a part: the rest keeps its place, so that no line is torn in two.
        self._lines = [data[written:]]
        self._size = len(data) - written
        self._is_scheduled = True
        self._loop.call_later(RETRY_S, self.flush)

    def _write(self, data: bytes) -> int:
        """Write as much as can be written without waiting; return how much."""
        written = 0
        try:
            if self._is_regular:
                return os.write(self._descriptor, data)
            # A pipe or socket whose reader sleeps would stop the loop for good. One that is writable
            # takes a page (pipe(7)).
            poll = select.poll()
            poll.register(self._descriptor, select.POLLOUT)
            while written < len(data) and poll.poll(0):
                written += os.write(self._descriptor, data[written : written + _PAGE_BYTES])
        except OSError as error:
            self._say_failing(str(error.strerror))
            return written
        if written < len(data):
            self._say_failing("its reader does not read")
        return written

    def _say_failing(self, reason: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            _log.error("audit log cannot be written", path=self._path, error=reason)

    def close(self) -> None:
        self.flush()
        if self._path is not None and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
