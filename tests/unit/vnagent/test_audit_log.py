# SPDX-License-Identifier: Apache-2.0
"""Audit lines: gathered, kept in order, whole, bounded, written without blocking."""

import asyncio
import errno
import hashlib
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from daemonkit.fairness.lease import Lease
from daemonkit.metrics import Counter, Registry
from tenancy.tenant import Role
from vnagent.audit_log import (
    BEHIND_S,
    GATHER_S,
    LAST_WRITES,
    LINE_BYTES,
    MAX_WAITING_BYTES,
    NO_READER,
    RETRY_S,
    STALLED_S,
    AuditLog,
)
from vnagent.core.access import Caller
from vnagent.core.audit import HOP_FAILURES, identity_of, render
from vnagent.core.requests import ContainerLogs

pytestmark = pytest.mark.asyncio

PIPE_BYTES = 64 << 10  # pipe(7)


@dataclass
class Disk:
    """Accepts at most so many bytes, then fails with ENOSPC."""

    monkeypatch: pytest.MonkeyPatch
    room: int = 1 << 30
    writes: int = 0

    def install(self) -> "Disk":
        real = os.write

        def write(descriptor: int, data: bytes) -> int:
            self.writes += 1
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            done = real(descriptor, data[: self.room])
            self.room -= done
            return done

        self.monkeypatch.setattr(os, "write", write)
        return self


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch).install()


def lost_counter() -> Counter:
    return Registry().counter("vcnode_vnagent_audit_lines_lost_total", "Lost.")


def opened(path: Path | None, lost: Counter | None = None) -> AuditLog:
    log = AuditLog(asyncio.get_running_loop(), path, lost or lost_counter())
    log.open()
    return log


def lines(start: int, stop: int) -> list[bytes]:
    return [b'{"n":%d}\n' % number for number in range(start, stop)]


@dataclass
class OthersTurn:
    """Another process writes until it was asked for its turn so often."""

    attempts: int

    def try_acquire(self) -> bool:
        self.attempts -= 1
        return self.attempts < 0

    def release(self) -> None:
        """The turn is not counted."""


async def test_the_last_lines_wait_for_others_turns(tmp_path: Path) -> None:
    turn = OthersTurn(LAST_WRITES - 1)
    log = AuditLog(asyncio.get_running_loop(), tmp_path / "audit", lost_counter(), turn)
    log.open()
    log.write(b"last\n", "ten-a")
    await log.write_last()
    assert (tmp_path / "audit").read_bytes() == b"last\n"


async def test_others_that_never_end_their_turn_stop_no_end(tmp_path: Path) -> None:
    lost = lost_counter()
    log = AuditLog(asyncio.get_running_loop(), tmp_path / "audit", lost, OthersTurn(1 << 30))
    log.open()
    log.write(b"last\n", "ten-a")
    await log.write_last()
    assert (tmp_path / "audit").read_bytes() == b""
    assert lost.value == 1


async def test_lines_are_gathered_into_one_write(tmp_path: Path, disk: Disk) -> None:
    log = opened(tmp_path / "audit")
    for line in lines(0, 100):
        log.write(line, "ten-a")
    assert disk.writes == 0
    await asyncio.sleep(2 * GATHER_S)
    assert disk.writes == 1
    assert (tmp_path / "audit").read_bytes() == b"".join(lines(0, 100))
    log.close()


async def test_reservations_cause_no_write(tmp_path: Path, disk: Disk) -> None:
    """Their reservations fill no batch: with 256 KiB of them each line once was a write."""
    log = opened(tmp_path / "audit")
    for _ in range(1024):
        assert log.reserve("ten-b")
    for line in lines(0, 100):
        log.write(line, "ten-a")
    assert disk.writes == 0
    await asyncio.sleep(2 * GATHER_S)
    assert disk.writes == 1
    log.close()


async def test_reopening_writes_a_torn_line_whole(tmp_path: Path, disk: Disk) -> None:
    path = tmp_path / "audit"
    log = opened(path)
    disk.room = 12
    for line in lines(0, 3):
        log.write(line, "ten-a")
    log.flush()
    assert path.read_bytes() == b'{"n":0}\n{"n"'
    path.rename(tmp_path / "audit.1")
    disk.room = 1 << 30
    log.open()
    log.flush()
    assert path.read_bytes() == b"".join(lines(1, 3))
    for tenant in ("ten-a", "ten-b"):
        assert log.has_room(tenant)
    log.close()


async def test_reopening_the_same_file_continues_the_line(tmp_path: Path, disk: Disk) -> None:
    log = opened(tmp_path / "audit")
    disk.room = 12
    for line in lines(0, 3):
        log.write(line, "ten-a")
    log.flush()
    disk.room = 1 << 30
    log.open()
    log.flush()
    assert (tmp_path / "audit").read_bytes() == b"".join(lines(0, 3))
    log.close()


async def test_open_does_not_block_on_a_pipe_without_a_reader(tmp_path: Path) -> None:
    """SIGHUP once stopped the daemon until a reader came. What waits is written when one is there again."""
    path = tmp_path / "audit"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = opened(path)
    log.write(b"first\n", "ten-a")
    log.flush()
    assert os.read(reader, 100) == b"first\n"
    os.close(reader)
    log.write(b"second\n", "ten-a")
    log.flush()
    assert "Broken pipe" in log.report()
    rescue = threading.Timer(5.0, os.open, (path, os.O_RDONLY | os.O_NONBLOCK))
    rescue.start()  # or a daemon that waits would make the test wait with it
    with pytest.raises(OSError, match="No such device or address"):
        log.open()
    rescue.cancel()
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log.open()
    log.flush()
    assert os.read(reader, 100) == b"second\n"
    assert log.report() == "audit: ok"
    log.close()
    os.close(reader)


async def test_start_with_a_pipe_without_a_reader_buffers_lines(tmp_path: Path) -> None:
    """The start once hung in open(2). Lines wait for the reader, streams are refused once that is full."""
    path = tmp_path / "audit"
    os.mkfifo(path)
    rescue = threading.Timer(5.0, os.open, (path, os.O_RDONLY | os.O_NONBLOCK))
    rescue.start()  # or a daemon that waits would make the test wait with it
    lost = lost_counter()
    log = opened(path, lost)
    rescue.cancel()
    assert log.report() == f"audit: cannot be written ({NO_READER}), 0 lines wait, 0 lines lost since start"
    log.write(b"first\n", "ten-a")
    await asyncio.sleep(10 * RETRY_S)
    assert log.report() == f"audit: cannot be written ({NO_READER}), 1 lines wait, 0 lines lost since start"
    while log.has_room("ten-a"):
        log.write(b"x" * 999 + b"\n", "ten-a")
    assert log.reserve("ten-a") is None
    log.open()  # SIGHUP
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    await asyncio.sleep(2 * RETRY_S)
    assert os.read(reader, 6) == b"first\n"
    async with asyncio.timeout(3 * RETRY_S):  # and not RETRY_S for each 64 KiB
        while log.report() != "audit: ok":
            os.read(reader, PIPE_BYTES)
            await asyncio.sleep(BEHIND_S)
    assert lost.value == 0
    log.close()
    os.close(reader)


async def test_close_counts_lines_without_a_reader_as_lost(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    os.mkfifo(path)
    lost = lost_counter()
    log = opened(path, lost)
    log.write(b"first\n", "ten-a")
    log.close()
    assert lost.value == 1
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    await asyncio.sleep(10 * RETRY_S)
    assert os.read(reader, 6) == b""
    os.close(reader)


async def test_close_writes_buffered_lines(tmp_path: Path) -> None:
    log = opened(tmp_path / "audit")
    log.write(b"last\n", "ten-a")
    log.close()
    log.close()
    assert (tmp_path / "audit").read_bytes() == b"last\n"


async def test_the_file_is_appended_to_and_group_readable(tmp_path: Path) -> None:
    (tmp_path / "audit").write_bytes(b"before\n")
    log = opened(tmp_path / "audit")
    log.write(b"after\n", "ten-a")
    log.close()
    assert (tmp_path / "audit").read_bytes() == b"before\nafter\n"
    new = opened(tmp_path / "new")
    new.close()
    assert (tmp_path / "new").stat().st_mode & 0o027 == 0


async def test_a_full_disk_neither_tears_nor_repeats_lines(tmp_path: Path, disk: Disk) -> None:
    log = opened(tmp_path / "audit")
    for room in (3, 0, 17, 0, 1, 0, 100):
        disk.room = room
        log.write(b"0123456789\n", "ten-a")
        await asyncio.sleep(RETRY_S + 2 * GATHER_S)
    disk.room = 1 << 30
    await asyncio.sleep(RETRY_S + GATHER_S)
    assert (tmp_path / "audit").read_bytes() == b"0123456789\n" * 7
    log.close()


async def test_the_buffer_is_bounded_and_lost_lines_are_counted(tmp_path: Path, disk: Disk) -> None:
    """A tenant alone has half of the buffer."""
    disk.room = 0
    lost = lost_counter()
    log = opened(tmp_path / "audit", lost)
    line = b"x" * 999 + b"\n"
    fitted = MAX_WAITING_BYTES // 2 // 1000
    for _ in range(fitted + 10):
        log.write(line, "ten-a")
        await asyncio.sleep(0)
    assert lost.value == 10
    disk.room = 1 << 30
    await asyncio.sleep(RETRY_S + GATHER_S)
    log.write(b"again\n", "ten-a")
    log.close()
    assert (tmp_path / "audit").read_bytes() == line * fitted + b"again\n"
    assert lost.value == 10


async def test_no_line_is_lost_while_the_file_is_writable(tmp_path: Path) -> None:
    """Also with many in one iteration of the loop: the buffer is flushed before it is full."""
    lost = lost_counter()
    log = opened(tmp_path / "audit", lost)
    line = b"x" * 999 + b"\n"
    count = 3 * MAX_WAITING_BYTES // 1000
    for _ in range(count):
        log.write(line, "ten-a")
    log.close()
    assert (tmp_path / "audit").stat().st_size == count * 1000
    assert lost.value == 0


async def test_a_tenants_full_buffer_leaves_room_for_others(tmp_path: Path, disk: Disk) -> None:
    """Each may have as much as it leaves free, so that no tenant pushes another one out."""
    disk.room = 0
    log = opened(tmp_path / "audit")
    for tenant, part in (("ten-a", 2), ("ten-b", 4), ("ten-c", 8)):
        count = 0
        while log.has_room(tenant):
            log.write(b"x" * 999 + b"\n", tenant)
            count += 1
        assert abs(count * 1000 - MAX_WAITING_BYTES / part) < 2 * LINE_BYTES
    assert log.has_room("ten-d")
    assert not log.has_room("ten-a")
    disk.room = 1 << 30
    await asyncio.sleep(RETRY_S + GATHER_S)
    assert log.has_room("ten-a")
    log.close()


async def test_a_reserved_line_is_kept_in_a_full_buffer(tmp_path: Path, disk: Disk) -> None:
    disk.room = 0
    lost = lost_counter()
    log = opened(tmp_path / "audit", lost)
    log.write(b"first\n", "ten-b")
    log.flush()
    reserved = list[Lease]()
    while (reservation := log.reserve("ten-a")) is not None:
        reserved.append(reservation)
    assert len(reserved) >= 1024  # as many as a tenant's streams by default
    before = lost.value
    for _ in range(2000):
        log.write(b"y" * 999 + b"\n", "ten-b")
        log.write(b"z" * 999 + b"\n", "ten-a")
    assert lost.value > before
    lost_before = lost.value
    for number, reservation in enumerate(reserved):
        log.write(b"%d" % number + b"x" * 900 + b"\n", "ten-a", room=reservation)
    assert lost.value == lost_before
    disk.room = 1 << 30
    await asyncio.sleep(RETRY_S + GATHER_S)
    log.close()
    assert (tmp_path / "audit").read_bytes().count(b"x\n") == len(reserved)


async def test_reservations_take_no_room_from_other_tenants(tmp_path: Path, disk: Disk) -> None:
    """13 tenants with streams that waited for the kubelet once used up the buffer. A neighbour's stream was
    refused and its lines lost, though the file accepted each line."""
    lost = lost_counter()
    log = opened(tmp_path / "audit", lost)
    reserved = [(f"ten-{number % 13}", log.reserve(f"ten-{number % 13}")) for number in range(13 * 1024)]
    last = log.reserve("bank")
    assert None not in {last, *(each for _, each in reserved)}
    for _ in range(100):
        log.write(b"x" * 999 + b"\n", "bank")
    log.write(b"last\n", "bank", room=last)
    log.flush()
    assert lost.value == 0
    assert (tmp_path / "audit").read_bytes().endswith(b"x\nlast\n")
    # Reserved lines are kept when the file accepts nothing, and no more than those.
    disk.room = 0
    log.write(b"now it fails\n", "bank")
    log.flush()
    assert log.reserve("bank") is None
    for tenant, reservation in reserved:
        log.write(b"y" * 299 + b"\n", tenant, room=reservation)
    assert lost.value == 0
    disk.room = 1 << 30
    log.flush()
    assert (tmp_path / "audit").read_bytes().count(b"y\n") == 13 * 1024
    assert log.report() == "audit: ok"
    log.close()


async def test_a_released_reservation_frees_its_room(tmp_path: Path) -> None:
    log = opened(tmp_path / "audit")
    for _ in range(3 * MAX_WAITING_BYTES // LINE_BYTES):
        reservation = log.reserve("ten-a")
        assert reservation is not None
        reservation.release()
    log.close()


async def test_a_reservation_keeps_one_line(tmp_path: Path, disk: Disk) -> None:
    """A second line by it is one without: what another stream has reserved is not its."""
    disk.room = 0
    lost = lost_counter()
    log = opened(tmp_path / "audit", lost)
    log.write(b"first\n", "ten-b")
    log.flush()
    one, two = log.reserve("ten-a"), log.reserve("ten-a")
    while not lost.value:
        log.write(b"z" * 999 + b"\n", "ten-a")
    for _ in range(2):
        log.write(b"1" * 999 + b"\n", "ten-a", room=one)
    assert lost.value == 2
    log.write(b"2" * 999 + b"\n", "ten-a", room=two)
    assert lost.value == 2
    log.close()


async def test_an_episode_of_failure_is_logged_at_begin_and_end(
    tmp_path: Path, disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    disk.room = 0
    log = opened(tmp_path / "audit")
    assert log.report() == "audit: ok"
    for number in range(2):
        log.write(b"x" * 999 + b"\n", "ten-a")
        await asyncio.sleep(2 * GATHER_S)
        assert "cannot be written (No space left on device), 1 lines wait" in log.report()
        while log.has_room("ten-a"):
            log.write(b"x" * 999 + b"\n", "ten-a")
        for _ in range(7):
            log.write(b"x" * 1999 + b"\n", "ten-a")
        assert f"lines are being lost (No space left on device), {7 * number + 7} lines" in log.report()
        disk.room = 1 << 30
        await asyncio.sleep(RETRY_S + GATHER_S)
        assert log.report() == f"audit: ok, {7 * number + 7} lines lost since start"
        disk.room = 0
    reported = capsys.readouterr().err
    assert reported.count('"audit log cannot be written"') == 2
    assert reported.count("audit lines are lost") == 2
    assert reported.count("audit log is written again") == 2
    assert reported.count("lost_lines=7") == 2
    disk.room = 1 << 30
    log.close()


async def test_close_counts_unwritten_lines_as_lost(
    tmp_path: Path, disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    disk.room = 0
    lost = lost_counter()
    log = opened(tmp_path / "audit", lost)
    for line in lines(0, 5):
        log.write(line, "ten-a")
    log.close()
    assert lost.value == 5
    assert "audit lines are lost" in capsys.readouterr().err


async def test_a_failing_disk_is_retried_once_a_second(tmp_path: Path, disk: Disk) -> None:
    disk.room = 0
    log = opened(tmp_path / "audit")
    for _ in range(1000):
        log.write(b"x\n", "ten-a")
        await asyncio.sleep(0.01)
    assert disk.writes <= 12
    disk.room = 1 << 30
    log.close()


async def test_reopening_creates_a_moved_file_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    log = opened(path)
    log.write(b"old\n", "ten-a")
    await asyncio.sleep(2 * GATHER_S)
    path.rename(tmp_path / "audit.1")
    log.open()
    log.write(b"new\n", "ten-a")
    log.close()
    assert (path.read_bytes(), (tmp_path / "audit.1").read_bytes()) == (b"new\n", b"old\n")


async def test_a_failed_reopen_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    log = opened(tmp_path / "d" / "audit")
    (tmp_path / "d").rename(tmp_path / "e")
    with pytest.raises(FileNotFoundError):
        log.open()
    log.write(b"still\n", "ten-a")
    log.close()
    assert (tmp_path / "e" / "audit").read_bytes() == b"still\n"


# ---- stderr, pipes


@pytest.mark.timeout(20)
async def test_a_sleeping_pipe_reader_does_not_block_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """`audit.file: -` under a supervisor with a stuck log: lines wait, then are counted."""
    lost = lost_counter()
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as pipe, os.fdopen(writer, "wb") as stderr:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stderr)
            log = opened(None, lost)
        expected = []
        for number in range(3000):
            line = b"%06d" % number + b"x" * 993 + b"\n"
            before = lost.value
            log.write(line, "ten-a")
            if lost.value == before:
                expected.append(line)
            await asyncio.sleep(GATHER_S)
        assert lost.value > 0
        expected_bytes, found = b"".join(expected), b""
        while len(found) < len(expected_bytes):
            found += pipe.read(1 << 20)
            await asyncio.sleep(2 * RETRY_S)
        assert hashlib.sha256(found).digest() == hashlib.sha256(expected_bytes).digest()
        log.close()


@pytest.mark.timeout(20)
async def test_a_slow_reader_delays_the_busiest_tenant_only(tmp_path: Path) -> None:
    """No line is lost and no other tenant waits; a stalled reader stops no tenant."""
    fifo = tmp_path / "audit"
    os.mkfifo(fifo)
    lost = lost_counter()
    with os.fdopen(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as pipe:
        log = opened(fifo, lost)
        line, written = b"x" * 999 + b"\n", 0
        assert not log.must_wait("ten-a")
        log.write(b"bank\n", "ten-b")
        found = 0
        for _ in range(200):  # of the slow reader's looks, 64 KiB each
            while not log.must_wait("ten-a"):
                log.write(line, "ten-a")
                written += 1
                if written % 100 == 0:
                    await asyncio.sleep(GATHER_S)
            assert not log.must_wait("ten-b")
            found += len(pipe.read(1 << 16) or b"")
            await asyncio.sleep(0.1)
        assert written > 2 * MAX_WAITING_BYTES // len(line)
        assert lost.value == 0
        while not log.must_wait("ten-a"):
            log.write(line, "ten-a")
            written += 1
        # The reader stops: after STALLED_S it is a failure, and requests wait no more.
        assert log.must_wait("ten-a")
        await asyncio.sleep(STALLED_S + RETRY_S)
        assert not log.must_wait("ten-a")
        assert "its reader does not read" in log.report()
        while found < written * len(line):
            found += len(pipe.read(1 << 16) or b"")
            await asyncio.sleep(2 * RETRY_S)
        assert log.report() == "audit: ok"
        log.close()


async def test_no_line_exceeds_its_reservation() -> None:
    caller = Caller("t" * 253, Role.APISERVER, "0" * 64)
    request = ContainerLogs("n" * 63, "p" * 253, "c" * 63, (), is_follow=False)
    reason = max(HOP_FAILURES, key=len)
    line = render("2026-11-22T12:00:00.000Z", identity_of(caller), request, reason, 503, "0" * 16)
    assert len(line) <= LINE_BYTES
