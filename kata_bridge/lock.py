# SPDX-License-Identifier: Apache-2.0
"""One bridge a node: two would write into the same guests, and two NRI plugins fail each container."""

import fcntl
import os
from pathlib import Path


class Locked(Exception):  # noqa: N818 - the state it tells of
    """Another process holds the lock; says which."""


class Lock:
    """An flock(2) on a file, held as long as this process lives or until `release`."""

    def __init__(self, path: Path) -> None:
        """Take it. Raises `Locked`, and `OSError` if the file cannot be made."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise Locked(
                f"another kata-bridge runs on this node: {path}, pid {holder or 'unknown'}"
            ) from None
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            pass  # a full disk: the number is for people, the lock is what counts

    def release(self) -> None:
        os.close(self._descriptor)
