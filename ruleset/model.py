# SPDX-License-Identifier: Apache-2.0
"""A guest's rules, independent of any packet filter.

Both renderers, the tracers' expectations and `vcnode explain` start from these values. A model is for
one address family and for the guests of one (tenant, networks, node). The guest itself sends all
packets, so kubeproxy-ext decides source ranges, hairpin and "local pod" before it builds a model.
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
    """What happens to a packet to a frontend without a usable endpoint.

    REJECT: the sender fails at once. DROP: the sender times out, as with an internal traffic policy
    Local without a local endpoint, or a load balancer address whose source ranges exclude the guest.
    """

    REJECT = "reject"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An `ip` (canonical text) and `port` that packets are translated to."""

    ip: str
    port: int

    def __str__(self) -> str:
        """`ip:port`, IPv6 in brackets: the text for sorting, hashing and printing."""
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


@dataclass(frozen=True, slots=True)
class EndpointSet:
    """The endpoints of one Service port under one traffic policy.

    `service_port` is `namespace/name:port` in the super cluster's names; an unnamed port has no colon.
    `is_local`: the set for internal policy Local; a Service port can have that and the set for Cluster.
    `endpoints` are sorted by text and never empty. `affinity_s` is the timeout of ClientIP affinity.
    """

    service_port: str
    protocol: Protocol
    is_local: bool
    endpoints: tuple[Endpoint, ...]
    affinity_s: int | None = None


@dataclass(frozen=True, slots=True)
class Frontend:
    """A destination of a Service port (VIP:port), and where packets to it go."""

    ip: str
    port: int
    protocol: Protocol
    service_port: str
    to: EndpointSet | NoBackendAction


@dataclass(frozen=True, slots=True)
class ServiceRules:
    """The frontends of one Service in a fixed order; a renderer makes one fragment of them."""

    service: str
    frontends: tuple[Frontend, ...]


@dataclass(frozen=True, slots=True)
class GuestRules:
    """One guest's rules for one family.

    `services` are sorted by name; no two frontends have the same (ip, port, protocol).
    `service_cidrs` are ranges where other destinations than frontends are rejected; may be empty.
    """

    family: Family
    services: tuple[ServiceRules, ...]
    service_cidrs: tuple[str, ...] = ()

    def frontends(self) -> Iterator[Frontend]:
        for service in self.services:
            yield from service.frontends
