# SPDX-License-Identifier: Apache-2.0
"""The rules of one Service in a guest.

All packets start in the guest, so what depends on their source is decided here. The guest is a pod:
external addresses lead to all endpoints, whatever the external traffic policy. It is in the load balancer
source ranges or not. Guests have neither node ports nor masquerade rules.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kubeproxy_ext.compute.endpoints import Candidate, CategorizedEndpoints, categorize, join, serving
from kubeproxy_ext.compute.guest_view import ServingEndpoints
from kubeproxy_ext.compute.parse import Addresses, PortInfo, ServiceInfo, SliceInfo
from ruleset.model import EndpointSet, Family, Frontend, NoBackendAction, Protocol, ServiceRules


@dataclass(frozen=True, slots=True)
class GuestLocation:
    """Where the guest is, and the family of its rules. `zone` "" means none."""

    node: str
    zone: str
    family: Family


@dataclass(frozen=True, slots=True)
class CompiledService:
    """A Service's rules, and the serving endpoints of its UDP ports."""

    rules: ServiceRules
    serving: tuple[ServingEndpoints, ...]


def compile_service(
    service: ServiceInfo, slices: Collection[SliceInfo], location: GuestLocation, *, is_in_source_ranges: bool
) -> CompiledService:
    """The rules of a Service for a location; without frontends if it has no address of that family.

    `is_in_source_ranges`: the load balancer source ranges contain the guest, or there are none.
    """
    addresses = service.addresses(location.family)
    if addresses is None:
        return CompiledService(ServiceRules(service.reference, ()), ())
    joined = join(service.ports, slices, location.family, location.node)
    needs_cluster = not service.is_internal_local or bool(addresses.external or addresses.load_balancer)
    frontends: dict[tuple[str, int, Protocol], Frontend] = {}
    servings: dict[tuple[str, Protocol], ServingEndpoints] = {}
    for port in service.ports:
        candidates: tuple[Candidate, ...] = joined.get((port.name, port.protocol), ())
        choice = categorize(
            candidates,
            location.node,
            location.zone,
            needs_cluster=needs_cluster,
            needs_local=service.is_internal_local,
        )
        for frontend in _frontends(service, port, addresses, choice, is_in_source_ranges=is_in_source_ranges):
            # One address may be of two kinds; as in kube-proxy the first kind wins.
            frontends.setdefault((frontend.ip, frontend.port, frontend.protocol), frontend)
        if port.protocol is Protocol.UDP:
            text = service_port_text(service, port)
            servings[text, port.protocol] = ServingEndpoints(text, port.protocol, serving(candidates))
    rules = ServiceRules(service.reference, tuple(frontends.values()))
    return CompiledService(rules, tuple(servings.values()))


def service_port_text(service: ServiceInfo, port: PortInfo) -> str:
    """`namespace/name:port`, without the colon for an unnamed port."""
    return f"{service.reference}:{port.name}" if port.name else service.reference


def _frontends(
    service: ServiceInfo,
    port: PortInfo,
    addresses: Addresses,
    choice: CategorizedEndpoints,
    *,
    is_in_source_ranges: bool,
) -> Iterator[Frontend]:
    text = service_port_text(service, port)
    cluster = local = None
    if choice.cluster:
        cluster = EndpointSet(text, port.protocol, False, choice.cluster, service.affinity_s)
    if choice.local:
        local = EndpointSet(text, port.protocol, True, choice.local, service.affinity_s)
    internal: EndpointSet | NoBackendAction = (local if service.is_internal_local else cluster) or _refusal(
        choice
    )
    external: EndpointSet | NoBackendAction = cluster or _refusal(choice)
    # Without any usable endpoint even guests outside the ranges get a REJECT, as from kube-proxy.
    balancer = external if is_in_source_ranges or not choice.has_any else NoBackendAction.DROP
    for ips, to in (
        ((addresses.cluster, *addresses.tenant_cluster_ips), internal),
        (addresses.external, external),
        (addresses.load_balancer, balancer),
    ):
        for ip in ips:
            yield Frontend(ip, port.port, port.protocol, text, to)


def _refusal(choice: CategorizedEndpoints) -> NoBackendAction:
    """DROP if there are endpoints, but none under this policy; REJECT if there are none at all."""
    return NoBackendAction.DROP if choice.has_any else NoBackendAction.REJECT
