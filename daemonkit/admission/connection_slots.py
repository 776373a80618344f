# SPDX-License-Identifier: Apache-2.0
"""Slots for connections that are not authenticated yet, counted by source. Pure.

When all slots are taken, the source with the most connections loses its oldest one. A flood from a few
sources therefore evicts itself: an honest client from another source keeps its slot, and a slot is cheap
enough that there are thousands of them.
"""

from collections.abc import Hashable
from ipaddress import IPv6Address
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


def source_of(host: str) -> str:
    """The source that a peer's address (as getpeername(2) has it) is counted as.

    An IPv4 address is a source. An IPv6 source is a /64: the hosts of a link choose the other half of
    their addresses themselves (RFC 4291, 2.5.1), as many as they like.
    """
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"


class ConnectionSlots(Generic[T]):
    """At most `capacity` connections. All operations take constant time, whatever the number of sources."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._source: dict[T, str] = {}
        self._by_source: dict[str, dict[T, None]] = {}  # the oldest first
        # How many connections a source has -> the sources with that many.
        self._by_count: dict[int, dict[str, None]] = {}
        self._highest = 0

    def __len__(self) -> int:
        return len(self._source)

    def __contains__(self, one: T) -> bool:
        return one in self._source

    def add(self, one: T, source: str) -> T | None:
        """Give `one` a slot. Returns the connection that loses its slot for it, if all were taken."""
        evicted = self.evict() if len(self._source) >= self._capacity else None
        self._source[one] = source
        held = self._by_source.setdefault(source, {})
        held[one] = None
        self._move(source, len(held) - 1, len(held))
        return evicted

    def discard(self, one: T) -> bool:
        """Free the slot of `one`; False if it has none."""
        source = self._source.pop(one, None)
        if source is None:
            return False
        held = self._by_source[source]
        del held[one]
        self._move(source, len(held) + 1, len(held))
        if not held:
            del self._by_source[source]
        return True

    def evict(self) -> T | None:
        """Free the slot of the oldest connection of the source that has most; among equals of the source
        that has had so many for longest."""
        if not self._highest:
            return None
        source = next(iter(self._by_count[self._highest]))
        evicted = next(iter(self._by_source[source]))
        self.discard(evicted)
        return evicted

    def _move(self, source: str, before: int, after: int) -> None:
        if before:
            peers = self._by_count[before]
            del peers[source]
            if not peers:
                del self._by_count[before]
        if after:
            self._by_count.setdefault(after, {})[source] = None
        if after > self._highest:
            self._highest = after
        elif self._highest not in self._by_count:
            self._highest = after  # `before` was the highest, and counts move by one
