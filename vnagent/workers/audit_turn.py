# SPDX-License-Identifier: Apache-2.0
"""The turn of one worker to write to the audit log that all workers share."""

import contextlib
import fcntl


class AuditTurn:
    """A record lock on the first byte of a file that all workers have open (fcntl(2), F_SETLK).

    The lock is of the process, so that it ends with the process. It is not on the audit log itself: that may
    be a pipe, and is replaced when it is rotated.
    """

    def __init__(self, descriptor: int) -> None:
        """The process must close no other descriptor of the same file: that would end the lock."""
        self._descriptor = descriptor

    def try_acquire(self) -> bool:
        """Take the turn, if no other worker has it. It is true again for the worker that has it."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError:
            return False
        return True

    def release(self) -> None:
        with contextlib.suppress(OSError):
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1)
