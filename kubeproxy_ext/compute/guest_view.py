# SPDX-License-Identifier: Apache-2.0
"""Who asks for rules, and what the answer is shared by."""

from dataclasses import dataclass

from kubeproxy_ext.compute.addresses import canonical_cidr, canonical_ip
from ruleset.model import Endpoint, Family, GuestRules, Protocol
from tenancy.keys import DEFAULT_NETWORK

EVERY_NETWORK = ""
"""The network of a tenant's `default/kubernetes`, which all its guests need; no name is empty."""


@dataclass(frozen=True, slots=True)
class ServiceGroup:
    """The Services of one network of one tenant; tenant None is the super cluster itself."""

    tenant: str | None
    network: str


@dataclass(frozen=True, slots=True)
class GuestView:
    """What of a guest decides its rules.

    No `networks` means the default one, as for a pod or Service without the label: a pod is never
    in all networks. `zone` None is taken from the Node object, "" says that there is none. Addresses
    and ranges may be of both families; those of `family` count. Raises ValueError for one that is
    none.
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
            raise ValueError("a network without a name")
        object.__setattr__(self, "networks", networks)
        object.__setattr__(self, "pod_ips", tuple(sorted({_ip(ip) for ip in self.pod_ips})))
        cidrs = {_cidr(cidr) for cidr in self.service_cidrs}
        object.__setattr__(self, "service_cidrs", tuple(sorted(cidrs)))

    @property
    def groups(self) -> tuple[ServiceGroup, ...]:
        """The groups whose changes can change this guest's rules."""
        return groups_of(self.tenant, self.networks)


def groups_of(tenant: str | None, networks: tuple[str, ...]) -> tuple[ServiceGroup, ...]:
    """What a guest of some networks sees: these, and what is of every network."""
    return tuple(ServiceGroup(tenant, network) for network in (EVERY_NETWORK, *networks))


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Guests with equal keys have the same rules.

    `admitted` are the Services (`namespace/name`) whose load balancer source ranges let the guest in.
    """

    tenant: str | None
    networks: tuple[str, ...]
    node: str
    zone: str
    service_cidrs: tuple[str, ...]
    family: Family
    admitted: frozenset[str]


@dataclass(frozen=True, slots=True)
class ServingEndpoints:
    """Which endpoints of a UDP Service port may still answer: ready or not, all that serve.

    Traffic policies, hints and termination do not matter (kube-proxy ignores them on purpose): a
    flow that goes to an endpoint that serves is left alone.
    """

    service_port: str
    protocol: Protocol
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class GuestRulesResult:
    """What guests of one GroupKey get, and what is needed besides to repair their flows."""

    rules: GuestRules
    serving: tuple[ServingEndpoints, ...]


@dataclass(frozen=True, slots=True)
class ObjectProblem:
    """Something in a tenant's object that was left out. Names are the tenant's own."""

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
