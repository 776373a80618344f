# SPDX-License-Identifier: Apache-2.0
"""One kata-bridge for each node: two would write into the same guests, and two NRI plugins of one name fail
every container."""

import fcntl
import os
from pathlib import Path


class AlreadyRunningError(Exception):
    """Another process holds the lock; the message names it."""


class NodeLock:
    """An flock(2) on a file, held while this process lives or until `release`."""

    def __init__(self, path: Path) -> None:
        """Take the lock. Raises `AlreadyRunningError`, and `OSError` if the file cannot be made."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise AlreadyRunningError(
                f"another kata-bridge runs on this node: {path}, pid {holder or 'unknown'}"
            ) from None
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            pass  # a full disk: the number is only for people

    def release(self) -> None:
        os.close(self._descriptor)
