# SPDX-License-Identifier: Apache-2.0
"""From guests to rulesets: what guests have in common is computed and rendered once. Pure.

Guests of one tenant that are in the same networks, whose node and zone are the same, that the same
source ranges admit, and whose packet filters speak the same language and families, get one and the
same ruleset value.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from bridge_api.messages import Guest
from kubeproxy_ext.compute.addresses import canonical_ip, family_of
from kubeproxy_ext.compute.guest_view import ServiceGroup, GroupKey, GuestView, GuestRulesResult
from kubeproxy_ext.compute.rules_probe import RulesProbe, with_rules_probe
from kubeproxy_ext.delivery.queue import DesiredRuleset
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.model import Family
from ruleset.names import Backend
from ruleset.render.iptables import Renderer
from ruleset.render.nft import render as render_nft
from tenancy.keys import DEFAULT_NETWORK


class RulesSource(Protocol):
    """What of `core.world.World` answers questions about guests."""

    def group_key(self, view: GuestView) -> GroupKey: ...
    def result_for(self, view: GuestView) -> GuestRulesResult: ...
    def retain(self, groups: Collection[ServiceGroup]) -> None: ...


@dataclass(frozen=True, slots=True)
class GuestSpec:
    """A guest as its rules see it: a view for each family, and the language that it gets them in."""

    views: tuple[GuestView, ...]
    backend: Backend


@dataclass(frozen=True, slots=True)
class Ineligible:
    """Why a guest gets no rules, for a person."""

    reason: str


RulesetKey = tuple[tuple[GroupKey, ...], Backend]


def guest_spec(guest: Guest, node: str, service_cidrs: tuple[str, ...]) -> GuestSpec | Ineligible:
    """What rules a guest needs, or why it gets none.

    A guest without addresses has not got them yet: it is prepared for both families. One that says
    it has no IPv6 packet filter gets rules for IPv4 alone.
    """
    capabilities = guest.capabilities
    if not guest.tenant:
        return Ineligible("its pod is no tenant's")
    if guest.not_injectable:
        return Ineligible(guest.not_injectable)
    if capabilities is None:
        return Ineligible("no channel has been probed yet")
    known = {each.value: each for each in Backend}
    backends = [known[name] for name in capabilities.backends if name in known]
    if not backends:
        return Ineligible("its packet filter is none that rules can be written for")
    ips = tuple(ip for ip in map(canonical_ip, guest.ips) if ip is not None)
    families = {family_of(ip) for ip in ips} or {Family.IPV4, Family.IPV6}
    if not capabilities.ipv6:
        families.discard(Family.IPV6)
    if not families:
        return Ineligible("it has IPv6 addresses alone, and no packet filter for IPv6")
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
    """Numbers that grow with each ruleset of a tenant, over restarts too, without a file.

    They are milliseconds of the clock, so that a restart begins beyond where it was; where the clock
    was set back, kata-bridge says what it was handed before. What guests claim to have does not count:
    one could use up the numbers of its tenant. One tenant's do not tell of another's changes.
    """

    def __init__(self, wall_s: Callable[[], float]) -> None:
        self._wall_s = wall_s
        self._last: dict[str, int] = {}

    def observe(self, tenant: str, generation: int) -> None:
        """kata-bridge was handed a ruleset of that generation."""
        self._last[tenant] = max(self._last.get(tenant, 0), generation)

    def next_generation(self, tenant: str) -> int:
        self._last[tenant] = max(self._last.get(tenant, 0) + 1, int(self._wall_s() * 1000))
        return self._last[tenant]


class Rulesets:
    """The rulesets of all guests, each made once and kept while a guest has it."""

    def __init__(self, rules: RulesSource, generations: Generations) -> None:
        self._rules = rules
        self._generations = generations
        self._made: dict[RulesetKey, DesiredRuleset] = {}
        self._renderer = Renderer()
        self.rules_probe: RulesProbe | None = None  # what else every guest gets
        self.render_count = 0

    def __len__(self) -> int:
        return len(self._made)

    def desired_for(self, guests: Mapping[str, GuestSpec]) -> dict[str, DesiredRuleset]:
        """What each of these guests is to have, by the objects held now.

        The value is the same as before, and the same for all that share it, while nothing changes.
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
        """The same under the next number, for a guest that was handed something newer before: guests
        come to share what others have had for long."""
        made = DesiredRuleset(self._with_generation(desired.ruleset, tenant), desired.results)
        self._made.update({key: made for key, each in self._made.items() if each is desired})
        return made

    def keep_only(self, live: Iterable[DesiredRuleset]) -> None:
        """Forget all rulesets but these."""
        kept = {id(each) for each in live}
        self._made = {key: made for key, made in self._made.items() if id(made) in kept}

    def retain(self, guests: Iterable[GuestSpec]) -> None:
        """Forget what was computed for Services that none of these guests sees."""
        views = [view for each in guests for view in each.views]
        self._rules.retain(frozenset(group for view in views for group in view.groups))

    def _make(self, key: RulesetKey, each: GuestSpec) -> DesiredRuleset:
        results = tuple(self._rules.result_for(view) for view in each.views)
        before = self._made.get(key)
        if before is not None and all(a is b for a, b in zip(before.results, results, strict=True)):
            return before
        self.render_count += 1
        documents = [self._document(result, each.backend) for result in results]
        made = make_ruleset(0, documents)
        if before is not None and before.digest == made.digest:
            # Flows may have to be repaired all the same: the outcomes tell.
            return DesiredRuleset(before.ruleset, results)
        return DesiredRuleset(self._with_generation(made, each.views[0].tenant or ""), results)

    def _with_generation(self, made: Ruleset, tenant: str) -> Ruleset:
        return replace(made, generation=self._generations.next_generation(tenant))

    def _document(self, result: GuestRulesResult, backend: Backend) -> Document:
        rules = with_rules_probe(result.rules, self.rules_probe)
        return render_nft(rules) if backend is Backend.NFT else self._renderer.render(rules)
