# SPDX-License-Identifier: Apache-2.0
"""The state of all Services, and the rules of each guest that follow from it.

Rules are computed and kept for one Service and one location, so a change of one endpoint costs one
Service. A guest's rules are assembled from those. Results depend on the current objects only: neither the
order of events nor earlier questions change them.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from weakref import WeakValueDictionary

from daemonkit.kube.resources import Key
from kubeproxy_ext.compute import objects, rule_limit
from kubeproxy_ext.compute.address_conflicts import claim_count
from kubeproxy_ext.compute.guest_view import (
    GroupKey,
    GuestRulesResult,
    GuestView,
    ObjectProblem,
    ServiceGroup,
    ServingEndpoints,
    groups_of,
)
from kubeproxy_ext.compute.parse import (
    ServiceInfo,
    parse_namespace,
    parse_service,
    parse_slice,
    parse_zone,
    service_of,
)
from kubeproxy_ext.compute.problems import find_problems
from kubeproxy_ext.compute.rule_limit import RuleCounts
from kubeproxy_ext.compute.service_index import ServiceIndex
from kubeproxy_ext.compute.service_rules import CompiledService, GuestLocation, compile_service
from kubeproxy_ext.compute.visible_services import VisibleServices, in_source_ranges, visible_services_of
from ruleset.model import Family, GuestRules, ServiceRules

_Variant = tuple[GuestLocation, bool]
"""The guest's location, and whether the Service's source ranges contain the guest."""

_Compiled = Mapping[_Variant, CompiledService]
_VisibleKey = tuple[str | None, tuple[str, ...], Family]

_NOTHING: _Compiled = MappingProxyType({})

# How many rules are computed at once to see whether a change has an effect: some 20 ms. More rules are
# computed when their tenant is due.
MAX_COMPARED = 5_000


class ServiceState:
    """Services, EndpointSlices, Namespaces and Nodes, and the rules that follow from them.

    `put_*` and `remove_*` take every change, in any order. A change without an effect costs next to
    nothing. After a batch, `take_changed_groups` names the groups whose guests need new rules.

    A Service in an unknown Namespace has no owner yet, and no guest gets it. With `has_all_namespaces` an
    unknown Namespace belongs to the super cluster.
    """

    def __init__(self, *, has_all_namespaces: bool = False) -> None:
        self._index = ServiceIndex(has_all_namespaces=has_all_namespaces)
        # The slices of each Service, also of Services that do not exist (yet); those are not parsed.
        self._slices: dict[Key, dict[str, objects.EndpointSliceObject]] = {}
        self._service_of_slice: dict[Key, Key] = {}
        self._zones: dict[str, str] = {}
        self._used_zones: set[str] = set()
        self._compiled: dict[Key, dict[_Variant, CompiledService]] = {}
        # Services whose rules may have changed, with the rules computed before.
        self._stale: dict[Key, _Compiled] = {}
        self._changed_groups: set[ServiceGroup] = set()
        self._visible: dict[_VisibleKey, VisibleServices] = {}
        # The visible Services that are left out for their endpoints, with the words of the limit.
        self._beyond_limit: dict[_VisibleKey, Mapping[Key, str]] = {}
        self._rule_counts: dict[tuple[Key, Family], RuleCounts] = {}
        # Kept alive by the guests' desired rulesets; others are collected.
        self._results: WeakValueDictionary[GroupKey, GuestRulesResult] = WeakValueDictionary()

    def put_service(self, item: objects.ServiceObject) -> None:
        key = (item.metadata.namespace, item.metadata.name)
        old = self._index.services.get(key)
        if self._index.put_service(key, parse_service(item)):
            self._service_changed(key, old)
        if key not in self._index.services:
            self._drop_slices(key)
        elif old is None:
            for each in self._slices.get(key, {}).values():
                self._parse(each)

    def remove_service(self, key: Key) -> None:
        """Remove a Service by (namespace, name); nothing happens if there is none."""
        old = self._index.services.get(key)
        if self._index.remove_service(key):
            self._service_changed(key, old)
        self._drop_slices(key)

    def put_slice(self, item: objects.EndpointSliceObject) -> None:
        key = (item.metadata.namespace, item.metadata.name)
        service_key = service_of(item)
        if service_key != self._service_of_slice.get(key):
            self.remove_slice(key)
        if service_key is None:
            return
        self._service_of_slice[key] = service_key
        self._slices.setdefault(service_key, {})[key[1]] = item
        if service_key in self._index.services:
            self._parse(item)

    def remove_slice(self, key: Key) -> None:
        service_key = self._service_of_slice.pop(key, None)
        if service_key is None:
            return
        del self._slices[service_key][key[1]]
        if not self._slices[service_key]:
            del self._slices[service_key]
        for service in self._index.remove_slice(key):
            self._mark_stale(service)

    def _parse(self, item: objects.EndpointSliceObject) -> None:
        """Add the endpoints of a slice to its Service, which exists."""
        key = (item.metadata.namespace, item.metadata.name)
        for service in self._index.put_slice(key, parse_slice(item)):
            self._mark_stale(service)

    def _drop_slices(self, service: Key) -> None:
        """The Service is gone. Its slices stay, unparsed."""
        for name in self._slices.get(service, ()):
            self._index.remove_slice((service[0], name))

    def put_namespace(self, item: objects.NamespaceObject) -> None:
        name = item.metadata.name
        before = self._index.groups_in(name)
        if self._index.put_namespace(name, parse_namespace(item)):
            self._on_membership_changed(before | self._index.groups_in(name))

    def remove_namespace(self, name: str) -> None:
        before = self._index.groups_in(name)
        if self._index.put_namespace(name, None):
            self._on_membership_changed(before | self._index.groups_in(name))

    def put_node(self, item: objects.NodeObject) -> None:
        self._zone_changed(item.metadata.name, parse_zone(item))

    def remove_node(self, name: str) -> None:
        self._zone_changed(name, "")

    def take_changed_groups(self) -> frozenset[ServiceGroup]:
        """The groups whose rules or serving endpoints may have changed since the last call.

        Guests with none of these among `GuestView.groups` keep their rules. A group that no guest sees is
        named at every change, and nothing is computed for it.
        """
        self._recompute_stale()
        changed = frozenset(self._changed_groups)
        self._changed_groups.clear()
        return changed

    def group_key(self, view: GuestView) -> GroupKey:
        """The key by which guests share rules. It may change after `take_changed_groups`."""
        self._recompute_stale()
        visible = self._visible_services(view)
        matches = frozenset(
            service.reference
            for service in visible.with_source_ranges
            if in_source_ranges(service, view.pod_ips, view.family)
        )
        if view.zone is None:
            self._used_zones.add(view.node)
        zone = self._zones.get(view.node, "") if view.zone is None else view.zone
        cidrs = tuple(cidr for cidr in view.service_cidrs if (":" in cidr) == (view.family is Family.IPV6))
        return GroupKey(view.tenant, view.networks, view.node, zone, cidrs, view.family, matches)

    def result_for(self, view: GuestView) -> GuestRulesResult:
        """The guest's rules. Guests of one key get the same object while any of them keeps it."""
        key = self.group_key(view)
        result = self._results.get(key)
        if result is None:
            result = self._results[key] = self._assemble(key, self._visible_services(view))
        return result

    def rules_for(self, view: GuestView) -> GuestRules:
        return self.result_for(view).rules

    def problems(self) -> tuple[ObjectProblem, ...]:
        """What was left out of tenants' objects, sorted: malformed values, Services beyond the rule limit,
        and conflicting addresses (of groups that guests see). Reads all objects."""
        claimed = (key for visible in self._visible.values() for key in visible.beyond_limit)
        beyond_limit = dict.fromkeys(claimed, rule_limit.RULES)
        for each in self._beyond_limit.values():
            beyond_limit.update(each)
        return find_problems(self._index, self._visible.values(), beyond_limit)

    def services_with_address(self, tenant: str | None, ip: str) -> tuple[tuple[str, str], ...]:
        """The Services of a tenant that claim an address, in whatever network: (`namespace/name`,
        network), sorted. For people who ask; reads all of the tenant's Services."""
        found = []
        for group in self._index.groups:
            if group.tenant == tenant:
                services = (self._index.services[key] for key in self._index.members(group))
                found += [(one.reference, group.network) for one in services if _has_address(one, ip)]
        return tuple(sorted(found))

    def keep_only(self, groups: Collection[ServiceGroup]) -> None:
        """Drop what was computed for groups other than these, which are those that guests see.

        Their objects stay.
        """
        self._recompute_stale()
        kept = set(groups)
        services = self._index.services
        for key in list(self._compiled):
            if self._index.group(services[key]) not in kept:
                del self._compiled[key]
        for tenant, networks, family in list(self._visible):
            if not kept.issuperset(groups_of(tenant, networks)):
                del self._visible[tenant, networks, family]
                self._beyond_limit.pop((tenant, networks, family), None)

    def _service_changed(self, key: Key, old: ServiceInfo | None) -> None:
        new = self._index.services.get(key)
        if (
            old is None
            or new is None
            or _claim_inputs(old) != _claim_inputs(new)
            or old.network != new.network
        ):
            groups = (self._index.group(one) for one in (old, new) if one is not None)
            self._on_membership_changed({group for group in groups if group is not None})
        self._mark_stale(key)

    def _on_membership_changed(self, groups: Collection[ServiceGroup]) -> None:
        """Services joined or left these groups, or changed the addresses that they claim."""
        for group in groups:
            self._mark_group_changed(group)
            for key in [key for key in self._visible if group in groups_of(*key[:2])]:
                del self._visible[key]
                self._beyond_limit.pop(key, None)

    def _zone_changed(self, node: str, zone: str) -> None:
        if self._zones.get(node, "") == zone:
            return
        if zone:
            self._zones[node] = zone
        else:
            del self._zones[node]
        if node in self._used_zones:
            self._recompute_stale()
            self._compiled.clear()
            for group in list(self._index.groups):
                self._mark_group_changed(group)

    def _mark_stale(self, key: Key) -> None:
        """The rules of a Service may have changed. `_recompute_stale` computes them once for a batch, so
        endpoints that move from one slice to another are never missing in between."""
        self._stale.setdefault(key, self._compiled.pop(key, _NOTHING))
        for family in Family:
            self._rule_counts.pop((key, family), None)

    def _recompute_stale(self) -> None:
        if not self._stale:
            return
        stale, self._stale = self._stale, {}
        room = MAX_COMPARED
        for key, before in stale.items():
            service = self._index.services.get(key)
            group = None if service is None else self._index.group(service)
            if service is None or group is None:
                continue
            rule_count = sum(self._rule_counts_of(key, place.family).rules for place, _ in before)
            if not before or rule_count > room:
                # Too many rules to compare: they are computed when their tenant is due, within the limit.
                self._mark_group_changed(group)
                continue
            room -= rule_count
            now = {variant: self._compile(service, variant) for variant in before}
            changed = [variant for variant in now if now[variant] != before[variant]]
            # Equal rules stay the same object, so that what was made of them stays valid.
            self._compiled[key] = {**before, **{variant: now[variant] for variant in changed}}
            if changed:
                self._mark_group_changed(group)

    def _mark_group_changed(self, group: ServiceGroup) -> None:
        self._changed_groups.add(group)
        for key in [key for key in self._results if group in groups_of(key.tenant, key.networks)]:
            self._results.pop(key, None)

    def _visible_services(self, view: GuestView) -> VisibleServices:
        key = (view.tenant, view.networks, view.family)
        visible = self._visible.get(key)
        if visible is None:
            services = self._index.services
            members = (services[one] for group in view.groups for one in self._index.members(group))
            visible = self._visible[key] = visible_services_of(members, view.family)
        return visible

    def _assemble(self, key: GroupKey, visible: VisibleServices) -> GuestRulesResult:
        location = GuestLocation(key.node, key.zone, key.family)
        outside_ranges = {
            service.reference for service in visible.with_source_ranges
        } - key.source_range_matches
        rules: list[ServiceRules] = []
        serving: list[ServingEndpoints] = []
        services = self._index.services
        beyond_limit = rule_limit.services_beyond_limits(
            {one: self._rule_counts_of(one, key.family) for one in visible.services}
        )
        self._beyond_limit[key.tenant, key.networks, key.family] = beyond_limit
        for one in visible.services:
            if one in beyond_limit:
                self._compiled.pop(one, None)
                continue
            service = services[one]
            variant = (location, service.reference not in outside_ranges)
            known = self._compiled.setdefault(one, {})
            compiled = known.get(variant)
            if compiled is None:
                compiled = known[variant] = self._compile(service, variant)
            trimmed = visible.without_conflicts(compiled.rules)
            if trimmed.frontends:
                rules.append(trimmed)
                serving += compiled.serving
        return GuestRulesResult(GuestRules(key.family, tuple(rules), key.service_cidrs), tuple(serving))

    def _rule_counts_of(self, key: Key, family: Family) -> RuleCounts:
        """The most that a Service may have, counted without making a rule."""
        known = self._rule_counts.get((key, family))
        if known is None:
            service = self._index.services[key]
            ours = (one for one in self._index.slices(key) if one.family is family)
            known = self._rule_counts[key, family] = rule_limit.rule_counts(
                claim_count(service, family),
                len(service.ports),
                ((len(one.ports), len(one.endpoints)) for one in ours),
                has_affinity=service.affinity_s is not None,
                is_internal_local=service.is_internal_local,
            )
        return known

    def _compile(self, service: ServiceInfo, variant: _Variant) -> CompiledService:
        slices = self._index.slices((service.namespace, service.name))
        return compile_service(service, slices, variant[0], is_in_source_ranges=variant[1])


def _claim_inputs(service: ServiceInfo) -> tuple[object, ...]:
    """The fields of a Service that decide which addresses it claims, and its rank."""
    return service.created, service.ports, service.ipv4, service.ipv6


def _has_address(service: ServiceInfo, ip: str) -> bool:
    return any(
        ip in (each.cluster, *each.tenant_cluster_ips, *each.external, *each.load_balancer)
        for each in (service.ipv4, service.ipv6)
        if each is not None
    )
