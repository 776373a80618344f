# SPDX-License-Identifier: Apache-2.0
"""Which Service gets an address that two Services of one guest claim.

The better claim wins, then the older Service, then the name that sorts first:

1. the super cluster's cluster IP, which one Service has;
2. the tenant's own cluster IP, unique in the tenant. Where the service ranges of tenant and super cluster
   overlap it may be another Service's super cluster IP. That one wins, as VirtualCluster puts it into the
   environment and host aliases of pods;
3. external and load balancer addresses. Authors of Services choose them freely, and must not be able to
   take a cluster IP.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kubeproxy_ext.compute.parse import ServiceInfo
from ruleset.model import Family, Protocol

FrontendAddress = tuple[str, int, Protocol]
"""ip, port, protocol."""


@dataclass(frozen=True, slots=True)
class AddressConflict:
    """An address that a Service does not get, as the Service `winner` (`namespace/name`) has it."""

    address: FrontendAddress
    winner: str


def find_conflicts(
    services: Iterable[ServiceInfo], family: Family
) -> Mapping[str, tuple[AddressConflict, ...]]:
    """The conflicts that each Service loses, by `namespace/name`."""
    best_claims: dict[FrontendAddress, tuple[int, str, str]] = {}
    claimants_of: dict[FrontendAddress, set[str]] = {}
    for service in services:
        for rank, address in _claims(service, family):
            claim = (rank, service.created, service.reference)
            best = best_claims.setdefault(address, claim)
            if best[2] != service.reference:
                claimants_of.setdefault(address, {best[2]}).add(service.reference)
            if claim < best:
                best_claims[address] = claim
    found: dict[str, list[AddressConflict]] = {}
    for address, claimants in claimants_of.items():
        winner = best_claims[address][2]
        for loser in claimants - {winner}:
            found.setdefault(loser, []).append(AddressConflict(address, winner))
    return {loser: tuple(sorted(conflicts, key=_order)) for loser, conflicts in found.items()}


def claim_count(service: ServiceInfo, family: Family) -> int:
    """The most addresses (ip, port, protocol) that a Service claims."""
    addresses = service.addresses(family)
    if addresses is None:
        return 0
    ips = 1 + len(addresses.tenant_cluster_ips) + len(addresses.external) + len(addresses.load_balancer)
    return ips * len(service.ports)


def _claims(service: ServiceInfo, family: Family) -> Iterator[tuple[int, FrontendAddress]]:
    addresses = service.addresses(family)
    if addresses is None:
        return
    ranked = (
        (addresses.cluster,),
        addresses.tenant_cluster_ips,
        (*addresses.external, *addresses.load_balancer),
    )
    for rank, ips in enumerate(ranked):
        for ip in ips:
            for port in service.ports:
                yield rank, (ip, port.port, port.protocol)


def _order(conflict: AddressConflict) -> tuple[str, int, str]:
    ip, port, protocol = conflict.address
    return ip, port, protocol.value
