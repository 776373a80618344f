# SPDX-License-Identifier: Apache-2.0
"""Addresses in the one form that packet filters print them in."""

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


def merged(ranges: Iterable[AddressRange]) -> tuple[AddressRange, ...]:
    """The same addresses of one family, sorted, in ranges that neither overlap nor touch."""
    found: list[AddressRange] = []
    for one in sorted(ranges, key=lambda one: (one.first, one.last)):
        if found and one.first <= found[-1].last + 1:
            found[-1] = AddressRange(one.family, found[-1].first, max(found[-1].last, one.last))
        else:
            found.append(one)
    return tuple(found)


def holds(ranges: Sequence[AddressRange], ip: str) -> bool:
    """Whether a canonical address lies in one of the ranges, which are `merged` and of its family.

    Each guest asks this of each Service that has ranges, which may be thousands.
    """
    number = int(ipaddress.ip_address(ip))
    at = bisect_right(ranges, number, key=lambda one: one.first)
    return at > 0 and number <= ranges[at - 1].last


def family_of(ip: str) -> Family:
    """The family of a canonical address or range."""
    return Family.IPV6 if ":" in ip else Family.IPV4


def canonical_ip(text: str) -> str | None:
    """The address as a packet filter prints it; None if it is none.

    Objects that were stored before Kubernetes 1.22 may have leading zeros, which are decimal there
    (k8s.io/utils/net ParseIPSloppy); a packet filter would read them as octal, or refuse a whole
    table because of one. An IPv4-mapped IPv6 address is the IPv4 one, as Go's net.IP has it.
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
    if 0xFFFF < int(ip) <= 0xFFFFFFFF:  # as inet_ntop(3) has it, and so iptables and nft
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
    """The range with its host bits cleared; None if it is none. Leading zeros as in an address."""
    network = _network(text)
    return None if network is None else str(network)


def parse_range(text: str) -> AddressRange | None:
    """A range to compare addresses with; None if it is none."""
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
        # A mapped IPv4 range counts its bits as IPv6: none in use has a meaning that one can tell.
        return None
    try:
        return ipaddress.ip_network(f"{ip}/{int(length)}", strict=False)
    except ValueError:
        return None
