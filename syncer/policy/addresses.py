# SPDX-License-Identifier: Apache-2.0
"""Which addresses lead nowhere a tenant may send others. Pure."""

import bisect
import ipaddress
from collections.abc import Iterable

from syncer.policy.sync_policy import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# This host, its links, and what clouds answer their machines' metadata on. Nobody's Service is there.
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
# An IPv4 address is in the last 32 bits, or for 6to4 behind the first 16.
_MAPPED = tuple(ipaddress.IPv6Network(each) for each in ("::ffff:0:0/96", "::/96", "64:ff9b::/96"))
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")


def parse(text: object) -> Address | None:
    """An address, the IPv4 address that an IPv6 one carries, or None."""
    if type(text) is not str:
        return None
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    if found.version == 6:
        value = int(found)
        if found in _SIX_TO_FOUR:
            return ipaddress.IPv4Address(value >> 80 & 0xFFFFFFFF)
        if value > 1 and any(found in each for each in _MAPPED):
            return ipaddress.IPv4Address(value & 0xFFFFFFFF)
    return found


# First and last numbers of the ranges by version, in order: a plan looks up to a thousand addresses up.
_NEVER_RANGES = {
    version: sorted(
        (int(each.network_address), int(each.broadcast_address)) for each in _NEVER if each.version == version
    )
    for version in (4, 6)
}


def is_never_allowed(address: Address) -> bool:
    ranges = _NEVER_RANGES[address.version]
    at = bisect.bisect_right(ranges, int(address), key=lambda each: each[0])
    return at > 0 and int(address) <= ranges[at - 1][1]


def is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in each for each in networks)
