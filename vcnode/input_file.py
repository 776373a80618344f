# SPDX-License-Identifier: Apache-2.0
"""The files that an operator names on the command line."""

from pathlib import Path

from vcnode.terminal import ToolError

MAX_FILE_BYTES = 1 << 20


def read(path: Path) -> bytes:
    """The whole file. Raises ToolError for one that cannot be read or is larger than `MAX_FILE_BYTES`."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ToolError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
    return data
