# SPDX-License-Identifier: Apache-2.0
"""What the rules of one Service are in a guest.

A guest is where its packets start, so all that depends on the source is decided here: a pod is
local, so that external addresses lead to all endpoints whatever the external traffic policy says;
load balancer source ranges either hold the pod or not; there are no node ports and no masquerade.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kubeproxy_ext.compute.endpoints import Candidate, CategorizedEndpoints, categorize, join, serving
from kubeproxy_ext.compute.guest_view import ServingEndpoints
from kubeproxy_ext.compute.parse import Addresses, PortInfo, ServiceInfo, SliceInfo
from ruleset.model import EndpointSet, Family, Frontend, NoBackendAction, Protocol, ServiceRules


@dataclass(frozen=True, slots=True)
class GuestLocation:
    """From where a Service is looked at. `zone` "" is none."""

    node: str
    zone: str
    family: Family


@dataclass(frozen=True, slots=True)
class CompiledService:
    """A Service's rules, and its UDP ports' serving endpoints."""

    rules: ServiceRules
    serving: tuple[ServingEndpoints, ...]


def compile_service(
    service: ServiceInfo, slices: Collection[SliceInfo], place: GuestLocation, *, is_admitted: bool
) -> CompiledService:
    """The rules of a Service seen from a place; without captures if it has no address of that family.

    `is_admitted`: the load balancer source ranges hold the guest, or there are none.
    """
    addresses = service.addresses(place.family)
    if addresses is None:
        return CompiledService(ServiceRules(service.reference, ()), ())
    joined = join(service.ports, slices, place.family, place.node)
    uses_cluster = not service.is_internal_local or bool(addresses.external or addresses.balancer)
    frontends: dict[tuple[str, int, Protocol], Frontend] = {}
    servings: dict[tuple[str, Protocol], ServingEndpoints] = {}
    for port in service.ports:
        candidates: tuple[Candidate, ...] = joined.get((port.name, port.protocol), ())
        choice = categorize(
            candidates,
            place.node,
            place.zone,
            uses_cluster=uses_cluster,
            uses_local=service.is_internal_local,
        )
        for frontend in _captures(service, port, addresses, choice, is_admitted=is_admitted):
            # Two kinds of address can be the same one; as in kube-proxy the first kind has it.
            frontends.setdefault((frontend.ip, frontend.port, frontend.protocol), frontend)
        if port.protocol is Protocol.UDP:
            text = service_port_text(service, port)
            servings[text, port.protocol] = ServingEndpoints(text, port.protocol, serving(candidates))
    rules = ServiceRules(service.reference, tuple(frontends.values()))
    return CompiledService(rules, tuple(servings.values()))


def service_port_text(service: ServiceInfo, port: PortInfo) -> str:
    """`namespace/name:port`; an unnamed port has no colon either."""
    return f"{service.reference}:{port.name}" if port.name else service.reference


def _captures(
    service: ServiceInfo,
    port: PortInfo,
    addresses: Addresses,
    choice: CategorizedEndpoints,
    *,
    is_admitted: bool,
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
    # Nothing usable anywhere is told even to whom the ranges keep out, as kube-proxy does.
    balancer = external if is_admitted or not choice.has_any else NoBackendAction.DROP
    for ips, to in (
        ((addresses.cluster, *addresses.tenants), internal),
        (addresses.external, external),
        (addresses.balancer, balancer),
    ):
        for ip in ips:
            yield Frontend(ip, port.port, port.protocol, text, to)


def _refusal(choice: CategorizedEndpoints) -> NoBackendAction:
    """There are endpoints, and none under this policy: silence. There are none at all: an answer."""
    return NoBackendAction.DROP if choice.has_any else NoBackendAction.REJECT
