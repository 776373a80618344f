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
def test_what_is_missing_is_made_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        directories.prepare(tmp_path / "run" / "vcnode", 0o711)
    finally:
        os.umask(before)
    assert (mode(tmp_path / "run"), mode(tmp_path / "run" / "vcnode")) == (0o755, 0o711)


@pytest.mark.parametrize(("found", "wanted", "left"), [(0o755, 0o700, 0o700), (0o700, 0o755, 0o700)])
def test_what_is_there_is_tightened_and_never_opened(
    tmp_path: Path, found: int, wanted: int, left: int
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(found)
    directories.prepare(tmp_path / "state", wanted)
    assert mode(tmp_path / "state") == left


@pytest.mark.parametrize(
    ("writable", "remedy"),
    [(0o775, "chmod go-w"), (0o757, "chmod go-w"), (0o1777, "name a directory below it")],
)
def test_one_that_others_may_write_is_refused(tmp_path: Path, writable: int, remedy: str) -> None:
    """Tightened it would still hold what was put there before."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(writable)
    with pytest.raises(
        UnusableDirectoryError, match=rf"state: users other .* \(mode {writable:04o}\); {remedy}"
    ):
        directories.prepare(tmp_path / "state", 0o700)
    assert "users other than its owner can write to it" in directories.problem(tmp_path / "state")
    assert mode(tmp_path / "state") == writable


def test_so_is_one_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "run" / "vcnode").mkdir(parents=True)
    (tmp_path / "run").chmod(0o775)
    for path in (tmp_path / "run" / "vcnode", tmp_path / "run" / "missing"):
        with pytest.raises(UnusableDirectoryError, match="run: users other"):
            directories.prepare(path)


def test_on_the_way_the_sticky_bit_will_do(tmp_path: Path) -> None:
    """As in /tmp: what is ours there nobody else can replace."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    directories.prepare(tmp_path / "shared" / "ours")
    assert directories.problem(tmp_path / "shared" / "ours" / "inner") == ""


@pytest.mark.parametrize("target", ["{0}/real", "real", "../{1}/real"])
def test_links_on_the_way_are_followed(tmp_path: Path, target: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(target.format(tmp_path, tmp_path.name))
    directories.prepare(tmp_path / "link" / "state")
    assert (tmp_path / "real" / "state").is_dir()


def test_what_a_link_leads_through_is_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "open" / "real").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to("open/real")
    with pytest.raises(UnusableDirectoryError, match="open: users other"):
        directories.prepare(tmp_path / "link")


def test_a_circle_of_links_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    assert "too many links" in directories.problem(tmp_path / "one" / "state")


def test_a_file_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert directories.problem(tmp_path / "file" / "state").endswith("file: not a directory")


def test_what_can_be_made_is_no_problem_and_is_not_made(tmp_path: Path) -> None:
    assert directories.problem(tmp_path / "run" / "vcnode") == ""
    assert not (tmp_path / "run").exists()
