# SPDX-License-Identifier: Apache-2.0
"""The first packet of a flow out of a guest, and what becomes of it.

The model and the tracers of both packet filters answer with a `Trace`, so that answers compare.
"""

import enum
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ruleset.model import Endpoint, Family, Protocol

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class PacketVerdict(enum.Enum):
    """How a packet ends that reaches no endpoint.

    PASS: it leaves for its original destination. UNKNOWN: a rule applies, or may apply, that the
    tracer does not understand.
    """

    REJECT = "reject"
    DROP = "drop"
    PASS = "pass"  # noqa: S105 - a verdict, not a secret
    UNKNOWN = "unknown"


Outcome = Endpoint | PacketVerdict


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet that opens a flow: the guest's conntrack and its affinity lists have no entry for it.

    `is_translated`: nat has replaced its destination.
    """

    source: str
    protocol: Protocol
    destination: str
    port: int
    is_translated: bool = False

    def __post_init__(self) -> None:
        if self.address.version != ipaddress.ip_address(self.source).version:
            raise ValueError(f"{self.source} and {self.destination} are not of one family")
        if not 0 < self.port < 65536:
            raise ValueError(f"{self.port} is not a port")

    def __str__(self) -> str:
        return f"{self.protocol.value} {self.source} -> {self.endpoint}"

    @property
    def address(self) -> Address:
        """The destination."""
        return ipaddress.ip_address(self.destination)

    @property
    def endpoint(self) -> Endpoint:
        """The destination with its port."""
        return Endpoint(self.destination, self.port)

    @property
    def family(self) -> Family:
        return Family.IPV4 if self.address.version == 4 else Family.IPV6

    def translated(self, endpoint: Endpoint) -> "Packet":
        return Packet(self.source, self.protocol, endpoint.ip, endpoint.port, is_translated=True)


@dataclass(frozen=True, slots=True)
class Trace:
    """The share (above 0, at most 1) of packets that each possible outcome gets, and why.

    `steps` are sentences for people, in the packet's order.
    """

    chances: Mapping[Outcome, float]
    steps: tuple[str, ...]

    @property
    def outcomes(self) -> frozenset[Outcome]:
        return frozenset(self.chances)

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints among the outcomes, sorted by their text."""
        return tuple(sorted((o for o in self.chances if isinstance(o, Endpoint)), key=str))

    @property
    def verdicts(self) -> tuple[PacketVerdict, ...]:
        """The verdicts among the outcomes, in the order of their definition."""
        return tuple(verdict for verdict in PacketVerdict if verdict in self.chances)

    @property
    def summary(self) -> str:
        """`10.0.0.3:80, 10.0.0.4:80`, `reject`, ...: see `format_outcomes`."""
        return format_outcomes(self.chances)


def format_outcomes(outcomes: Iterable[Outcome]) -> str:
    """Endpoints sorted by text, then verdicts, joined with commas."""
    known = frozenset(outcomes)
    endpoints = sorted(str(outcome) for outcome in known if isinstance(outcome, Endpoint))
    return ", ".join([*endpoints, *(verdict.value for verdict in PacketVerdict if verdict in known)])
