# SPDX-License-Identifier: Apache-2.0
"""Replaces a file whole: a reader, or a crash, finds the old content or the new one."""

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace `path` by a file with this content and mode, whole or not at all, and durably.

    Raises `OSError` (a full disk, a missing directory); the old file is untouched then.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        try:
            os.fchmod(descriptor, mode)  # not at open, where the umask applies
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def remove_leftovers(directory: Path) -> int:
    """Remove what a killed `write_atomically` left; for the start of the directory's only writer.

    Returns how many. Raises `OSError`.
    """
    leftovers = list(directory.glob(".*.tmp"))
    for leftover in leftovers:
        leftover.unlink(missing_ok=True)
    return len(leftovers)


def _sync_directory(directory: Path) -> None:
    """Make a rename durable: it is the directory's content that changed (fsync(2))."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
