# SPDX-License-Identifier: Apache-2.0
"""Bounds how many tokens one port verifies: each takes up to 0.5 ms of the event loop.

An honest scraper has a new token every few minutes, and all others are cached. A client address that has
shown a valid token shares no bucket with addresses that have not, so a flood of invalid tokens does not
delay it.
"""

from collections import OrderedDict

from daemonkit.token_bucket import TokenBucket

# Of one client address.
ADDRESS_BURST, ADDRESS_PER_S = 10.0, 0.5
# Of all addresses that have shown a valid token, and of all others: 1 % of a core each.
PORT_BURST, PORT_PER_S = 50.0, 20.0
# Addresses that are remembered; beyond these the oldest is forgotten.
MAX_ADDRESSES = 256


class VerificationRate:
    """The rate of one port. Times are monotonic seconds."""

    def __init__(self, now_s: float) -> None:
        self._proven = TokenBucket(PORT_BURST, PORT_PER_S, PORT_BURST, now_s)
        self._unproven = TokenBucket(PORT_BURST, PORT_PER_S, PORT_BURST, now_s)
        # Apart: addresses without a valid token must not make the others be forgotten.
        self._proven_addresses: OrderedDict[str, TokenBucket] = OrderedDict()
        self._other_addresses: OrderedDict[str, TokenBucket] = OrderedDict()

    def try_acquire(self, client_address: str, now_s: float) -> bool:
        """Whether one more token of `client_address` may be verified now."""
        own = self._proven_addresses.get(client_address)
        shared = self._unproven if own is None else self._proven
        if own is None:
            own = self._other_addresses.get(client_address)
        if own is None:
            own = TokenBucket(ADDRESS_BURST, ADDRESS_PER_S, ADDRESS_BURST, now_s)
            _remember(self._other_addresses, client_address, own)
        return own.available(now_s) >= 1 and shared.try_acquire(now_s) and own.try_acquire(now_s)

    def prove(self, client_address: str) -> None:
        """`client_address` has shown a valid token."""
        own = self._other_addresses.pop(client_address, None)
        if own is not None:
            _remember(self._proven_addresses, client_address, own)


def _remember(addresses: OrderedDict[str, TokenBucket], client_address: str, own: TokenBucket) -> None:
    addresses[client_address] = own
    if len(addresses) > MAX_ADDRESSES:
        addresses.popitem(last=False)
