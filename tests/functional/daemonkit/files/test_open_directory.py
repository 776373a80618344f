# SPDX-License-Identifier: Apache-2.0
"""Files that are written for others, in directories where those others may have put anything."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from daemonkit.files.directories import UnusableDirectoryError
from daemonkit.files.open_directory import OpenDirectory, Owner

OURS = Owner(os.geteuid(), os.getegid())


def test_a_file_is_replaced_with_owner_and_mode(tmp_path: Path) -> None:
    with OpenDirectory.prepare(tmp_path / "own", 0o700) as directory:
        directory.replace("a.key", b"one", 0o600)
        directory.replace("a.key", b"two", 0o640, OURS)
        found = directory.read("a.key", 10)
        assert found is not None
        assert (found.data, found.mode, found.owner) == (b"two", 0o640, OURS)
        assert directory.read("b.key", 10) is None
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["a.key"]


def test_a_link_is_replaced_and_never_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    own = tmp_path / "own"
    own.mkdir(0o700)
    (own / "a.key").symlink_to(target)
    with OpenDirectory.prepare(own) as directory:
        with pytest.raises(OSError, match="symbolic links"):
            directory.read("a.key", 10)
        directory.replace("a.key", b"ours", 0o600)
    assert target.read_text() == "untouched"
    assert not (own / "a.key").is_symlink()


def test_a_hard_link_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    own = tmp_path / "own"
    own.mkdir(0o700)
    (own / "a.key").hardlink_to(target)
    with OpenDirectory.prepare(own) as directory:
        directory.replace("a.key", b"ours", 0o600)
    assert target.read_text() == "untouched"


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.mkdir()


def _large(path: Path) -> None:
    path.write_bytes(b"x" * 11)


@pytest.mark.parametrize(
    ("make", "error"), [(_fifo, "not a regular file"), (_directory, "not a regular file"), (_large, "larger")]
)
def test_other_kinds_of_files_are_not_read(tmp_path: Path, make: Callable[[Path], None], error: str) -> None:
    make(tmp_path / "a")
    with OpenDirectory.prepare(tmp_path) as directory, pytest.raises(OSError, match=error):
        directory.read("a", 10)


def test_a_directory_behind_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "child").symlink_to(tmp_path / "elsewhere")
    with OpenDirectory.prepare(tmp_path) as directory:
        with pytest.raises(UnusableDirectoryError, match="not a directory"):
            directory.child("child", OURS, 0o700)
        with pytest.raises(UnusableDirectoryError, match="not a directory"):
            directory.find_child("child", OURS)
        assert directory.find_child("none", OURS) is None


def test_a_child_gets_its_mode(tmp_path: Path) -> None:
    (tmp_path / "child").mkdir(0o777)
    with OpenDirectory.prepare(tmp_path) as directory:
        directory.child("child", OURS, 0o700).__exit__(None, None, None)
    assert (tmp_path / "child").stat().st_mode & 0o777 == 0o700


def test_a_directory_that_others_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UnusableDirectoryError, match="users other than its owner can write to it"):
        OpenDirectory.find(tmp_path / "open")
    assert OpenDirectory.find(tmp_path / "none") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_a_child_goes_to_its_owner_but_not_from_another(tmp_path: Path) -> None:
    user, other = Owner(4201, 4202), Owner(4203, 4203)
    with OpenDirectory.prepare(tmp_path) as directory:
        with directory.child("child", user, 0o700) as child:
            child.replace("a.key", b"x", 0o600, user)
        with pytest.raises(UnusableDirectoryError, match="it belongs to uid 4201"):
            directory.child("child", other, 0o700)
    for path in (tmp_path / "child", tmp_path / "child" / "a.key"):
        assert (path.stat().st_uid, path.stat().st_gid) == (4201, 4202)
