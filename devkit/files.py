# SPDX-License-Identifier: Apache-2.0
"""Replaces a file that a daemon watches: the daemon reads the old content or the new one."""

import os
from pathlib import Path


def replace_file(path: Path, content: bytes | str, *, mode: int = 0o644) -> None:
    """Write a file beside `path` and rename it there."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    beside.replace(path)
