# SPDX-License-Identifier: Apache-2.0
"""Where connections of guests come from, and how many each origin may have. Pure.

By TCP an origin is an address that is known to be a guest's own, else an IPv4 address or the /64 of
an IPv6 address: a link's hosts choose the other half themselves (RFC 4291, 2.5.1), as many as they
like.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from daemonkit.admission.connection_slots import source_of
from kata_bridge.channels.agent.guest_addresses import Address, parse_address

# A guest needs one connection, and a second for the moment in which it replaces the first; an agent
# that fails and comes back does so some 10 times in its first 10 s.
MAX_PER_GUEST, MAX_CONNECTS_PER_GUEST = 8, 40
# Behind an address there may be many guests.
MAX_PER_ADDRESS, MAX_CONNECTS_PER_ADDRESS = 256, 1_000
CONNECTS_S = 10.0
# Of that many the rate is remembered. Who can come from more starts anew, and meets the other bounds.
MAX_REMEMBERED = 4_096


@dataclass(frozen=True, slots=True)
class PeerOrigin:
    """Where a connection came in. `name` is for people, and what limits are counted by.

    `sandbox`: it is that guest's own door, and no other may come through it. `cid` is the VM's
    number as the kernel vouches for it, for AF_VSOCK. `address` is whom it comes from by TCP.
    `is_guests`: the address is one guest's own, and not one that others are behind.
    """

    transport: str
    name: str
    sandbox: str | None = None
    cid: int | None = None
    address: Address | None = None
    is_guests: bool = False

    @property
    def limits(self) -> tuple[int, int]:
        """How many connections at once, and how many within `CONNECTS_S`."""
        if self.transport == "tcp" and not self.is_guests:
            return MAX_PER_ADDRESS, MAX_CONNECTS_PER_ADDRESS
        return MAX_PER_GUEST, MAX_CONNECTS_PER_GUEST


def tcp_origin(peer: str, is_guests: Callable[[Address], bool]) -> PeerOrigin:
    """The origin of a TCP connection from `peer`, an address as getpeername(2) has it."""
    address = parse_address(peer)
    if address is None:  # no kernel says so
        return PeerOrigin("tcp", peer)
    if is_guests(address):
        return PeerOrigin("tcp", str(address), address=address, is_guests=True)
    return PeerOrigin("tcp", source_of(peer), address=address)


class ConnectRateLimiter:
    """How often each origin has connected of late."""

    def __init__(self) -> None:
        # What an origin may still do at once, and when that was so; who was heard last is last. An
        # address that comes to be one guest's own begins anew: its bound is another.
        self._left: OrderedDict[tuple[str, int], tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._left)

    def admits(self, origin: PeerOrigin, now_s: float) -> bool:
        """Whether it may connect once more; it is counted then."""
        most = origin.limits[1]
        key = (origin.name, most)
        left, at_s = self._left.pop(key, (float(most), now_s))
        left = min(float(most), left + (now_s - at_s) * most / CONNECTS_S)
        is_admitted = left >= 1
        self._left[key] = (left - 1 if is_admitted else left, now_s)
        while len(self._left) > MAX_REMEMBERED:
            self._left.popitem(last=False)
        self.forget(now_s)
        return is_admitted

    def forget(self, now_s: float) -> None:
        """Forget those that may do again all that they ever may."""
        while self._left and self._is_over(now_s):
            self._left.popitem(last=False)

    def _is_over(self, now_s: float) -> bool:
        """Whether that is so of the one that was heard longest ago."""
        return next(iter(self._left.values()))[1] <= now_s - CONNECTS_S
