# SPDX-License-Identifier: Apache-2.0
"""What the cluster means for each guest: the rules that follow from all that is known.

Whatever is computed is kept for one Service seen from one place, so that one change of one endpoint
costs one Service; a guest's rules are put together of those. The answers are functions of the objects
held alone: the order of events and what was asked before leave no trace in them.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from weakref import WeakValueDictionary

from daemonkit.kube.resources import Key
from kubeproxy_ext.compute import objects, rule_limit
from kubeproxy_ext.compute.address_conflicts import count
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
from kubeproxy_ext.compute.service_index import ServiceIndex
from kubeproxy_ext.compute.service_rules import CompiledService, GuestLocation, compile_service
from kubeproxy_ext.compute.visible_services import VisibleServices, in_source_ranges, visible_services_of
from ruleset.model import Family, GuestRules, ServiceRules

_Variant = tuple[GuestLocation, bool]
"""From where a Service is looked at, and whether its source ranges admit the one who looks."""

_Compiled = Mapping[_Variant, CompiledService]
_RosterKey = tuple[str | None, tuple[str, ...], Family]

_NOTHING: _Compiled = MappingProxyType({})

# How many rules are computed at once for what changed, to see whether anything has: some 20 ms. More
# are computed when their tenant's turn comes.
MAX_COMPARED = 5_000


class ServiceState:
    """Services, EndpointSlices, Namespaces and Nodes, and the rules that follow from them.

    Tell it of every change with `put_*` and `remove_*`, in any order; a change that changes nothing
    that is read costs next to nothing. After a batch, `settle` names the groups of guests to look at.

    A Service in a namespace that has not been heard of is nobody's: unknown is not no. With
    `has_all_namespaces` there is no such thing: what is not there has no tenant.
    """

    def __init__(self, *, has_all_namespaces: bool = False) -> None:
        self._cluster = ServiceIndex(has_all_namespaces=has_all_namespaces)
        # All slices that name a Service, by it: those of Services that are not there cost no more.
        self._slices: dict[Key, dict[str, objects.EndpointSliceObject]] = {}
        self._homes: dict[Key, Key] = {}
        self._zones: dict[str, str] = {}
        self._asked_zones: set[str] = set()
        self._compiled: dict[Key, dict[_Variant, CompiledService]] = {}
        # Services whose rules may have changed, with what was computed when they last held.
        self._stale: dict[Key, _Compiled] = {}
        self._touched: set[ServiceGroup] = set()
        self._rosters: dict[_RosterKey, VisibleServices] = {}
        # Of each roster, the Services that have too many endpoints to be computed.
        self._oversized: dict[_RosterKey, frozenset[Key]] = {}
        self._weights: dict[tuple[Key, Family], int] = {}
        # Held by whoever uses them: what no guest has any more goes by itself.
        self._outcomes: WeakValueDictionary[GroupKey, GuestRulesResult] = WeakValueDictionary()

    def put_service(self, item: objects.ServiceObject) -> None:
        key = (item.metadata.namespace, item.metadata.name)
        old = self._cluster.services.get(key)
        if self._cluster.put_service(key, parse_service(item)):
            self._service_changed(key, old)
        if key not in self._cluster.services:
            self._drop_slices(key)
        elif old is None:
            for each in self._slices.get(key, {}).values():
                self._parse(each)

    def remove_service(self, key: Key) -> None:
        """Forget one, by (namespace, name); nothing happens if it is not held."""
        old = self._cluster.services.get(key)
        if self._cluster.remove_service(key):
            self._service_changed(key, old)
        self._drop_slices(key)

    def put_slice(self, item: objects.EndpointSliceObject) -> None:
        key = (item.metadata.namespace, item.metadata.name)
        home = service_of(item)
        if home != self._homes.get(key):
            self.remove_slice(key)
        if home is None:
            return
        self._homes[key] = home
        self._slices.setdefault(home, {})[key[1]] = item
        if home in self._cluster.services:
            self._parse(item)

    def remove_slice(self, key: Key) -> None:
        home = self._homes.pop(key, None)
        if home is None:
            return
        del self._slices[home][key[1]]
        if not self._slices[home]:
            del self._slices[home]
        for service in self._cluster.remove_slice(key):
            self._mark(service)

    def _parse(self, item: objects.EndpointSliceObject) -> None:
        """Bring the endpoints of a slice to the Service that is there."""
        key = (item.metadata.namespace, item.metadata.name)
        for service in self._cluster.put_slice(key, parse_slice(item)):
            self._mark(service)

    def _drop_slices(self, service: Key) -> None:
        """The Service is not there any more; its slices wait for it."""
        for name in self._slices.get(service, ()):
            self._cluster.remove_slice((service[0], name))

    def put_namespace(self, item: objects.NamespaceObject) -> None:
        name = item.metadata.name
        before = self._cluster.groups_in(name)
        if self._cluster.put_namespace(name, parse_namespace(item)):
            self._regrouped(before | self._cluster.groups_in(name))

    def remove_namespace(self, name: str) -> None:
        before = self._cluster.groups_in(name)
        if self._cluster.put_namespace(name, None):
            self._regrouped(before | self._cluster.groups_in(name))

    def put_node(self, item: objects.NodeObject) -> None:
        self._zone_changed(item.metadata.name, parse_zone(item))

    def remove_node(self, name: str) -> None:
        self._zone_changed(name, "")

    def take_changed_groups(self) -> frozenset[ServiceGroup]:
        """The groups whose computed rules or serving endpoints may have changed since the last call.

        Guests with none of these among `GuestView.groups` have the rules that they had. A group that
        nobody has asked about is named at every change, and nothing is computed for it.
        """
        self._refresh()
        touched = frozenset(self._touched)
        self._touched.clear()
        return touched

    def group_key(self, view: GuestView) -> GroupKey:
        """What the guest shares its rules by. Changes with the objects: ask again after `settle`."""
        self._refresh()
        roster = self._roster(view)
        admitted = frozenset(
            service.reference
            for service in roster.ranged
            if in_source_ranges(service, view.pod_ips, view.family)
        )
        if view.zone is None:
            self._asked_zones.add(view.node)
        zone = self._zones.get(view.node, "") if view.zone is None else view.zone
        cidrs = tuple(cidr for cidr in view.service_cidrs if (":" in cidr) == (view.family is Family.IPV6))
        return GroupKey(view.tenant, view.networks, view.node, zone, cidrs, view.family, admitted)

    def result_for(self, view: GuestView) -> GuestRulesResult:
        """What the guest gets. Guests of one key get the same object as long as someone holds it."""
        key = self.group_key(view)
        result = self._outcomes.get(key)
        if result is None:
            result = self._outcomes[key] = self._assemble(key, self._roster(view))
        return result

    def rules_for(self, view: GuestView) -> GuestRules:
        return self.result_for(view).rules

    def problems(self) -> tuple[ObjectProblem, ...]:
        """What was left out of tenants' objects, sorted: malformed values, and addresses that another
        Service has (of groups whose rules have been asked for). Goes through all objects."""
        oversized = {key for keys in self._oversized.values() for key in keys}
        oversized.update(key for roster in self._rosters.values() for key in roster.oversized)
        return find_problems(self._cluster, self._rosters.values(), oversized)

    def services_with_address(self, tenant: str | None, ip: str) -> tuple[tuple[str, str], ...]:
        """The Services of a tenant that claim an address, in whatever network: (`namespace/name`,
        network), sorted. For a person who asks; goes through all of the tenant's Services."""
        found = []
        for group in self._cluster.groups:
            if group.tenant == tenant:
                services = (self._cluster.services[key] for key in self._cluster.members(group))
                found += [(one.reference, group.network) for one in services if _claims(one, ip)]
        return tuple(sorted(found))

    def retain(self, groups: Collection[ServiceGroup]) -> None:
        """Drop what was computed for other groups than these; their objects stay.

        `groups` are those of all views that are still asked about.
        """
        self._refresh()
        kept = set(groups)
        services = self._cluster.services
        for key in list(self._compiled):
            if self._cluster.group(services[key]) not in kept:
                del self._compiled[key]
        for tenant, networks, family in list(self._rosters):
            if not kept.issuperset(groups_of(tenant, networks)):
                del self._rosters[tenant, networks, family]
                self._oversized.pop((tenant, networks, family), None)

    def _service_changed(self, key: Key, old: ServiceInfo | None) -> None:
        new = self._cluster.services.get(key)
        if old is None or new is None or _standing(old) != _standing(new) or old.network != new.network:
            groups = (self._cluster.group(one) for one in (old, new) if one is not None)
            self._regrouped({group for group in groups if group is not None})
        self._mark(key)

    def _regrouped(self, groups: Collection[ServiceGroup]) -> None:
        """Services came to these groups, left them, or changed the addresses that they claim."""
        for group in groups:
            self._touch(group)
            for key in [key for key in self._rosters if group in groups_of(*key[:2])]:
                del self._rosters[key]
                self._oversized.pop(key, None)

    def _zone_changed(self, node: str, zone: str) -> None:
        if self._zones.get(node, "") == zone:
            return
        if zone:
            self._zones[node] = zone
        else:
            del self._zones[node]
        if node in self._asked_zones:
            self._refresh()
            self._compiled.clear()
            for group in list(self._cluster.groups):
                self._touch(group)

    def _mark(self, key: Key) -> None:
        """The rules of a Service may have changed: looked at in `_refresh`, once for a whole batch, so
        that endpoints that pass from one slice to another are never away in between."""
        self._stale.setdefault(key, self._compiled.pop(key, _NOTHING))
        for family in Family:
            self._weights.pop((key, family), None)

    def _refresh(self) -> None:
        if not self._stale:
            return
        stale, self._stale = self._stale, {}
        room = MAX_COMPARED
        for key, before in stale.items():
            service = self._cluster.services.get(key)
            group = None if service is None else self._cluster.group(service)
            if service is None or group is None:
                continue
            weight = sum(self._weight(key, place.family) for place, _ in before)
            if not before or weight > room:
                # What is too much to compare is computed when it is asked for, if there is room at all.
                self._touch(group)
                continue
            room -= weight
            now = {variant: self._compile(service, variant) for variant in before}
            changed = [variant for variant in now if now[variant] != before[variant]]
            # Equal values stay the same value: whatever was made of them stays good.
            self._compiled[key] = {**before, **{variant: now[variant] for variant in changed}}
            if changed:
                self._touch(group)

    def _touch(self, group: ServiceGroup) -> None:
        self._touched.add(group)
        for key in [key for key in self._outcomes if group in groups_of(key.tenant, key.networks)]:
            self._outcomes.pop(key, None)

    def _roster(self, view: GuestView) -> VisibleServices:
        key = (view.tenant, view.networks, view.family)
        roster = self._rosters.get(key)
        if roster is None:
            services = self._cluster.services
            members = (services[one] for group in view.groups for one in self._cluster.members(group))
            roster = self._rosters[key] = visible_services_of(members, view.family)
        return roster

    def _assemble(self, key: GroupKey, roster: VisibleServices) -> GuestRulesResult:
        place = GuestLocation(key.node, key.zone, key.family)
        shut_out = {service.reference for service in roster.ranged} - key.admitted
        rules: list[ServiceRules] = []
        serving: list[ServingEndpoints] = []
        services = self._cluster.services
        oversized = rule_limit.left_out({one: self._weight(one, key.family) for one in roster.services})
        self._oversized[key.tenant, key.networks, key.family] = oversized
        for one in roster.services:
            if one in oversized:
                self._compiled.pop(one, None)
                continue
            service = services[one]
            variant = (place, service.reference not in shut_out)
            known = self._compiled.setdefault(one, {})
            compiled = known.get(variant)
            if compiled is None:
                compiled = known[variant] = self._compile(service, variant)
            trimmed = roster.trim(compiled.rules)
            if trimmed.frontends:
                rules.append(trimmed)
                serving += compiled.serving
        return GuestRulesResult(GuestRules(key.family, tuple(rules), key.service_cidrs), tuple(serving))

    def _weight(self, key: Key, family: Family) -> int:
        """How many rules a Service is at most, without making any."""
        known = self._weights.get((key, family))
        if known is None:
            ours = (one for one in self._cluster.slices(key) if one.family is family)
            known = count(self._cluster.services[key], family)
            known += sum(len(one.ports) * len(one.endpoints) for one in ours)
            self._weights[key, family] = known
        return known

    def _compile(self, service: ServiceInfo, variant: _Variant) -> CompiledService:
        slices = self._cluster.slices((service.namespace, service.name))
        return compile_service(service, slices, variant[0], is_admitted=variant[1])


def _standing(service: ServiceInfo) -> tuple[object, ...]:
    """What of a Service decides which addresses it claims, and how well."""
    return service.created, service.ports, service.ipv4, service.ipv6


def _claims(service: ServiceInfo, ip: str) -> bool:
    return any(
        ip in (each.cluster, *each.tenants, *each.external, *each.balancer)
        for each in (service.ipv4, service.ipv6)
        if each is not None
    )
