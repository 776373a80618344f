# SPDX-License-Identifier: Apache-2.0
"""How many bytes an agent may send before they make a message. Pure.

The relay counts TLS records, and so all that HTTP/2 has besides messages. gRPC keeps a message until it is
whole, and answers pings, settings and resets as fast as they come. Each expected message renews the budget;
an agent that exceeds it is disconnected. It reads no clock: a guest that is slow or paused loses nothing.
"""

# From the client's hello to the agent's: a handshake and a message, 4 KB together; with gRPC's own
# client 6 KB. Every refusal comes within that.
BEFORE_ATTACHED_BYTES = 64 << 10
# Of each flight of its TLS handshake: the hello, then its chain with all that it sends at once, 3 KB in all.
# BoringSSL copies the issuer's name of a certificate for each of its distribution points, before it checks
# the signature: a chain of 43 KB took 2.7 s and 490 MiB, one of 8 KB 50 ms and 8 MiB.
FLIGHT_BYTES = 8 << 10
# The server answers the first flight with its own, the second when the chain is verified.
_FLIGHTS = 2
# A HelloRetryRequest has this in place of the server's random bytes (RFC 8446, 4.1.3), at this offset.
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
_RETRY_AT = 11
# A message of 64 KiB at most, and what our agent sends between two: 2 KB while 16 MiB are pushed to it
# (90 KB where a client opens windows as it reads); an answer to each ping, 40 bytes in 20 s.
BETWEEN_MESSAGES_BYTES = 256 << 10


class ReceiveBudget:
    """The budget of one connection."""

    __slots__ = ("_expected_bytes", "_flight_bytes", "_flights", "_left_bytes")

    def __init__(self) -> None:
        self._left_bytes = BEFORE_ATTACHED_BYTES
        self._expected_bytes = 0
        self._flight_bytes = 0
        self._flights = _FLIGHTS  # still to come, with the current one

    def try_spend(self, size: int) -> bool:
        """Count `size` received bytes; false if they exceed the budget."""
        if self._flights:
            self._flight_bytes += size
            if self._flight_bytes > FLIGHT_BYTES:
                return False
        beyond = max(0, size - self._left_bytes)
        self._left_bytes -= size - beyond
        self._expected_bytes -= beyond
        return self._expected_bytes >= 0

    def server_sent(self, data: bytes) -> None:
        """The server sent `data`, which ends a flight of the client."""
        if self._flights and self._flight_bytes:
            self._flight_bytes = 0
            if not data.startswith(_RETRY, _RETRY_AT):
                self._flights -= 1

    def renew(self) -> None:
        """A message has arrived. What is expected may still come."""
        self._left_bytes = BETWEEN_MESSAGES_BYTES

    def expect(self, size: int) -> None:
        """Allow an answer of `size` bytes besides; 0: none is expected any more."""
        self._expected_bytes = size
