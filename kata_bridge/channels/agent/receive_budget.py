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
# Of each flight of its TLS handshake: its hello, then its chain with all that it sends at once, 3 KB in all.
# BoringSSL copies the issuer's name of a certificate for each of its distribution points, before it checks
# the signature: a chain of 43 KB took 2.7 s and 490 MiB, one of 8 KB 50 ms and 8 MiB.
FLIGHT_BYTES = 8 << 10
# The server answers the first flight with its own, the second when the chain is verified.
_FLIGHTS = 2
# What is instead of the server's random bytes where it asks for another hello (RFC 8446, 4.1.3), and where.
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
_RETRY_AT = 11
# A message of 64 KiB at most, and what an agent of ours sends between two: 2 KB while 16 MiB are pushed
# to it (90 KB where a client opens windows as it reads); an answer to each ping, 40 bytes in 20 s.
BETWEEN_MESSAGES_BYTES = 256 << 10


class ReceiveBudget:
    """Of one connection."""

    __slots__ = ("_expected_bytes", "_flight_bytes", "_flights", "_left_bytes")

    def __init__(self) -> None:
        self._left_bytes = BEFORE_ATTACHED_BYTES
        self._expected_bytes = 0
        self._flight_bytes = 0
        self._flights = _FLIGHTS  # that are still to come, with the one that comes now

    def spend(self, size: int) -> bool:
        """Take in that so many bytes came; return whether they were allowed."""
        if self._flights:
            self._flight_bytes += size
            if self._flight_bytes > FLIGHT_BYTES:
                return False
        beyond = max(0, size - self._left_bytes)
        self._left_bytes -= size - beyond
        self._expected_bytes -= beyond
        return self._expected_bytes >= 0

    def answered(self, data: bytes) -> None:
        """The server has sent this."""
        if self._flights and self._flight_bytes:
            self._flight_bytes = 0
            if not data.startswith(_RETRY, _RETRY_AT):
                self._flights -= 1

    def renew(self) -> None:
        """A message has come. What is expected may come all the same."""
        self._left_bytes = BETWEEN_MESSAGES_BYTES

    def expect(self, size: int) -> None:
        """An answer of so many bytes was asked for; 0: none is waited for any more."""
        self._expected_bytes = size
