# SPDX-License-Identifier: Apache-2.0
"""The audit log's file: lines in, batches out; a full disk loses lines, not requests.

Lines are gathered for a few milliseconds. Lines that the disk or a pipe's reader does not take wait in a
bounded buffer. A line without room is lost: counted, logged once an episode, shown in `/readyz`.

The buffer is shared by free space: a tenant may use as many bytes as it leaves free. One tenant
alone takes half of it, so the first lines of another one always have room.
"""

import asyncio
import errno
import os
import select
import stat
import sys
from functools import partial
from pathlib import Path
from typing import Protocol

from daemonkit import logs
from daemonkit.fairness.lease import Lease
from daemonkit.metrics import Counter

# 12 000 lines; half of it holds the lines of 1024 streams that begin at once.
MAX_WAITING_BYTES = 4 << 20
# Under load this fills before GATHER_S is over. It is far below a tenant's part of the buffer,
# so no line is lost while the file takes what is written.
FLUSH_BYTES = 256 << 10
# The longest line: names of the full length that Kubernetes allows, in every field.
LINE_BYTES = 1280
RETRY_S = 1.0
# A pipe's reader empties its 64 KiB in less.
BEHIND_S = 0.02
# A reader that is restarted (journald) is back by then. Until then requests wait for it.
STALLED_S = 5.0
# Under load a write for each iteration of the loop costs as much as a request.
GATHER_S = 0.005
# At the end each worker may have to wait until others have written their last lines.
LAST_WRITES, LAST_WRITE_S = 100, 0.01

OTHERS_LINE = "another worker has a part of a line to write"
NO_READER = "no process reads the named pipe: start its reader"

_BATCH_LINES = 1024
_PAGE_BYTES = 4096

_log = logs.get(__name__)


class WriteTurn(Protocol):
    """Whose turn it is to write, where several processes append to one file."""

    def try_acquire(self) -> bool:
        """Take the turn, if no other process has it; True also if this one has it already."""

    def release(self) -> None: ...


class OwnTurn:
    """One process writes: it is always its turn."""

    def try_acquire(self) -> bool:
        return True

    def release(self) -> None:
        """There is nothing to give back."""


class AuditLog:
    """Appends to a file, or to stderr for None. `lost` counts lost lines.

    Between a part of a line and its rest no other process may write: this one keeps its `turn` until then.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        path: Path | None,
        lost: Counter,
        turn: WriteTurn | None = None,
    ) -> None:
        self._loop = loop
        self._turn = turn or OwnTurn()
        self._path = path
        self._lost = lost
        self._descriptor = sys.stderr.fileno() if path is None else -1
        self._lines: list[bytes] = []
        self._tenants: list[str] = []  # whose each line is
        self._size = 0  # of the lines
        self._reserved_size = 0
        self._written_part = b""  # of the first line
        self._used: dict[str, int] = {}  # bytes in the buffer, by tenant
        self._reserved: dict[str, int] = {}  # by tenant
        self._is_scheduled = False
        self._is_behind = False
        self._behind_since_s = 0.0
        self._failure = ""
        self._lost_before = 0.0  # when this episode began
        self._is_losing = False
        self._is_regular = True
        self._is_awaiting_reader = False
        self._pause_s = BEHIND_S

    def open(self) -> None:
        """Open the file, or reopen it after it was moved away. Raises OSError.

        A named pipe without a reader since the start is opened once it has one; lines wait until then.
        """
        if self._path is None:
            self._is_regular = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
            return
        before = self._descriptor
        # Without O_NONBLOCK, opening a named pipe without a reader would block the loop. With it, open fails
        # with ENXIO, and the old descriptor is written to again once there is a reader.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            self._descriptor = descriptor = os.open(self._path, flags, 0o640)
        except OSError as error:
            # A socket answers ENXIO too.
            if before >= 0 or error.errno != errno.ENXIO or not self._path.is_fifo():
                raise
            self._await_reader()
            return
        self._is_awaiting_reader = False
        opened = os.fstat(descriptor)
        self._is_regular = stat.S_ISREG(opened.st_mode)
        if before >= 0:
            if not os.path.samestat(os.fstat(before), opened):
                self._begin_line_again()
            os.close(before)

    def _await_reader(self) -> None:
        if not self._is_awaiting_reader:
            self._is_awaiting_reader = True
            self._fall_behind(0, NO_READER)
            self._schedule(self._pause_s)

    def _begin_line_again(self) -> None:
        """The moved file has the beginning of a line: write the whole line to the new one."""
        begun, self._written_part = self._written_part, b""
        if begun:
            self._lines[0] = begun + self._lines[0]
            self._used[self._tenants[0]] += len(begun)
            self._size += len(begun)

    # ---- room

    def has_room(self, tenant: str) -> bool:
        """Whether the buffer has room for one more line of this tenant."""
        used = self._used.get(tenant, 0) + self._reserved.get(tenant, 0)
        return used + LINE_BYTES <= MAX_WAITING_BYTES - self._size - self._reserved_size

    def must_wait(self, tenant: str) -> bool:
        """Whether this tenant's requests come faster than a pipe's reader takes their lines.

        True from half of the tenant's part on, so that requests in progress have room. False while
        the file takes nothing at all: that may last, and lines are lost or streams refused instead.
        """
        if not self._is_behind or self._failure:
            return False
        return 2 * self._used.get(tenant, 0) >= MAX_WAITING_BYTES - self._size

    def reserve(self, tenant: str) -> Lease | None:
        """Room for a later line, until it is written or the lease is released; None if there is none.

        While the file can be written, a reservation always succeeds and does not use the buffer. So a tenant
        that opens many streams takes no room from others.
        """
        if self._failure and not self.has_room(tenant):
            return None
        self._reserved[tenant] = self._reserved.get(tenant, 0) + LINE_BYTES
        self._reserved_size += LINE_BYTES
        return Lease(partial(self._release, tenant))

    def _release(self, tenant: str) -> None:
        self._take(self._reserved, tenant, LINE_BYTES)
        self._reserved_size -= LINE_BYTES

    # ---- lines

    def write(self, line: bytes, tenant: str, *, room: Lease | None = None) -> None:
        """Add a line, line end included. `room` is of `reserve`, and released here."""
        is_reserved = room is not None and room.is_held
        if room is not None:
            room.release()
        size = len(line)
        used = self._used.get(tenant, 0) + size
        if used > MAX_WAITING_BYTES - self._size and not is_reserved:
            self._lose(1)
            return
        self._used[tenant] = used
        self._size += size
        self._lines.append(line)
        self._tenants.append(tenant)
        if not self._is_scheduled:
            self._schedule(GATHER_S)
        elif self._size >= FLUSH_BYTES and not self._is_behind:
            self._write_out()

    @staticmethod
    def _take(counts: dict[str, int], tenant: str, size: int) -> None:
        left = counts[tenant] - size
        if left:
            counts[tenant] = left
        else:
            del counts[tenant]

    # ---- out

    def flush(self) -> None:
        """Write the buffered lines."""
        self._is_scheduled = False
        self._write_out()
        if self._is_behind:
            self._schedule(self._pause_s)

    def _schedule(self, seconds: float) -> None:
        self._is_scheduled = True
        self._loop.call_later(seconds, self.flush)

    def _write_out(self) -> None:
        if self._is_awaiting_reader and not self._try_open_pipe():
            return
        if not self._turn.try_acquire():
            self._fall_behind(0, "", OTHERS_LINE)
            return
        try:
            self._write_lines()
        finally:
            if not self._written_part:
                self._turn.release()

    def _write_lines(self) -> None:
        while self._lines:
            data = b"".join(self._lines[:_BATCH_LINES])
            written, failure = self._write(data)
            self._drop(written)
            # A full disk takes a part, and fails at the next write.
            if written < len(data) and not (self._is_regular and written):
                self._fall_behind(written, failure)
                return
        self._catch_up()

    def _try_open_pipe(self) -> bool:
        """Try to open the pipe, now that it may have a reader."""
        try:
            self.open()
        except OSError as error:
            self._failure = str(error.strerror)
        return not self._is_awaiting_reader

    def _drop(self, written: int) -> None:
        """Drop the written bytes. The rest of a partly written line stays first, so that no line is torn."""
        lines, count = self._lines, 0
        self._size -= written
        if not self._size:
            # Mostly everything was written.
            self._written_part = b""
            self._used.clear()
            lines.clear()
            self._tenants.clear()
            return
        while count < len(lines) and written >= len(lines[count]):
            written -= len(lines[count])
            self._take(self._used, self._tenants[count], len(lines[count]))
            count += 1
        if count:
            self._written_part = b""
        del lines[:count]
        del self._tenants[:count]
        if written:
            self._written_part += lines[0][:written]
            lines[0] = lines[0][written:]
            self._take(self._used, self._tenants[0], written)

    def _write(self, data: bytes) -> tuple[int, str]:
        """Write without waiting; return the number of bytes, and the failure."""
        written = 0
        try:
            if self._is_regular:
                return os.write(self._descriptor, data), ""
            # A pipe or socket whose reader sleeps would block the loop. One that is writable
            # takes a page (pipe(7)).
            poll = select.poll()
            poll.register(self._descriptor, select.POLLOUT)
            while written < len(data) and poll.poll(0):
                # Whole lines of up to a page, which are written at once or not at all (pipe(7)): no other
                # worker has to wait for the rest of a line.
                end = data.rfind(b"\n", written, written + _PAGE_BYTES) + 1
                written += os.write(self._descriptor, data[written : end or written + _PAGE_BYTES])
        except BlockingIOError:
            return written, ""
        except OSError as error:
            return written, str(error.strerror)
        return written, ""

    def _fall_behind(self, written: int, failure: str, stalled: str = "its reader does not read") -> None:
        now = self._loop.time()
        # A reader that is back gets the buffered lines at its own pace.
        is_read = bool(written) and not failure
        if not self._is_behind or is_read:
            self._behind_since_s = now
        self._is_behind = True
        if not failure and now - self._behind_since_s >= STALLED_S:
            failure = stalled
        if failure and not self._failure:
            self._begin_episode()
            _log.error("audit log cannot be written", path=self._path, error=failure)
        self._failure = failure or self._failure
        self._pause_s = RETRY_S if self._failure and not is_read else BEHIND_S

    def _catch_up(self) -> None:
        if self._failure or self._is_losing:
            lost = int(self._lost.value - self._lost_before)
            _log.info("audit log is written again", path=self._path, lost_lines=lost)
        self._is_behind = self._is_losing = False
        self._failure = ""

    def _begin_episode(self) -> None:
        if not self._is_losing and not self._failure:
            self._lost_before = self._lost.value

    def _lose(self, count: int) -> None:
        self._begin_episode()
        self._lost.inc(count)
        if not self._is_losing:
            self._is_losing = True
            _log.error("audit lines are lost: the audit log's buffer is full", path=self._path)

    # ---- status

    def report(self) -> str:
        """Its state for `/readyz`."""
        lost = f"{int(self._lost.value)} lines lost since start"
        if self._is_losing:
            return f"audit: lines are being lost ({self._failure or 'the file is slow'}), {lost}"
        if self._failure:
            return f"audit: cannot be written ({self._failure}), {len(self._lines)} lines wait, {lost}"
        return f"audit: ok, {lost}" if self._lost.value else "audit: ok"

    async def write_last(self) -> None:
        """Write what waits, for which other processes may have to end their turn first, and close."""
        for _ in range(LAST_WRITES):
            self.flush()
            if not self._lines:
                break
            await asyncio.sleep(LAST_WRITE_S)
        self.close()

    def close(self) -> None:
        self.flush()
        if self._lines:
            self._lose(len(self._lines))
            self._lines.clear()
            self._tenants.clear()
            self._written_part = b""
        self._is_behind = self._is_losing = self._is_awaiting_reader = False
        self._failure = ""
        self._turn.release()
        if self._path is not None and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
