# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from daemonkit.files.watched import FilesError, Watched, signature
from tests.unit.fake_clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    """Ahead of the files' own times, which no test can choose: each was changed long ago."""
    return FakeClock(4e9)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were opened, in order."""
    opened: list[Path] = []
    real = os.open

    def counting(path: Path, flags: int, mode: int = 0o777) -> int:
        opened.append(path)
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", counting)
    return opened


def test_only_the_first_poll_reports_a_change(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "a.crt").write_bytes(b"1")
    watched = Watched.files([tmp_path / "a.crt"], clock=clock)
    assert [watched.poll(), watched.poll()] == [True, False]


def test_an_unchanged_file_is_not_read_again(tmp_path: Path, clock: FakeClock, reads: list[Path]) -> None:
    (tmp_path / "a").write_bytes(b"1")
    reads.clear()
    watched = Watched.files([tmp_path / "a"], clock=clock)
    assert [watched.poll() for _ in range(5)] == [True, False, False, False, False]
    assert reads == [tmp_path / "a"]


def test_a_recent_file_is_read_until_its_times_are_reliable(
    tmp_path: Path, clock: FakeClock, reads: list[Path]
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1")
    changed = path.stat().st_ctime
    watched = Watched.files([path], clock=clock)
    reads.clear()
    for clock.now in (changed + 0.1, changed + 2.9, changed + 3.1, changed + 3.2, changed - 1000):
        watched.poll()
    # The last one: the clock was set back, but nothing changed since the file was trusted.
    assert len(reads) == 3


def test_a_second_change_with_equal_times_is_seen(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1")
    frozen = signature(path)
    monkeypatch.setattr("daemonkit.files.watched.signature", lambda _: frozen)
    clock.now = path.stat().st_ctime + 0.001
    watched = Watched.files([path], clock=clock)
    assert watched.poll() is True
    path.write_bytes(b"2")
    assert [watched.poll(), watched.poll()] == [True, False]


def test_new_times_without_new_content_are_not_a_change(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1")
    watched = Watched.files([path], clock=clock)
    watched.poll()
    os.utime(path, (1, 1))
    assert watched.poll() is False
    path.write_bytes(b"2")
    os.utime(path, (1, 1))
    assert watched.poll() is True


def secret_mount(directory: Path) -> Callable[[str], None]:
    """Lay out a directory as the kubelet mounts a Secret; return what updates it."""

    def update(generation: str) -> None:
        inside = directory / f"..{generation}"
        inside.mkdir()
        for name in ("tls.crt", "tls.key"):
            (inside / name).write_text(f"{name} {generation}")
        (directory / "..data_tmp").symlink_to(inside.name)
        (directory / "..data_tmp").rename(directory / "..data")

    directory.mkdir()
    update("2026_11_20_1")
    for name in ("tls.crt", "tls.key"):
        (directory / name).symlink_to(f"..data/{name}")
    return update


def test_the_swap_of_a_secret_mount_is_seen(tmp_path: Path, clock: FakeClock) -> None:
    update = secret_mount(tmp_path / "tls")
    paths = [tmp_path / "tls" / name for name in ("tls.crt", "tls.key")]
    for watched in (
        Watched.files(paths, clock=clock),
        Watched.directory(tmp_path / "tls", "tls.*", clock=clock),
    ):
        assert [watched.poll(), watched.poll()] == [True, False]
        update(f"{id(watched)}")
        assert [watched.poll(), watched.poll()] == [True, False]
        assert watched.snapshot() == {path: f"{path.name} {id(watched)}".encode() for path in paths}


def test_certificate_and_key_come_from_one_side_of_a_swap(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = secret_mount(tmp_path / "tls")
    paths = [tmp_path / "tls" / name for name in ("tls.crt", "tls.key")]
    watched = Watched.files(paths, clock=clock)
    real, updates = os.open, iter(["2"])

    def swap_after_the_first(path: Path, *args: int) -> int:
        descriptor = real(path, *args)
        if path == paths[0] and (generation := next(updates, None)):
            update(generation)
        return descriptor

    monkeypatch.setattr(os, "open", swap_after_the_first)
    assert watched.snapshot() == {path: f"{path.name} 2".encode() for path in paths}
    assert watched.poll() is False


def test_a_constant_writer_does_not_block_the_reader(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"")
    watched = Watched.files([path], clock=clock)
    real = os.open

    def grow(opened: Path, *args: int) -> int:
        with opened.open("ab") as file:
            file.write(b"x")
        return real(opened, *args)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", grow)
        assert watched.snapshot() == {path: b"xxx"}
        assert watched.poll() is True
    assert watched.poll() is False


def test_a_missing_file_is_watched(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "a"
    watched = Watched.files([path], clock=clock)
    assert [watched.poll(), watched.poll()] == [True, False]
    assert (watched.snapshot(), watched.problems) == ({}, {})
    path.write_bytes(b"")
    assert [watched.poll(), watched.poll()] == [True, False]
    assert watched.snapshot() == {path: b""}
    path.unlink()
    assert [watched.poll(), watched.poll()] == [True, False]


def test_poll_compares_with_the_last_snapshot(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1")
    watched = Watched.files([path], clock=clock)
    assert watched.snapshot() == {path: b"1"}
    assert watched.poll() is False
    path.write_bytes(b"22")
    assert watched.snapshot() == {path: b"22"}
    assert watched.poll() is False


def test_a_directory_lists_visible_files_that_match(tmp_path: Path, clock: FakeClock) -> None:
    for name in ("b.yaml", "a.yaml", ".hidden.yaml", "a.yaml~", "a.yml"):
        (tmp_path / name).write_text(name)
    watched = Watched.directory(tmp_path, "*.yaml", clock=clock)
    assert [*watched.snapshot().items()] == [
        (tmp_path / "a.yaml", b"a.yaml"),
        (tmp_path / "b.yaml", b"b.yaml"),
    ]
    (tmp_path / ".c.yaml.tmp").write_text("")
    assert watched.poll() is False
    (tmp_path / "a.yaml").rename(tmp_path / "c.yaml")
    assert watched.poll() is True
    (tmp_path / "b.yaml").unlink()
    assert watched.poll() is True
    assert watched.snapshot() == {tmp_path / "c.yaml": b"a.yaml"}


def test_a_bad_file_does_not_affect_others(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "good").write_bytes(b"12345678")
    (tmp_path / "large").write_bytes(b"123456789")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    watched = Watched.directory(tmp_path, "*", max_file_bytes=8, clock=clock)
    assert watched.snapshot() == {tmp_path / "good": b"12345678"}
    assert watched.problems == {
        tmp_path / "large": "larger than 8 bytes",
        tmp_path / "directory": "not a regular file",
        tmp_path / "fifo": "not a regular file",
        tmp_path / "loop": "Too many levels of symbolic links",
    }
    assert watched.poll() is False
    (tmp_path / "large").write_bytes(b"1")
    assert watched.poll() is True
    watched.snapshot()
    assert tmp_path / "large" not in watched.problems


def test_an_unreadable_directory_is_not_an_empty_one(tmp_path: Path, clock: FakeClock) -> None:
    directory = tmp_path / "tenants"
    directory.mkdir()
    (directory / "a").write_bytes(b"1")
    watched = Watched.directory(directory, "*", clock=clock)
    assert watched.poll() is True
    directory.rename(tmp_path / "away")
    assert [watched.poll(), watched.poll()] == [True, False]
    with pytest.raises(FilesError, match=r"tenants: No such file or directory"):
        watched.snapshot()
    (tmp_path / "away").rename(directory)
    assert [watched.poll(), watched.poll()] == [True, False]
    assert watched.snapshot() == {directory / "a": b"1"}


def test_too_many_files_are_refused_as_a_whole(tmp_path: Path, clock: FakeClock) -> None:
    watched = Watched.directory(tmp_path, "*", max_files=2, clock=clock)
    for name in "abc":
        (tmp_path / name).write_bytes(b"")
    assert [watched.poll(), watched.poll()] == [True, False]
    with pytest.raises(FilesError, match="more than 2 files"):
        watched.snapshot()
    (tmp_path / "c").unlink()
    assert watched.poll() is True
    assert len(watched.snapshot()) == 2
