# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from vcnode.input_file import MAX_FILE_BYTES, read
from vcnode.terminal import ToolError


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(b"x" * MAX_FILE_BYTES)
    assert len(read(file)) == MAX_FILE_BYTES
    file.write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ToolError, match="larger than 1048576 bytes"):
        read(file)


def test_an_absent_file_is_named_with_its_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"ca\.crt: No such file or directory"):
        read(tmp_path / "ca.crt")
