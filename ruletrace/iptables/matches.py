# SPDX-License-Identifier: Apache-2.0
"""Whether a rule takes a packet, as far as the packet and the rule alone can tell.

Answers are a chance: 1.0 yes, 0.0 no, between for rules of chance; None where it cannot be known
(the port a program sends from, its user, an interface): both ways are possible then.
"""

import enum
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ruletrace.iptables.rule_text import Ask, Option, Rule
from ruletrace.packet import Packet

Chance = float | None

_PROTOCOL_NUMBERS = {"6": "tcp", "17": "udp", "132": "sctp"}


class Assumed(enum.Enum):
    """Why a rule was passed over that might take another packet of the same kind."""

    STATE = "it is for connections that exist already, and this packet opens one"
    AFFINITY = "it is for clients that affinity remembers, and none is taken to be remembered"


@dataclass(frozen=True, slots=True)
class Taken:
    """`chance` that the rule takes the packet; `assumed`: the only reason why it does not."""

    chance: Chance
    unknown: tuple[str, ...] = ()
    assumed: Assumed | None = None


def takes(rule: Rule, packet: Packet) -> Taken:
    chance, unknown, assumed = 1.0, list[str](), list[Assumed]()
    for ask in rule.asks:
        if ask.extension == "statistic":
            chance *= _share(ask)
            continue
        for option in ask.options:
            match _says(ask.extension, option, packet):
                case Assumed() as why:
                    assumed.append(why)
                case None:
                    unknown.append(str(option))
                case False:
                    return Taken(0.0)
    if assumed:
        return Taken(0.0, assumed=assumed[0])
    return Taken(None if unknown else chance, tuple(unknown))


def _says(extension: str, option: Option, packet: Packet) -> bool | Assumed | None:
    if extension == "recent":
        return _recent(option)
    test = _TESTS.get(option.name)
    said = test(option, packet) if test is not None else None
    if option.is_inverted and isinstance(said, bool):
        return not said
    if option.is_inverted and said is Assumed.STATE:
        return True
    return said


def _share(ask: Ask) -> float:
    """The weight of `-m statistic`; `nth` takes one packet of so many."""
    values = {option.name: option for option in ask.options}
    if "--probability" in values:
        share, option = float(values["--probability"].value), values["--probability"]
    elif "--every" in values:
        share, option = 1 / int(values["--every"].value), values["--every"]
    else:
        return 1.0
    return 1 - share if option.is_inverted else share


def _recent(option: Option) -> bool | Assumed:
    """Nobody is on a list before the first packet; putting a packet's source on one always succeeds."""
    if option.name in ("--rcheck", "--update", "--remove") and not option.is_inverted:
        return Assumed.AFFINITY
    return True


def _protocol(option: Option, packet: Packet) -> bool:
    asked = option.value.lower()
    return asked in ("all", "0") or _PROTOCOL_NUMBERS.get(asked, asked) == packet.protocol.value


def _is_in(address: str, ranges: str) -> bool | None:
    try:
        return any(
            ipaddress.ip_address(address) in ipaddress.ip_network(one, strict=False)
            for one in ranges.split(",")
        )
    except ValueError:  # a host name, which the kernel's own print never has
        return None


def _ports(ports: Sequence[str], packet: Packet) -> bool | None:
    for part in ports:
        first, colon, last = part.partition(":")
        if not (first or last).isdigit():
            return None
        low = int(first or 0)
        high = int(last or 65535) if colon else low
        if low <= packet.port <= high:
            return True
    return False


def _states(option: Option, packet: Packet) -> bool | Assumed:
    states = set(option.value.split(","))
    if "NEW" in states or ("DNAT" in states and packet.is_rewritten):
        return True
    return False if states <= {"DNAT", "SNAT"} else Assumed.STATE


def _kind(option: Option, packet: Packet) -> bool | None:
    """`addrtype --dst-type`: the source stands for all addresses that are the guest's own."""
    if option.value == "LOCAL":
        return packet.is_to_itself
    return None


def _interface(option: Option, packet: Packet) -> bool | None:
    """Packets to oneself leave by `lo` and no others do."""
    if option.value == "lo":
        return packet.is_to_itself
    return False if packet.is_to_itself and not option.value.endswith("+") else None


def _always(_: Option, __: Packet) -> bool:
    return True


_TESTS: dict[str, Callable[[Option, Packet], bool | Assumed | None]] = {
    "-s": lambda option, packet: _is_in(packet.source, option.value),
    "-d": lambda option, packet: _is_in(packet.destination, option.value),
    "-p": _protocol,
    "-o": _interface,
    "--dport": lambda option, packet: _ports([option.value], packet),
    "--dports": lambda option, packet: _ports(option.value.split(","), packet),
    "--ctstate": _states,
    "--state": _states,
    "--dst-type": _kind,
    "--comment": _always,
    # A packet that opens a TCP connection has SYN and none of ACK, RST, FIN.
    "--syn": _always,
}
