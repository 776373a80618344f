# SPDX-License-Identifier: Apache-2.0
"""Audit lines: gathered, kept in order, whole, bounded, and never waited for."""

import asyncio
import errno
import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from daemonkit.metrics import Counter, Registry
from vnagent.audit_log import GATHER_S, MAX_WAITING_BYTES, RETRY_S, AuditLog

pytestmark = pytest.mark.asyncio


@dataclass
class Disk:
    """Takes at most so many bytes, then answers ENOSPC."""

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
    return Registry().counter("vcnode_audit_lost_total", "Lost.")


def opened(path: Path | None, lost: Counter | None = None) -> AuditLog:
    log = AuditLog(asyncio.get_running_loop(), path, lost or lost_counter())
    log.open()
    return log


def lines(start: int, stop: int) -> list[bytes]:
    return [b'{"n":%d}\n' % number for number in range(start, stop)]


async def test_lines_of_one_moment_are_one_write(tmp_path: Path, disk: Disk) -> None:
    log = opened(tmp_path / "audit")
    for line in lines(0, 100):
        log.write(line)
    assert disk.writes == 0
    await asyncio.sleep(2 * GATHER_S)
    assert disk.writes == 1
    assert (tmp_path / "audit").read_bytes() == b"".join(lines(0, 100))
    log.close()


async def test_close_writes_what_waits(tmp_path: Path) -> None:
    log = opened(tmp_path / "audit")
    log.write(b"last\n")
    log.close()
    log.close()
    assert (tmp_path / "audit").read_bytes() == b"last\n"


async def test_what_was_there_is_kept_and_only_its_group_may_read(tmp_path: Path) -> None:
    (tmp_path / "audit").write_bytes(b"before\n")
    log = opened(tmp_path / "audit")
    log.write(b"after\n")
    log.close()
    assert (tmp_path / "audit").read_bytes() == b"before\nafter\n"
    new = opened(tmp_path / "new")
    new.close()
    assert (tmp_path / "new").stat().st_mode & 0o027 == 0


async def test_a_full_disk_tears_no_line_and_doubles_none(tmp_path: Path, disk: Disk) -> None:
    log = opened(tmp_path / "audit")
    for room in (3, 0, 17, 0, 1, 0, 100):
        disk.room = room
        log.write(b"0123456789\n")
        await asyncio.sleep(RETRY_S + 2 * GATHER_S)
    disk.room = 1 << 30
    await asyncio.sleep(RETRY_S + GATHER_S)
    assert (tmp_path / "audit").read_bytes() == b"0123456789\n" * 7
    log.close()


async def test_what_waits_is_bounded_and_what_does_not_fit_is_counted(tmp_path: Path, disk: Disk) -> None:
    disk.room = 0
    lost = lost_counter()
    log = opened(tmp_path / "audit", lost)
    line = b"x" * 999 + b"\n"
    for _ in range(MAX_WAITING_BYTES // 1000 + 10):
        log.write(line)
        await asyncio.sleep(0)
    fitted = MAX_WAITING_BYTES // 1000
    assert lost.value == 10
    disk.room = 1 << 30
    await asyncio.sleep(RETRY_S + GATHER_S)
    log.write(b"again\n")
    log.close()
    assert (tmp_path / "audit").read_bytes() == line * fitted + b"again\n"
    assert lost.value == 10


async def test_a_failing_disk_is_asked_once_a_second_not_with_each_line(tmp_path: Path, disk: Disk) -> None:
    disk.room = 0
    log = opened(tmp_path / "audit")
    for _ in range(1000):
        log.write(b"x\n")
        await asyncio.sleep(0.01)
    assert disk.writes <= 12
    disk.room = 1 << 30
    log.close()


async def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    log = opened(path)
    log.write(b"old\n")
    await asyncio.sleep(2 * GATHER_S)
    path.rename(tmp_path / "audit.1")
    log.open()
    log.write(b"new\n")
    log.close()
    assert (path.read_bytes(), (tmp_path / "audit.1").read_bytes()) == (b"new\n", b"old\n")


async def test_a_file_that_cannot_be_opened_again_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    log = opened(tmp_path / "d" / "audit")
    (tmp_path / "d").rename(tmp_path / "e")
    with pytest.raises(FileNotFoundError):
        log.open()
    log.write(b"still\n")
    log.close()
    assert (tmp_path / "e" / "audit").read_bytes() == b"still\n"


# ---- stderr


@pytest.mark.timeout(20)
async def test_a_reader_that_sleeps_does_not_stop_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """`audit.file: -` under a supervisor whose log is stuck: lines wait, then are counted."""
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
            log.write(line)
            if lost.value == before:
                expected.append(line)
            await asyncio.sleep(GATHER_S)
        assert lost.value > 0
        wanted, found = b"".join(expected), b""
        while len(found) < len(wanted):
            found += pipe.read(1 << 20)
            await asyncio.sleep(2 * RETRY_S)
        assert hashlib.sha256(found).digest() == hashlib.sha256(wanted).digest()
        log.close()
