# SPDX-License-Identifier: Apache-2.0
"""Modes and links; owners are for the functional ring, which may change them."""

import os
import stat
from pathlib import Path

import pytest

from daemonkit.files import directories
from daemonkit.files.directories import UnusableDirectoryError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_missing_directories_are_created_with_their_mode(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        directories.prepare(tmp_path / "run" / "vcnode", 0o711)
    finally:
        os.umask(before)
    assert (mode(tmp_path / "run"), mode(tmp_path / "run" / "vcnode")) == (0o755, 0o711)


@pytest.mark.parametrize(("found", "allowed", "left"), [(0o755, 0o700, 0o700), (0o700, 0o755, 0o700)])
def test_existing_modes_are_tightened_and_never_loosened(
    tmp_path: Path, found: int, allowed: int, left: int
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(found)
    directories.prepare(tmp_path / "state", allowed)
    assert mode(tmp_path / "state") == left


@pytest.mark.parametrize(
    ("writable", "remedy"),
    [(0o775, "chmod go-w"), (0o757, "chmod go-w"), (0o1777, "name a directory below it")],
)
def test_a_directory_writable_by_others_is_refused(tmp_path: Path, writable: int, remedy: str) -> None:
    """A tightened directory would still have the files that others put there before."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(writable)
    with pytest.raises(
        UnusableDirectoryError, match=rf"state: users other .* \(mode {writable:04o}\); {remedy}"
    ):
        directories.prepare(tmp_path / "state", 0o700)
    assert "users other than its owner can write to it" in directories.problem(tmp_path / "state")
    assert mode(tmp_path / "state") == writable


def test_a_parent_writable_by_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run" / "vcnode").mkdir(parents=True)
    (tmp_path / "run").chmod(0o775)
    for path in (tmp_path / "run" / "vcnode", tmp_path / "run" / "missing"):
        with pytest.raises(UnusableDirectoryError, match="run: users other"):
            directories.prepare(path)


def test_a_sticky_parent_is_accepted(tmp_path: Path) -> None:
    """As in /tmp: other users cannot replace our files there."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    directories.prepare(tmp_path / "shared" / "ours")
    assert directories.problem(tmp_path / "shared" / "ours" / "inner") == ""


@pytest.mark.parametrize("target", ["{0}/real", "real", "../{1}/real"])
def test_links_in_the_path_are_followed(tmp_path: Path, target: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(target.format(tmp_path, tmp_path.name))
    directories.prepare(tmp_path / "link" / "state")
    assert (tmp_path / "real" / "state").is_dir()


def test_directories_behind_a_link_are_checked(tmp_path: Path) -> None:
    (tmp_path / "open" / "real").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to("open/real")
    with pytest.raises(UnusableDirectoryError, match="open: users other"):
        directories.prepare(tmp_path / "link")


def test_a_loop_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    assert "too many links" in directories.problem(tmp_path / "one" / "state")


def test_a_file_in_the_path_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert directories.problem(tmp_path / "file" / "state").endswith("file: not a directory")


def test_problem_creates_nothing(tmp_path: Path) -> None:
    assert directories.problem(tmp_path / "run" / "vcnode") == ""
    assert not (tmp_path / "run").exists()
