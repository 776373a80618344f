# SPDX-License-Identifier: Apache-2.0
"""Links and other files at the paths of a sandbox's files are neither written nor read."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from daemonkit.files.directories import UnusableDirectoryError
from guest_agent import resolv_conf
from kata_bridge.start_gate.core.decision import SubmittedResolver
from kata_bridge.start_gate.resolv_conf import ResolvConfs

TEXT = "nameserver 10.0.0.10\n"
SECRET = "root's own\n"
BLUE = ("blue",)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


def untouched(secret: Path) -> bool:
    return secret.read_text() == SECRET and stat.S_IMODE(secret.stat().st_mode) == 0o600


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to])
@pytest.mark.parametrize("name", ["resolv.conf", "gate.new", "gate.json"])
def test_a_link_at_the_path_of_a_file_is_not_followed(
    tmp_path: Path, secret: Path, plant: Callable[[Path, Path], None], name: str
) -> None:
    """It was followed, and its target was written and made readable by all."""
    (tmp_path / "pods" / "s").mkdir(parents=True)
    plant(tmp_path / "pods" / "s" / name, secret)
    confs = ResolvConfs(tmp_path / "pods")
    confs.set_resolver("u", SubmittedResolver(TEXT))
    if name == "resolv.conf":
        with pytest.raises(OSError, match=r"symbolic links|another owner, or several links"):
            confs.prepare("s", "u", BLUE)
    else:
        assert confs.prepare("s", "u", BLUE).read_text() == TEXT
    assert untouched(secret)


def test_a_link_at_the_path_of_a_sandbox_is_not_followed(tmp_path: Path, secret: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / "s").symlink_to(tmp_path / "elsewhere")
    confs = ResolvConfs(tmp_path / "pods")
    confs.set_resolver("u", SubmittedResolver(TEXT))
    with pytest.raises(OSError, match="Not a directory"):
        confs.prepare("s", "u", BLUE)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert untouched(secret)


def test_a_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods").chmod(0o770)
    with pytest.raises(UnusableDirectoryError, match="chmod go-w"):
        ResolvConfs(tmp_path / "pods")


def test_a_fifo_does_not_block_the_daemon(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "resolv.conf")
    with pytest.raises(OSError, match="not a regular file"):
        resolv_conf.write(tmp_path / "resolv.conf", TEXT)


def test_resolv_conf_is_readable_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        confs = ResolvConfs(tmp_path / "pods")
        confs.set_resolver("u", SubmittedResolver(TEXT))
        path = confs.prepare("s", "u", BLUE)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
