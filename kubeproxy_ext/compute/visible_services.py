# SPDX-License-Identifier: Apache-2.0
"""The Services that guests of certain networks see in one family, and their address conflicts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from daemonkit.kube.resources import Key
from kubeproxy_ext.compute import rule_limit
from kubeproxy_ext.compute.address_conflicts import AddressConflict, claim_count, find_conflicts
from kubeproxy_ext.compute.addresses import contains
from kubeproxy_ext.compute.parse import ServiceInfo
from ruleset.model import Family, ServiceRules


@dataclass(frozen=True, slots=True)
class VisibleServices:
    """`services` are sorted by `namespace/name`; `conflicts` are the addresses that they lose.

    It is valid until a Service joins, leaves, or changes its addresses or ports. Endpoints do not matter.
    """

    services: tuple[Key, ...]
    with_source_ranges: tuple[ServiceInfo, ...]
    conflicts: Mapping[str, tuple[AddressConflict, ...]]
    beyond_limit: frozenset[Key]
    """Services that are left out, as their addresses times ports exceed the rule limit."""
    _without_conflicts: dict[str, tuple[ServiceRules, ServiceRules]] = field(default_factory=dict)

    def without_conflicts(self, rules: ServiceRules) -> ServiceRules:
        """The rules without the addresses that the Service loses.

        Equal input gives the same object, so that a fragment rendered from it stays valid.
        """
        conflicts = self.conflicts.get(rules.service)
        if conflicts is None:
            return rules
        known = self._without_conflicts.get(rules.service)
        if known is not None and known[0] is rules:
            return known[1]
        addresses = {conflict.address for conflict in conflicts}
        kept = tuple(one for one in rules.frontends if (one.ip, one.port, one.protocol) not in addresses)
        trimmed = ServiceRules(rules.service, kept)
        self._without_conflicts[rules.service] = (rules, trimmed)
        return trimmed


def visible_services_of(services: Iterable[ServiceInfo], family: Family) -> VisibleServices:
    """The Services that have an address of the family."""
    candidates = [service for service in services if service.addresses(family) is not None]
    beyond_limit = rule_limit.services_beyond_limit(
        {_key(service): claim_count(service, family) for service in candidates}
    )
    ours = sorted(
        (service for service in candidates if _key(service) not in beyond_limit),
        key=lambda service: service.reference,
    )
    return VisibleServices(
        services=tuple(_key(service) for service in ours),
        with_source_ranges=tuple(service for service in ours if _is_ranged(service, family)),
        conflicts=find_conflicts(ours, family),
        beyond_limit=beyond_limit,
    )


def in_source_ranges(service: ServiceInfo, pod_ips: Iterable[str], family: Family) -> bool:
    """Whether a Service's load balancer source ranges contain a guest, or there are none.

    All addresses of the guest have to be in a range, as it may send from any. A guest without addresses of
    the family is in no range.
    """
    addresses = service.addresses(family)
    if addresses is None or addresses.load_balancer_ranges is None:
        return True
    ranges = addresses.load_balancer_ranges
    ours = [ip for ip in pod_ips if (":" in ip) == (family is Family.IPV6)]
    return bool(ours) and all(contains(ranges, ip) for ip in ours)


def _key(service: ServiceInfo) -> Key:
    return service.namespace, service.name


def _is_ranged(service: ServiceInfo, family: Family) -> bool:
    addresses = service.addresses(family)
    return (
        addresses is not None and bool(addresses.load_balancer) and addresses.load_balancer_ranges is not None
    )
