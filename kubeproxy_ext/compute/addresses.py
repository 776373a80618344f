# SPDX-License-Identifier: Apache-2.0
"""Addresses in the form that packet filters print."""

import ipaddress
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ruleset.model import Family


@dataclass(frozen=True, slots=True)
class AddressRange:
    """An address range; `first` and `last` are the addresses as numbers."""

    family: Family
    first: int
    last: int


def merge_ranges(ranges: Iterable[AddressRange]) -> tuple[AddressRange, ...]:
    """The same addresses of one family in sorted ranges that neither overlap nor touch."""
    found: list[AddressRange] = []
    for one in sorted(ranges, key=lambda one: (one.first, one.last)):
        if found and one.first <= found[-1].last + 1:
            found[-1] = AddressRange(one.family, found[-1].first, max(found[-1].last, one.last))
        else:
            found.append(one)
    return tuple(found)


def contains(ranges: Sequence[AddressRange], ip: str) -> bool:
    """Whether a canonical address is in one of the ranges, which are merged and of its family.

    This is called for each guest and each Service with ranges; there may be thousands.
    """
    number = int(ipaddress.ip_address(ip))
    at = bisect_right(ranges, number, key=lambda one: one.first)
    return at > 0 and number <= ranges[at - 1].last


def family_of(ip: str) -> Family:
    """The family of a canonical address or range."""
    return Family.IPV6 if ":" in ip else Family.IPV4


def canonical_ip(text: str) -> str | None:
    """The address as a packet filter prints it; None for text that is not an address.

    Objects stored before Kubernetes 1.22 may have leading zeros, which Kubernetes reads as decimal
    (k8s.io/utils/net ParseIPSloppy). A packet filter would read octal, or refuse the whole table. An
    IPv4-mapped IPv6 address is the IPv4 one, as in Go's net.IP.
    """
    if ":" not in text:
        return _canonical_ipv4(text)
    if "%" in text:
        return None
    try:
        ip = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    if 0xFFFF < int(ip) <= 0xFFFFFFFF:  # as inet_ntop(3), iptables and nft print it
        return f"::{ipaddress.IPv4Address(int(ip))}"
    return str(ip)


def _canonical_ipv4(text: str) -> str | None:
    parts = text.split(".")
    if len(parts) != 4:
        return None
    numbers = []
    for part in parts:
        if not (part.isascii() and part.isdigit()) or len(part) > 16:
            return None
        number = int(part)
        if number > 255:
            return None
        numbers.append(str(number))
    return ".".join(numbers)


def canonical_cidr(text: str) -> str | None:
    """The CIDR with its host bits cleared; None if the text is none. Leading zeros are as in an address."""
    network = _network(text)
    return None if network is None else str(network)


def parse_range(text: str) -> AddressRange | None:
    """The range of a CIDR; None if the text is none."""
    network = _network(text)
    if network is None:
        return None
    family = Family.IPV4 if network.version == 4 else Family.IPV6
    return AddressRange(family, int(network.network_address), int(network.broadcast_address))


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    address, slash, length = text.partition("/")
    ip = canonical_ip(address)
    if ip is None or not slash or not (length.isascii() and length.isdigit()) or len(length) > 3:
        return None
    if (":" in address) != (":" in ip):
        # The prefix length of a mapped IPv4 range counts IPv6 bits, which has no clear meaning here.
        return None
    try:
        return ipaddress.ip_network(f"{ip}/{int(length)}", strict=False)
    except ValueError:
        return None
