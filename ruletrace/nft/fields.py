# SPDX-License-Identifier: Apache-2.0
"""What nft's expressions are for a packet, and whether they match.

A value is an address, a number or a word. Where chance decides (`numgen random`) a value has
several alternatives; where nobody can know it from outside it is `UNKNOWN`.
"""

import enum
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from ruletrace.nft.rule_text import Element
from ruletrace.packet import Address, Packet


class Special(enum.Enum):
    """ABSENT: the packet has no such field, so that neither `==` nor `!=` matches."""

    UNKNOWN = "unknown"
    ABSENT = "absent"


UNKNOWN, ABSENT = Special.UNKNOWN, Special.ABSENT

Value = Address | int | str | Special
# One way that chance can take: its share, and the values of a concatenation then.
Alternative = tuple[float, tuple[Value, ...]]

_MAX_MODULUS = 4096
_MAX_WORDS = 4


@dataclass(frozen=True, slots=True)
class Read:
    """An expression that has been read: its alternatives, and how many words it took."""

    alternatives: tuple[Alternative, ...]
    words: int


def read_expression(words: Sequence[str], packet: Packet) -> Read | None:
    """The concatenation (`ip daddr . meta l4proto . th dport`) that `words` begin with, if any."""
    alternatives: tuple[Alternative, ...] = ((1.0, ()),)
    at = 0
    while True:
        one = _field(words[at:], packet)
        if one is None:
            return None
        alternatives = tuple(
            (share * more, (*values, *value))
            for share, values in alternatives
            for more, value in one.alternatives
        )
        at += one.words
        if tuple(words[at : at + 1]) != (".",):
            return Read(alternatives, at)
        at += 1


def _field(words: Sequence[str], packet: Packet) -> Read | None:
    match tuple(words[:_MAX_WORDS]):
        case ("numgen", _, "mod", modulus) if modulus.isdigit() and 0 < int(modulus) <= _MAX_MODULUS:
            count, taken = int(modulus), 4
            offset = 0
            if tuple(words[4:5]) == ("offset",):
                offset, taken = int(words[5]), 6
            return Read(tuple((1 / count, (offset + at,)) for at in range(count)), taken)
        case ("ip" | "ip6" as family, "daddr" | "saddr" as which, *_):
            address = packet.to if which == "daddr" else ipaddress.ip_address(packet.source)
            is_of_it = (address.version == 4) == (family == "ip")
            return _known(address if is_of_it else ABSENT, 2)
        case ("ip", "protocol", *_) | ("ip6", "nexthdr", *_) | ("meta", "l4proto", *_):
            return _known(packet.protocol.value, 2)
        case ("l4proto", *_):
            return _known(packet.protocol.value, 1)
        case ("th", "dport", *_):
            return _known(packet.port, 2)
        case ("tcp" | "udp" | "sctp" as protocol, "dport", *_):
            return _known(packet.port if protocol == packet.protocol.value else ABSENT, 2)
        case ("ct", "state", *_):
            return _known("new", 2)
        case ("ct", "status", *_):
            return _known("dnat" if packet.is_rewritten else "", 2)
        case ("meta", "nfproto", *_):
            return _known(packet.family.value, 2)
        case ("fib", "daddr", "type", *_):
            return _known("local" if packet.is_to_itself else "unicast", 3)
        case ("oifname" | "oif" as word, *_) | ("meta", "oifname" | "oif" as word, *_):
            return _known('"lo"' if packet.is_to_itself else UNKNOWN, 1 if words[0] == word else 2)
        case ("meta" | "ct" | "socket" | "th" | "tcp" | "udp" | "sctp" | "ip" | "ip6", _, *_):
            return _known(UNKNOWN, 2)
    return None


def _known(value: Value, words: int) -> Read:
    return Read(((1.0, (value,)),), words)


def fits(values: Sequence[Value], element: Element) -> bool | None:
    """Whether the values are those of a set's element or map's key; None: nobody can tell."""
    if len(values) != len(element.key):
        return False
    said = [_fits_one(value, pattern) for value, pattern in zip(values, element.key, strict=True)]
    if False in said:
        return False
    return None if None in said else True


def _fits_one(value: Value, pattern: str) -> bool | None:
    if pattern == "*":
        return True
    if isinstance(value, Special):
        return False if value is ABSENT else None
    if isinstance(value, str):
        return value.strip('"') == pattern.strip('"')
    first, dash, last = pattern.partition("-")
    if isinstance(value, int):
        if not first.isdigit():
            return False
        return int(first) <= value <= int(last) if dash else value == int(first)
    try:
        if dash:
            low, high = ipaddress.ip_address(first), ipaddress.ip_address(last)
            return low.version == value.version and int(low) <= int(value) <= int(high)
        return value in ipaddress.ip_network(pattern, strict=False)
    except ValueError:
        return False
