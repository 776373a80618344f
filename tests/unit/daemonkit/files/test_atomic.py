# SPDX-License-Identifier: Apache-2.0
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from daemonkit.files.atomic import remove_leftovers, write_atomically


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_write_replaces_the_file_and_leaves_no_other(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, b"old")
    before = path.stat().st_ino
    write_atomically(path, b"new" * 100_000)
    assert path.read_bytes() == b"new" * 100_000
    assert path.stat().st_ino != before
    assert names(tmp_path) == ["state.json"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_the_mode_does_not_depend_on_the_umask(tmp_path: Path, mode: int) -> None:
    umask = os.umask(0o077)
    try:
        write_atomically(tmp_path / "f", b"x", mode)
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == mode


@pytest.mark.parametrize("call", ["write", "fsync", "fchmod", "close"])
def test_a_full_disk_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, b"old")
    real: Callable[..., object] = getattr(os, call)

    def fail(descriptor: int, *args: object) -> None:
        if call == "close":
            real(descriptor)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left on device"):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["state.json"]


def test_partial_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    write_atomically(tmp_path / "f", b"0123456789")
    assert (tmp_path / "f").read_bytes() == b"0123456789"


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"target")
    (tmp_path / "link").symlink_to("target")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "target").read_bytes() == b"target"
    assert not (tmp_path / "link").is_symlink()


def test_leftovers_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".state.json.0123456789ab.tmp").write_bytes(b"half")
    (tmp_path / "state.json").write_bytes(b"whole")
    assert remove_leftovers(tmp_path) == 1
    assert names(tmp_path) == ["state.json"]


def test_a_missing_directory_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "none" / "f", b"x")
