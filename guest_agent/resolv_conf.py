# SPDX-License-Identifier: Apache-2.0
"""Writes resolv.conf where it stands."""

import errno
import os
import stat
from pathlib import Path

# glibc reads any size; three servers, 32 domains and some options are 8 KiB at most.
MAX_BYTES = 64 << 10


def write(path: Path | str, text: str, *, dir_fd: int | None = None, mode: int | None = None) -> bool:
    """Make `text` the content of the file at `path`; return False if it is that already.

    A link is refused, and so is what is no regular file; with `mode`, which it is then given, also a
    file that is not ours alone. `dir_fd` is as of open(2).

    Never renamed over: containers have this very inode mounted, and would keep the old one. So that
    a reader never sees less than a whole file, what is shorter than before is first written with
    blank lines up to the old length, in one write, and then cut. Raises `OSError`, and `ValueError`
    for a text that is no resolv.conf.
    """
    data = text.encode()
    if len(data) > MAX_BYTES or b"\0" in data:
        raise ValueError(f"a resolv.conf is text of {MAX_BYTES} bytes at most")
    # Not blocking, or a FIFO under its name would hold us.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o644, dir_fd=dir_fd)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if mode is not None:
            if status.st_uid != os.geteuid() or status.st_nlink != 1:
                raise PermissionError(errno.EPERM, "it is another's file, or has another name", str(path))
            os.fchmod(descriptor, mode)
        before = os.read(descriptor, MAX_BYTES + 1)
        if before == data:
            return False
        padded = data + b"\n" * (len(before) - len(data))
        if os.pwrite(descriptor, padded, 0) != len(padded):
            # A disk that is full half way: what was there is of the same length, so it fits.
            os.pwrite(descriptor, before, 0)
            os.ftruncate(descriptor, len(before))
            raise OSError(28, "No space left on device", str(path))
        os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)
    return True
