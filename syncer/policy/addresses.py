# SPDX-License-Identifier: Apache-2.0
"""Which addresses lead nowhere a tenant may send others. Pure."""

import bisect
import contextlib
import ipaddress
from collections import Counter
from collections.abc import Iterable

from syncer.policy.sync_policy import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# This host, its links, and what clouds answer their machines' metadata on. No tenant's Service is there.
_NEVER: tuple[Network, ...] = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",
            "127.0.0.0/8",
            "169.254.0.0/16",  # metadata: AWS, Azure, Google, OpenStack and others
            "192.0.0.0/24",  # metadata: Oracle
            "100.100.100.200/32",  # metadata: Alibaba
            "168.63.129.16/32",  # Azure's wire server
            "224.0.0.0/3",
            "::/127",
            "fe80::/10",
            "fec0::/10",
            "ff00::/8",
            "fd00:ec2::/32",  # metadata and DNS: AWS
            "fd20:ce::254/128",  # metadata: Google
            "64:ff9b:1::/48",
            "2001::/32",
        ),
    )
)
# IPv6 networks whose addresses carry IPv4 addresses, and how many bits stand behind these: mapped,
# compatible, NAT64 and 6to4 (RFC 4291, RFC 6052, RFC 3056).
_EMBEDDED_IN = tuple(
    (ipaddress.IPv6Network(each), bits)
    for each, bits in (("::ffff:0:0/96", 0), ("::/96", 0), ("64:ff9b::/96", 0), ("2002::/16", 80))
)


def written(text: object) -> Address | None:
    """An address as it is written, or None."""
    if type(text) is not str:
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def parse(text: object) -> Address | None:
    """An address, the IPv4 address that an IPv6 one carries, or None."""
    found = written(text)
    if found is None or found.version == 4:
        return found
    embedded = _embedded(int(found), found.max_prefixlen)
    return found if embedded is None else embedded.network_address


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks, and addresses as networks of one, in their order; what is neither is left out.

    Of an IPv6 network that carries IPv4 addresses the network of these, as `parse` does. One that is wider
    than what carries them stays: it has other addresses.
    """
    found: list[Network] = []
    for text in texts:
        with contextlib.suppress(ValueError):
            network = ipaddress.ip_network(text, strict=False)
            embedded = None
            if network.version == 6:
                embedded = _embedded(int(network.network_address), network.prefixlen)
            found.append(network if embedded is None else embedded)
    return tuple(found)


def _embedded(first: int, prefix_length: int) -> ipaddress.IPv4Network | None:
    """The IPv4 addresses that an IPv6 network carries, given by its first address; None if it carries none.

    Within one embedded address all that is behind it counts as that address.
    """
    if first <= 1 and prefix_length >= 127:
        return None  # the unspecified address, and this host
    for outer, bits_behind in _EMBEDDED_IN:
        if prefix_length >= outer.prefixlen and ipaddress.IPv6Address(first) in outer:
            length = min(prefix_length - outer.prefixlen, 32)
            return ipaddress.IPv4Network((first >> bits_behind & 0xFFFFFFFF, length), strict=False)
    return None


class Ranges:
    """Networks, of which none is looked at for each address. They are sorted at the first question."""

    __slots__ = ("_found", "_networks")

    def __init__(self, networks: Iterable[Network]) -> None:
        self._networks = networks
        # By version the first addresses and the last ones, of ranges that do not overlap, in order.
        self._found: dict[int, tuple[list[int], list[int]]] | None = None

    def __contains__(self, address: Address) -> bool:
        if self._found is None:
            self._found = {}
            for network in sorted(self._networks, key=lambda each: int(each.network_address)):
                self._add(network, self._found.setdefault(network.version, ([], [])))
        first, last = self._found.get(address.version, ((), ()))
        at = bisect.bisect_right(first, int(address))
        return at > 0 and int(address) <= last[at - 1]

    @staticmethod
    def _add(network: Network, to: tuple[list[int], list[int]]) -> None:
        first, last = to
        # Two networks are apart, or one contains the other.
        if not last or int(network.network_address) > last[-1]:
            first.append(int(network.network_address))
            last.append(int(network.broadcast_address))
        else:
            last[-1] = max(last[-1], int(network.broadcast_address))


class CountedNetworks:
    """Networks that come and go, several times each. A question costs a look-up for each length of prefix."""

    __slots__ = ("_found",)

    def __init__(self, networks: Iterable[Network] = ()) -> None:
        # By version and length of prefix: how often each network is there, by its first address.
        self._found: dict[tuple[int, int], Counter[int]] = {}
        self.change((), networks)

    def change(self, before: Iterable[Network], after: Iterable[Network]) -> bool:
        """Take networks away and put others in; returns whether a question may have another answer now."""
        is_other = False
        for network in after:
            counts = self._found.setdefault((network.version, network.prefixlen), Counter())
            counts[int(network.network_address)] += 1
            is_other |= counts[int(network.network_address)] == 1
        for network in before:
            where, first = (network.version, network.prefixlen), int(network.network_address)
            self._found[where][first] -= 1
            if not self._found[where][first]:
                is_other = True
                del self._found[where][first]
                if not self._found[where]:
                    del self._found[where]
        return is_other

    def longest_prefix(self, address: Address) -> int | None:
        """The length of the narrowest network's prefix that has the address; None if none has it."""
        lengths = [
            length
            for (version, length), counts in self._found.items()
            if version == address.version and _first_address(address, length) in counts
        ]
        return max(lengths, default=None)


def _first_address(address: Address, prefix_length: int) -> int:
    host_bits = address.max_prefixlen - prefix_length
    return int(address) >> host_bits << host_bits


_NEVER_RANGES = Ranges(_NEVER)


def is_never_allowed(address: Address) -> bool:
    return address in _NEVER_RANGES
