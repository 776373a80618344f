# SPDX-License-Identifier: Apache-2.0
"""Slots for connections that are not authenticated yet, counted by client address. Pure.

When all slots are taken, the client address with the most connections loses its oldest one. A flood from a
few addresses therefore evicts itself: an honest client from another one keeps its slot, and a slot is cheap
enough that there are thousands of them. kata-bridge counts by a connection's origin instead.
"""

from collections.abc import Hashable
from ipaddress import IPv6Address
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


def client_address_of(host: str) -> str:
    """The client address that a peer's address (as getpeername(2) has it) is counted as.

    It is an IPv4 address or an IPv6 /64: the hosts of a link choose the other half of their addresses
    themselves (RFC 4291, 2.5.1), as many as they like.
    """
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"


class ConnectionSlots(Generic[T]):
    """At most `capacity` connections. All operations take constant time, whatever the number of addresses."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._client_address: dict[T, str] = {}
        self._by_client_address: dict[str, dict[T, None]] = {}  # the oldest first
        # How many connections an address has -> the addresses with that many.
        self._by_count: dict[int, dict[str, None]] = {}
        self._highest = 0

    def __len__(self) -> int:
        return len(self._client_address)

    def __contains__(self, one: T) -> bool:
        return one in self._client_address

    def add(self, one: T, client_address: str) -> T | None:
        """Give `one` a slot. Returns the connection that loses its slot for it, if all were taken."""
        evicted = self.evict() if len(self._client_address) >= self._capacity else None
        self._client_address[one] = client_address
        held = self._by_client_address.setdefault(client_address, {})
        held[one] = None
        self._move(client_address, len(held) - 1, len(held))
        return evicted

    def discard(self, one: T) -> bool:
        """Free the slot of `one`; False if it has none."""
        client_address = self._client_address.pop(one, None)
        if client_address is None:
            return False
        held = self._by_client_address[client_address]
        del held[one]
        self._move(client_address, len(held) + 1, len(held))
        if not held:
            del self._by_client_address[client_address]
        return True

    def evict(self) -> T | None:
        """Free the slot of the oldest connection of the address that has most; among equals of the one that
        has had so many for longest."""
        if not self._highest:
            return None
        client_address = next(iter(self._by_count[self._highest]))
        evicted = next(iter(self._by_client_address[client_address]))
        self.discard(evicted)
        return evicted

    def _move(self, client_address: str, before: int, after: int) -> None:
        if before:
            peers = self._by_count[before]
            del peers[client_address]
            if not peers:
                del self._by_count[before]
        if after:
            self._by_count.setdefault(after, {})[client_address] = None
        if after > self._highest:
            self._highest = after
        elif self._highest not in self._by_count:
            self._highest = after  # `before` was the highest, and counts move by one
