# SPDX-License-Identifier: Apache-2.0
"""Who has an address that two Services of one guest claim.

It goes to the better claim, then to the older Service, then to the name that sorts first:

1. the super cluster's cluster IP, as that cluster gave it to one Service only;
2. the tenant's own cluster IP, unique among the tenant's. It can be another Service's address in the
   super cluster where the two service ranges overlap. Each way one of the two loses an address; the
   one of rank 1 is in the variables and host aliases that VirtualCluster puts into pods;
3. external and load balancer addresses, which a Service's author chooses freely and must not be able
   to take a cluster IP with.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kubeproxy_ext.compute.parse import ServiceInfo
from ruleset.model import Family, Protocol

Address = tuple[str, int, Protocol]
"""ip, port, protocol."""


@dataclass(frozen=True, slots=True)
class AddressConflict:
    """An address that a Service (`namespace/name`) does not get, as another one has it."""

    address: Address
    winner: str


def find_conflicts(
    services: Iterable[ServiceInfo], family: Family
) -> Mapping[str, tuple[AddressConflict, ...]]:
    """What each Service loses, by `namespace/name`; those that lose nothing are not in it."""
    services_with_address: dict[Address, tuple[int, str, str]] = {}
    contested: dict[Address, set[str]] = {}
    for service in services:
        for rank, address in _claims(service, family):
            claim = (rank, service.created, service.reference)
            held = services_with_address.setdefault(address, claim)
            if held[2] != service.reference:
                contested.setdefault(address, {held[2]}).add(service.reference)
            if claim < held:
                services_with_address[address] = claim
    found: dict[str, list[AddressConflict]] = {}
    for address, claimants in contested.items():
        winner = services_with_address[address][2]
        for loser in claimants - {winner}:
            found.setdefault(loser, []).append(AddressConflict(address, winner))
    return {loser: tuple(sorted(lost, key=_order)) for loser, lost in found.items()}


def count(service: ServiceInfo, family: Family) -> int:
    """How many addresses (ip, port, protocol) a Service claims at most."""
    addresses = service.addresses(family)
    if addresses is None:
        return 0
    ips = 1 + len(addresses.tenants) + len(addresses.external) + len(addresses.balancer)
    return ips * len(service.ports)


def _claims(service: ServiceInfo, family: Family) -> Iterator[tuple[int, Address]]:
    addresses = service.addresses(family)
    if addresses is None:
        return
    ranked = ((addresses.cluster,), addresses.tenants, (*addresses.external, *addresses.balancer))
    for rank, ips in enumerate(ranked):
        for ip in ips:
            for port in service.ports:
                yield rank, (ip, port.port, port.protocol)


def _order(loss: AddressConflict) -> tuple[str, int, str]:
    ip, port, protocol = loss.address
    return ip, port, protocol.value
