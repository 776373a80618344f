# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import pytest

from guest_agent import resolv_conf

LONG, SHORT = "nameserver 10.0.0.10\nsearch a.svc b.svc\n", "nameserver 10.0.0.2\n"


def test_the_file_keeps_its_inode(tmp_path: Path) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text(LONG)
    mounted = path.open()
    assert resolv_conf.write(path, SHORT) is True
    with mounted:
        assert mounted.read() == SHORT
    assert resolv_conf.write(path, SHORT) is False
    assert resolv_conf.write(path, LONG) is True
    assert path.read_text() == LONG


def test_a_missing_file_is_created(tmp_path: Path) -> None:
    assert resolv_conf.write(tmp_path / "resolv.conf", SHORT) is True
    assert (tmp_path / "resolv.conf").read_text() == SHORT


def test_a_reader_sees_no_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text(LONG)
    seen: list[str] = []
    real = os.ftruncate

    def looking(descriptor: int, length: int) -> None:
        seen.append(path.read_text())
        real(descriptor, length)

    monkeypatch.setattr(os, "ftruncate", looking)
    resolv_conf.write(path, SHORT)
    assert seen == [SHORT + "\n" * (len(LONG) - len(SHORT))]


def test_a_full_disk_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text(SHORT)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: real(descriptor, data[: len(SHORT)], at))
    with pytest.raises(OSError, match="No space left"):
        resolv_conf.write(path, LONG)
    assert path.read_text() == SHORT


@pytest.mark.parametrize("text", ["a\0b", "x" * (64 << 10) + "x"])
def test_an_invalid_text_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="is text of 65536 bytes at most"):
        resolv_conf.write(tmp_path / "resolv.conf", text)
    assert list(tmp_path.iterdir()) == []
