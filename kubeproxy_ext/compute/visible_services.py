# SPDX-License-Identifier: Apache-2.0
"""The Services that guests of some networks see in one family, and who of them has which address."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from daemonkit.kube.resources import Key
from kubeproxy_ext.compute import rule_limit
from kubeproxy_ext.compute.address_conflicts import AddressConflict, count, find_conflicts
from kubeproxy_ext.compute.addresses import holds
from kubeproxy_ext.compute.parse import ServiceInfo
from ruleset.model import Family, ServiceRules


@dataclass(frozen=True, slots=True)
class VisibleServices:
    """`services` are sorted by the text `namespace/name`; `ranged` are those with source ranges.

    It is good until one of its Services comes, goes or changes its addresses or ports: endpoints do
    not matter.
    """

    services: tuple[Key, ...]
    ranged: tuple[ServiceInfo, ...]
    lost: Mapping[str, tuple[AddressConflict, ...]]
    oversized: frozenset[Key]
    """Services that are left out, as their addresses times ports are more than there is room for."""
    _trimmed: dict[str, tuple[ServiceRules, ServiceRules]] = field(default_factory=dict)

    def trim(self, rules: ServiceRules) -> ServiceRules:
        """The rules without the addresses that the Service has lost. The same value comes back for
        the same value, so that what hangs on it (a rendered fragment) stays good."""
        lost = self.lost.get(rules.service)
        if lost is None:
            return rules
        known = self._trimmed.get(rules.service)
        if known is not None and known[0] is rules:
            return known[1]
        addresses = {loss.address for loss in lost}
        kept = tuple(one for one in rules.frontends if (one.ip, one.port, one.protocol) not in addresses)
        trimmed = ServiceRules(rules.service, kept)
        self._trimmed[rules.service] = (rules, trimmed)
        return trimmed


def visible_services_of(services: Iterable[ServiceInfo], family: Family) -> VisibleServices:
    """A roster of those of the Services that have an address of the family."""
    candidates = [service for service in services if service.addresses(family) is not None]
    oversized = rule_limit.left_out({_key(service): count(service, family) for service in candidates})
    ours = sorted(
        (service for service in candidates if _key(service) not in oversized),
        key=lambda service: service.reference,
    )
    return VisibleServices(
        services=tuple(_key(service) for service in ours),
        ranged=tuple(service for service in ours if _is_ranged(service, family)),
        lost=find_conflicts(ours, family),
        oversized=oversized,
    )


def in_source_ranges(service: ServiceInfo, pod_ips: Iterable[str], family: Family) -> bool:
    """Whether a Service's load balancer addresses are for a guest with these addresses.

    With several addresses of the family every one has to be in a range: which one a packet bears is
    the guest's business. Without one none is.
    """
    addresses = service.addresses(family)
    if addresses is None or addresses.balancer_ranges is None:
        return True
    ranges = addresses.balancer_ranges
    ours = [ip for ip in pod_ips if (":" in ip) == (family is Family.IPV6)]
    return bool(ours) and all(holds(ranges, ip) for ip in ours)


def _key(service: ServiceInfo) -> Key:
    return service.namespace, service.name


def _is_ranged(service: ServiceInfo, family: Family) -> bool:
    addresses = service.addresses(family)
    return addresses is not None and bool(addresses.balancer) and addresses.balancer_ranges is not None
