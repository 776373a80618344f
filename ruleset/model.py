# SPDX-License-Identifier: Apache-2.0
"""What a guest's rules say, free of any packet filter's language.

Both renderers, both tracers' expectations and `vcnode explain` start from these values. A model is
for one address family, and for guests of one (tenant, networks, node): the source of all packets
is the guest itself, so source ranges, hairpin and "local pod" are decided before it is built.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass


class Family(enum.Enum):
    IPV4 = "ipv4"
    IPV6 = "ipv6"


class Protocol(enum.Enum):
    """The protocols of a Service port; values as packet filters spell them."""

    TCP = "tcp"
    UDP = "udp"
    SCTP = "sctp"


class NoBackendAction(enum.Enum):
    """What a captured address does to a packet that may go to no endpoint.

    REJECT: the sender is told at once. DROP: it is not, as with an internal traffic policy Local
    that has no local endpoint, or a load balancer address whose source ranges exclude the guest.
    """

    REJECT = "reject"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One `ip` (canonical text) and `port` that packets are rewritten to."""

    ip: str
    port: int

    def __str__(self) -> str:
        """`ip:port`, IPv6 in brackets: the text that is sorted, hashed and shown."""
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


@dataclass(frozen=True, slots=True)
class EndpointSet:
    """The endpoints behind one Service port, seen under one traffic policy.

    `service_port` is `namespace/name:port` (no colon for an unnamed port), in the super cluster's
    names. `is_local` tells the set for internal policy Local from that for Cluster; a Service port
    can have both. `endpoints` are sorted by their text and never empty. `affinity_s` is the
    ClientIP affinity's timeout, None without one.
    """

    service_port: str
    protocol: Protocol
    is_local: bool
    endpoints: tuple[Endpoint, ...]
    affinity_s: int | None = None


@dataclass(frozen=True, slots=True)
class Frontend:
    """One destination that belongs to a Service port, and what becomes of packets to it."""

    ip: str
    port: int
    protocol: Protocol
    service_port: str
    to: EndpointSet | NoBackendAction


@dataclass(frozen=True, slots=True)
class ServiceRules:
    """The captures of one Service, in a fixed order: what a renderer makes one fragment of."""

    service: str
    frontends: tuple[Frontend, ...]


@dataclass(frozen=True, slots=True)
class GuestRules:
    """All that one guest's ruleset says for one family.

    `services` are sorted by name; no two captures have the same (ip, port, protocol).
    `service_cidrs` are the ranges where whatever no Service captures is rejected; may be empty.
    """

    family: Family
    services: tuple[ServiceRules, ...]
    service_cidrs: tuple[str, ...] = ()

    def frontends(self) -> Iterator[Frontend]:
        for service in self.services:
            yield from service.frontends
