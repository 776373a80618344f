# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from guest_agent import state_file
from guest_agent.reconciler import AppliedRuleset

SOME = AppliedRuleset(7, "ab" * 32)


def test_a_written_state_is_read(tmp_path: Path) -> None:
    state_file.write(tmp_path / "state", AppliedRuleset(1, "cd" * 32))
    state_file.write(tmp_path / "state", SOME)
    assert state_file.read(tmp_path / "state") == SOME
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [b"", b"1 7", b"2 7 " + b"ab" * 32, b"1 x " + b"ab" * 32, b"1 7 abc", b"1 7 " + b"AB" * 32, b"\xff\xfe"],
)
def test_an_unusable_file_is_no_state(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state").write_bytes(content)
    assert state_file.read(tmp_path / "state") is None


def test_a_missing_file_is_no_state(tmp_path: Path) -> None:
    assert state_file.read(tmp_path / "state") is None
    with pytest.raises(FileNotFoundError):
        state_file.write(tmp_path / "missing" / "state", SOME)
