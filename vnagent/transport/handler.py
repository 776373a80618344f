# SPDX-License-Identifier: Apache-2.0
"""Who stands behind a channel: who is told of it, and who answers for what its peer has not taken."""

from typing import Protocol


class Owner(Protocol):
    """What a channel tells its owner. None of these is called after `close` or `abort`."""

    def on_handshake(self) -> None: ...

    def on_data(self, data: memoryview) -> None: ...

    def on_batch_end(self) -> None:
        """All that had arrived was handed over: the moment to flush what it was relayed to."""

    def on_writable(self) -> None:
        """What could not be sent at once has left."""

    def on_end(self, reason: str) -> None:
        """The peer closed, or the connection broke. Called once; the channel is still to be closed."""

    def on_deadline(self) -> None:
        """`deadline` passed."""


class Account(Protocol):
    """Whoever answers for the bytes that a channel's peer has not taken yet, and for those of its chain."""

    handshake_bytes: int
    unsent_bytes: int
    max_unsent_bytes: int


class _NoAccount:
    """Counts for nobody."""

    handshake_bytes = 0
    unsent_bytes = 0
    max_unsent_bytes = 0


NO_ACCOUNT = _NoAccount()
