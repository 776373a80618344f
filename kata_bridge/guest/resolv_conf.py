# SPDX-License-Identifier: Apache-2.0
"""Writes resolv.conf where it stands."""

import os
from pathlib import Path

# glibc reads any size; three servers, 32 domains and some options are 8 KiB at most.
MAX_BYTES = 64 << 10


def write(path: Path, text: str) -> bool:
    """Make `text` the content of the file at `path`; return False if it is that already.

    Never renamed over: containers have this very inode mounted, and would keep the old one. So that
    a reader never sees less than a whole file, what is shorter than before is first written with
    blank lines up to the old length, in one write, and then cut. Raises `OSError`, and `ValueError`
    for a text that is no resolv.conf.
    """
    data = text.encode()
    if len(data) > MAX_BYTES or b"\0" in data:
        raise ValueError(f"a resolv.conf is text of {MAX_BYTES} bytes at most")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
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
