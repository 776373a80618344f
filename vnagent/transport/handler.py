# SPDX-License-Identifier: Apache-2.0
"""What a TLS connection calls: a handler for its events, and the usage that counts its bytes."""

import enum
from typing import Protocol


class EndReason(enum.StrEnum):
    """Why a connection ended, or its handshake failed."""

    CLOSED = "closed"  # by the peer, with close_notify or FIN
    RESET = "reset"  # by the peer or the kernel, or it was never established
    BROKEN = "broken"  # a bad TLS record, a limit on records, or an exception in the handler
    UNTRUSTED = "untrusted"  # the peer's certificate; a missing one is HANDSHAKE_FAILED
    HANDSHAKE_FAILED = "handshake-failed"
    HANDSHAKE_TOO_LARGE = "handshake-too-large"
    DEADLINE = "deadline"


class ConnectionHandler(Protocol):
    """The callbacks of a connection. None is called after `close` or `abort`."""

    def on_handshake(self) -> None: ...

    def on_data(self, data: memoryview) -> None: ...

    def on_batch_end(self) -> None:
        """All plaintext of this receive was delivered: flush what it was relayed to."""

    def on_writable(self) -> None:
        """Data that the socket had refused was sent."""

    def on_end(self, reason: EndReason) -> None:
        """The peer closed, or the connection broke. Called once; the handler still has to close."""

    def on_deadline(self) -> None:
        """`deadline` passed."""


class ByteUsage(Protocol):
    """Counts, for a tenant: unsent bytes, also of other workers; handshake bytes; bytes sent to its
    clients."""

    handshake_bytes: int
    unsent_bytes: int
    peer_unsent_bytes: int
    max_unsent_bytes: int
    sent_bytes: int

    def exchange(self) -> None:
        """Publish the counts to the other workers, and read theirs."""


class _NoUsage:
    """Counts for no tenant, without a limit."""

    handshake_bytes = 0
    unsent_bytes = 0
    max_unsent_bytes = 0
    sent_bytes = 0
    peer_unsent_bytes = 0

    def exchange(self) -> None:
        """Other workers count nothing for it."""


NO_USAGE = _NoUsage()
