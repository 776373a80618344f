# SPDX-License-Identifier: Apache-2.0
"""Which rules a guest needs, and which guests share them."""

from dataclasses import dataclass

from kubeproxy_ext.compute.addresses import canonical_cidr, canonical_ip
from ruleset.model import Endpoint, Family, GuestRules, Protocol
from tenancy.keys import DEFAULT_NETWORK

EVERY_NETWORK = ""
"""The network of a tenant's `default/kubernetes`, which all its guests see. No network has an empty name."""


@dataclass(frozen=True, slots=True)
class ServiceGroup:
    """The Services of one network of one tenant; tenant None is the super cluster itself."""

    tenant: str | None
    network: str


@dataclass(frozen=True, slots=True)
class GuestView:
    """The part of a guest that decides its rules.

    No `networks` means the default one, as for a pod or Service without the label: a pod is never in
    all networks. `zone` None is taken from the Node object; "" means none. Addresses and CIDRs may be of
    both families, and those of `family` count. Raises ValueError for a malformed one.
    """

    tenant: str | None
    networks: tuple[str, ...]
    pod_ips: tuple[str, ...]
    node: str
    zone: str | None
    service_cidrs: tuple[str, ...]
    family: Family

    def __post_init__(self) -> None:
        networks = tuple(sorted(set(self.networks))) or (DEFAULT_NETWORK,)
        if EVERY_NETWORK in networks:
            raise ValueError("a network has an empty name")
        object.__setattr__(self, "networks", networks)
        object.__setattr__(self, "pod_ips", tuple(sorted({_ip(ip) for ip in self.pod_ips})))
        cidrs = {_cidr(cidr) for cidr in self.service_cidrs}
        object.__setattr__(self, "service_cidrs", tuple(sorted(cidrs)))

    @property
    def groups(self) -> tuple[ServiceGroup, ...]:
        """The groups whose changes can change this guest's rules."""
        return groups_of(self.tenant, self.networks)


def groups_of(tenant: str | None, networks: tuple[str, ...]) -> tuple[ServiceGroup, ...]:
    """The groups that a guest of these networks sees: theirs, and the one of every network."""
    return tuple(ServiceGroup(tenant, network) for network in (EVERY_NETWORK, *networks))


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Guests with equal keys have the same rules.

    `source_range_matches` are the Services (`namespace/name`) whose load balancer source ranges contain
    the guest.
    """

    tenant: str | None
    networks: tuple[str, ...]
    node: str
    zone: str
    service_cidrs: tuple[str, ...]
    family: Family
    source_range_matches: frozenset[str]


@dataclass(frozen=True, slots=True)
class ServingEndpoints:
    """The serving endpoints of a UDP Service port, ready or not.

    Traffic policies, hints and termination do not matter, as in kube-proxy: a flow to a serving endpoint
    is kept.
    """

    service_port: str
    protocol: Protocol
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class GuestRulesResult:
    """What guests of one `GroupKey` get: their rules, and the endpoints that stale flows are judged by."""

    rules: GuestRules
    serving: tuple[ServingEndpoints, ...]


@dataclass(frozen=True, slots=True)
class ObjectProblem:
    """A part of a tenant's object that has no rules. Names are the tenant's own.

    A too large EndpointSlice has its own name as `service`: which Service it belongs to is not decoded.
    """

    tenant: str | None
    namespace: str
    service: str
    text: str


def _ip(text: str) -> str:
    ip = canonical_ip(text)
    if ip is None:
        raise ValueError(f"not an IP address: {text!r}")
    return ip


def _cidr(text: str) -> str:
    cidr = canonical_cidr(text)
    if cidr is None:
        raise ValueError(f"not an address range: {text!r}")
    return cidr
