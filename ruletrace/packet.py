# SPDX-License-Identifier: Apache-2.0
"""The first packet of a flow out of a guest, and what becomes of it.

Whoever answers for a packet (the model, a tracer of some packet filter's text) answers with a
`Trace`, so that answers can be compared and shown alike.
"""

import enum
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ruleset.model import Endpoint, Family, Protocol

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class PacketVerdict(enum.Enum):
    """An end of a packet that is not an endpoint.

    PASS: it leaves for the destination it came with. UNKNOWN: a rule took it that cannot be
    followed, as one that hands it to a program.
    """

    REJECT = "reject"
    DROP = "drop"
    PASS = "pass"  # noqa: S105 - a fate, not a secret
    UNKNOWN = "unknown"


Outcome = Endpoint | PacketVerdict


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet that opens a flow: no connection is known to the guest's kernel, no affinity.

    `is_rewritten`: its destination is not the one that it came with.
    """

    source: str
    protocol: Protocol
    destination: str
    port: int
    is_rewritten: bool = False

    def __post_init__(self) -> None:
        if self.to.version != ipaddress.ip_address(self.source).version:
            raise ValueError(f"{self.source} and {self.destination} are not of one family")
        if not 0 < self.port < 65536:
            raise ValueError(f"{self.port} is not a port")

    def __str__(self) -> str:
        return f"{self.protocol.value} {self.source} -> {Endpoint(self.destination, self.port)}"

    @property
    def to(self) -> Address:
        return ipaddress.ip_address(self.destination)

    @property
    def family(self) -> Family:
        return Family.IPV4 if self.to.version == 4 else Family.IPV6

    @property
    def is_to_itself(self) -> bool:
        """Whether the destination is the guest's own. The source stands for its addresses."""
        return self.to.is_loopback or self.to == ipaddress.ip_address(self.source)

    def rewritten(self, endpoint: Endpoint) -> "Packet":
        return Packet(self.source, self.protocol, endpoint.ip, endpoint.port, is_rewritten=True)


@dataclass(frozen=True, slots=True)
class Trace:
    """Every outcome a packet can have, and why.

    `chances` has the share of each outcome, between 0 and 1; it is empty where a rule was met of
    which cannot be known whether it takes the packet. `steps` are sentences for a person, in the
    packet's order.
    """

    outcomes: frozenset[Outcome]
    steps: tuple[str, ...]
    chances: Mapping[Outcome, float] = field(default_factory=dict)

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints among the outcomes, sorted by their text."""
        return tuple(sorted((o for o in self.outcomes if isinstance(o, Endpoint)), key=str))

    @property
    def verdict(self) -> str:
        """`10.0.0.3:80, 10.0.0.4:80`, `reject`, ... in a fixed order; alternatives with commas."""
        return format_outcomes(self.outcomes)


def format_outcomes(outcomes: Iterable[Outcome]) -> str:
    """Endpoints sorted by text, then fates, joined with commas."""
    known = frozenset(outcomes)
    endpoints = sorted(str(outcome) for outcome in known if isinstance(outcome, Endpoint))
    return ", ".join([*endpoints, *(fate.value for fate in PacketVerdict if fate in known)])
