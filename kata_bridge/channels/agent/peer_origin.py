# SPDX-License-Identifier: Apache-2.0
"""Where connections of agents come from, and the limits of each origin. Pure.

By TCP an origin is an address that is one guest's own, else an IPv4 address or an IPv6 /64. The hosts of a
link choose the lower half of their IPv6 addresses themselves (RFC 4291, 2.5.1), as many as they like.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from daemonkit.admission.connection_slots import client_address_of
from daemonkit.token_bucket import TokenBucket
from kata_bridge.channels.agent.guest_addresses import Address, parse_address

# A guest needs one connection, and a second while that replaces the first. An agent that fails and comes
# back does so some 10 times in its first 10 s.
MAX_PER_GUEST, MAX_CONNECTS_PER_GUEST = 8, 40
# Behind an address there may be many guests.
MAX_PER_ADDRESS, MAX_CONNECTS_PER_ADDRESS = 256, 1_000
CONNECTS_S = 10.0
# Origins whose rate is remembered. A client with more addresses starts anew, and meets the other limits.
MAX_REMEMBERED = 4_096


@dataclass(frozen=True, slots=True)
class PeerOrigin:
    """Where a connection came from. `name` is for people, and the key of its limits.

    `sandbox`: the connection came by the socket of this guest alone. `cid`: the VM's number, which the
    kernel vouches for, by AF_VSOCK. `address`: the peer's, by TCP. `has_single_owner`: one guest alone has
    this address.
    """

    transport: str
    name: str
    sandbox: str | None = None
    cid: int | None = None
    address: Address | None = None
    has_single_owner: bool = False

    @property
    def limits(self) -> tuple[int, int]:
        """How many connections at once, and how many new ones within `CONNECTS_S`."""
        if self.transport == "tcp" and not self.has_single_owner:
            return MAX_PER_ADDRESS, MAX_CONNECTS_PER_ADDRESS
        return MAX_PER_GUEST, MAX_CONNECTS_PER_GUEST


def tcp_origin(peer: str, has_single_owner: Callable[[Address], bool]) -> PeerOrigin:
    """The origin of a TCP connection from `peer`, an address as getpeername(2) returns it."""
    address = parse_address(peer)
    if address is None:  # no kernel returns that
        return PeerOrigin("tcp", peer)
    if has_single_owner(address):
        return PeerOrigin("tcp", str(address), address=address, has_single_owner=True)
    return PeerOrigin("tcp", client_address_of(peer), address=address)


class ConnectRateLimiter:
    """Limits how often each origin connects."""

    def __init__(self) -> None:
        # The latest used last. An address that becomes one guest's own starts anew: its limit is another.
        self._buckets: OrderedDict[tuple[str, int], TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def try_acquire(self, origin: PeerOrigin, now_s: float) -> bool:
        """Count one connection of `origin`; false if that exceeds its rate."""
        limit = origin.limits[1]
        key = (origin.name, limit)
        bucket = self._buckets.pop(key, None) or TokenBucket(limit, limit / CONNECTS_S, limit, now_s)
        is_admitted = bucket.try_acquire(now_s)
        self._buckets[key] = bucket
        while len(self._buckets) > MAX_REMEMBERED:
            self._buckets.popitem(last=False)
        self.evict_idle(now_s)
        return is_admitted

    def evict_idle(self, now_s: float) -> None:
        """Drop origins whose bucket is full again: they have not connected for `CONNECTS_S`."""
        while self._buckets and next(iter(self._buckets.values())).at_s <= now_s - CONNECTS_S:
            self._buckets.popitem(last=False)
