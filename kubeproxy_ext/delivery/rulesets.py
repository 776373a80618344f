# SPDX-License-Identifier: Apache-2.0
"""From guests to rulesets: what guests have in common is computed and rendered once. Pure.

Guests share one ruleset value if they have the same tenant, networks, node, zone, backend and families.
They must also be in the source ranges of the same Services.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from bridge_api.messages import Guest
from kubeproxy_ext.compute.addresses import canonical_ip, family_of
from kubeproxy_ext.compute.guest_view import GroupKey, GuestRulesResult, GuestView, ServiceGroup
from kubeproxy_ext.compute.rules_probe import RulesProbe, with_rules_probe
from kubeproxy_ext.delivery.queue import DesiredRuleset
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.model import Family
from ruleset.names import Backend
from ruleset.render.iptables import Renderer
from ruleset.render.nft import render as render_nft
from tenancy.keys import DEFAULT_NETWORK


class RulesSource(Protocol):
    """The part of `ServiceState` that computes the rules of guests."""

    def group_key(self, view: GuestView) -> GroupKey: ...
    def result_for(self, view: GuestView) -> GuestRulesResult: ...
    def keep_only(self, groups: Collection[ServiceGroup]) -> None: ...


@dataclass(frozen=True, slots=True)
class GuestSpec:
    """What decides a guest's rules: a view for each family, and the backend that they are rendered for."""

    views: tuple[GuestView, ...]
    backend: Backend


@dataclass(frozen=True, slots=True)
class Ineligible:
    """A guest that gets no rules, with the reason as a message for people."""

    reason: str


RulesetKey = tuple[tuple[GroupKey, ...], Backend]


def guest_spec(guest: Guest, node: str, service_cidrs: tuple[str, ...]) -> GuestSpec | Ineligible:
    """What rules a guest needs, or why it gets none.

    A guest that has no addresses yet is prepared for both families. A guest without an IPv6 packet filter
    gets rules for IPv4 only.
    """
    capabilities = guest.capabilities
    if not guest.tenant:
        return Ineligible("its pod belongs to no tenant")
    if guest.not_injectable:
        return Ineligible(guest.not_injectable)
    if capabilities is None:
        return Ineligible("kata-bridge has probed no channel of it yet")
    known = {each.value: each for each in Backend}
    backends = [known[name] for name in capabilities.backends if name in known]
    if not backends:
        return Ineligible("its packet filter is not supported: neither iptables nor nft")
    ips = tuple(ip for ip in map(canonical_ip, guest.ips) if ip is not None)
    families = {family_of(ip) for ip in ips} or {Family.IPV4, Family.IPV6}
    if not capabilities.ipv6:
        families.discard(Family.IPV6)
    if not families:
        return Ineligible("it has IPv6 addresses only, and no packet filter for IPv6")
    networks = tuple(name for name in guest.networks if name) or (DEFAULT_NETWORK,)
    views = tuple(
        GuestView(guest.tenant, networks, ips, node, None, service_cidrs, family)
        for family in sorted(families, key=lambda family: family.value)
    )
    return GuestSpec(views, backends[0])


def spec_changed(before: Guest, now: Guest) -> bool:
    """Whether what decides a guest's rules has changed."""
    return (
        before.tenant != now.tenant
        or before.networks != now.networks
        or before.ips != now.ips
        or before.capabilities != now.capabilities
        or before.not_injectable != now.not_injectable
    )


class Generations:
    """Numbers that grow with each ruleset of a tenant, across restarts too, without a file.

    They are milliseconds of the wall clock, so a restart continues above its last number. Where the clock
    was set back, kata-bridge reports the number that it holds. What guests report does not count: a guest
    could use up the numbers of its tenant. Each tenant has its own, which reveal no other tenant's changes.
    """

    def __init__(self, wall_s: Callable[[], float]) -> None:
        self._wall_s = wall_s
        self._last: dict[str, int] = {}

    def observe(self, tenant: str, generation: int) -> None:
        """kata-bridge holds a ruleset of this generation."""
        self._last[tenant] = max(self._last.get(tenant, 0), generation)

    def next_generation(self, tenant: str) -> int:
        self._last[tenant] = max(self._last.get(tenant, 0) + 1, int(self._wall_s() * 1000))
        return self._last[tenant]


class Rulesets:
    """The rulesets of all guests, each made once and kept while a guest has it.

    Every ruleset has the rules probe, if configured.
    """

    def __init__(
        self, rules: RulesSource, generations: Generations, rules_probe: RulesProbe | None = None
    ) -> None:
        self._rules = rules
        self._generations = generations
        self._made: dict[RulesetKey, DesiredRuleset] = {}
        self._renderer = Renderer()
        self.rules_probe = rules_probe
        self.render_count = 0

    def __len__(self) -> int:
        return len(self._made)

    def desired_for(self, guests: Mapping[str, GuestSpec]) -> dict[str, DesiredRuleset]:
        """The desired ruleset of each of these guests, from the objects cached now.

        While nothing changes, the value is the same one as before, for all guests that share it.
        """
        found: dict[str, DesiredRuleset] = {}
        done: dict[RulesetKey, DesiredRuleset] = {}
        for guest_id, each in guests.items():
            key = (tuple(self._rules.group_key(view) for view in each.views), each.backend)
            if key not in done:
                done[key] = self._made[key] = self._make(key, each)
            found[guest_id] = done[key]
        return found

    def with_next_generation(self, desired: DesiredRuleset, tenant: str) -> DesiredRuleset:
        """The same ruleset as the next generation.

        A guest may come to share an older ruleset than its own; kata-bridge would take it for superseded.
        """
        made = DesiredRuleset(self._with_generation(desired.ruleset, tenant), desired.results)
        self._made.update({key: made for key, each in self._made.items() if each is desired})
        return made

    def keep_only(self, live: Iterable[DesiredRuleset]) -> None:
        """Drop all rulesets but these."""
        kept = {id(each) for each in live}
        self._made = {key: made for key, made in self._made.items() if id(made) in kept}

    def keep_results_of(self, guests: Iterable[GuestSpec]) -> None:
        """Drop what was computed for Services that none of these guests sees."""
        views = [view for each in guests for view in each.views]
        self._rules.keep_only(frozenset(group for view in views for group in view.groups))

    def _make(self, key: RulesetKey, each: GuestSpec) -> DesiredRuleset:
        results = tuple(self._rules.result_for(view) for view in each.views)
        before = self._made.get(key)
        if before is not None and all(a is b for a, b in zip(before.results, results, strict=True)):
            return before
        self.render_count += 1
        documents = [self._document(result, each.backend) for result in results]
        made = make_ruleset(0, documents)
        if before is not None and before.digest == made.digest:
            # The text is the same, but the results may require to flush flows.
            return DesiredRuleset(before.ruleset, results)
        return DesiredRuleset(self._with_generation(made, each.views[0].tenant or ""), results)

    def _with_generation(self, made: Ruleset, tenant: str) -> Ruleset:
        return replace(made, generation=self._generations.next_generation(tenant))

    def _document(self, result: GuestRulesResult, backend: Backend) -> Document:
        rules = with_rules_probe(result.rules, self.rules_probe)
        return render_nft(rules) if backend is Backend.NFT else self._renderer.render(rules)
