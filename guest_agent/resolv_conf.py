# SPDX-License-Identifier: Apache-2.0
"""Writes a resolv.conf in place."""

import errno
import os
import stat
from pathlib import Path

# glibc reads any size. Three servers, 32 domains and some options have 8 KiB at most.
MAX_BYTES = 64 << 10


def write(path: Path | str, text: str, *, dir_fd: int | None = None, mode: int | None = None) -> bool:
    """Write `text` to the file at `path`; return False if it had this content before.

    Refuses links and anything but a regular file. With `mode`, which the file then gets, also refuses
    a file of another user or with several links. `dir_fd` is as of open(2).

    The file is never replaced: containers have its inode mounted and would keep the old one. A reader
    never sees a partial file: a shorter text is padded with blank lines to the old length, written at
    once, and then truncated. Raises `OSError`, and `ValueError` for an invalid text.
    """
    data = text.encode()
    if len(data) > MAX_BYTES or b"\0" in data:
        raise ValueError(f"a resolv.conf is text of {MAX_BYTES} bytes at most")
    # O_NONBLOCK: a FIFO of this name would block.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o644, dir_fd=dir_fd)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if mode is not None:
            if status.st_uid != os.geteuid() or status.st_nlink != 1:
                raise PermissionError(errno.EPERM, "it has another owner, or several links", str(path))
            os.fchmod(descriptor, mode)
        before = os.read(descriptor, MAX_BYTES + 1)
        if before == data:
            return False
        padded = data + b"\n" * (len(before) - len(data))
        if os.pwrite(descriptor, padded, 0) != len(padded):
            # The disk is full. The old content fits into its old blocks.
            os.pwrite(descriptor, before, 0)
            os.ftruncate(descriptor, len(before))
            raise OSError(28, "No space left on device", str(path))
        os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)
    return True
