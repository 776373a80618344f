# SPDX-License-Identifier: Apache-2.0
"""How many bytes a guest may send before they come to something. Pure.

Counted at the relay, so of TLS records and of all that HTTP/2 has besides messages: a server keeps a
message until it is whole, and answers pings, settings and resets as fast as they come, whoever sends
them. Each message that was waited for, or is one of the few that need not be, makes the allowance
anew; who goes beyond it is hung up on. No clock: a guest that is slow, or paused, loses nothing.
"""

# From the client's hello to the agent's: a handshake and a message, 4 KB together; with gRPC's own
# client 6 KB. What is refused is refused by then.
BEFORE_ATTACHED_BYTES = 64 << 10
# A message of 64 KiB at most, and what an agent of ours sends between two: 2 KB while 16 MiB are pushed
# to it (90 KB where a client opens windows as it reads); an answer to each ping, 40 bytes in 20 s.
BETWEEN_MESSAGES_BYTES = 256 << 10


class Allowance:
    """Of one connection."""

    __slots__ = ("_expected_bytes", "_left_bytes")

    def __init__(self) -> None:
        self._left_bytes = BEFORE_ATTACHED_BYTES
        self._expected_bytes = 0

    def spend(self, size: int) -> bool:
        """Take in that so many bytes came; return whether they were allowed."""
        beyond = max(0, size - self._left_bytes)
        self._left_bytes -= size - beyond
        self._expected_bytes -= beyond
        return self._expected_bytes >= 0

    def renew(self) -> None:
        """A message has come. What is expected may come all the same."""
        self._left_bytes = BETWEEN_MESSAGES_BYTES

    def expect(self, size: int) -> None:
        """An answer of so many bytes was asked for; 0: none is waited for any more."""
        self._expected_bytes = size
