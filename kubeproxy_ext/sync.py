# SPDX-License-Identifier: Apache-2.0
"""The daemon's one turn: from what has changed to what is sent. It acts through others' hands.

`turn` says in which order: believe or not, follow, compute what is due, send what is missing. All of
it runs on the loop without an await, so that it always sees one state of the world.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from bridge_api.messages import Guest, GuestResult, ResultCode
from daemonkit import logs
from kubeproxy_ext.brake import Brake
from kubeproxy_ext.cache.object_cache import ObjectCache, tenant_of
from kubeproxy_ext.cache.service_cidrs import ServiceCidrs
from kubeproxy_ext.cache.tenants import RestoredTenant, TenantSync, put_restored
from kubeproxy_ext.compute.objects import EndpointSliceObject
from kubeproxy_ext.compute.service_state import ServiceState
from kubeproxy_ext.compute.sync_rate import SyncRateLimiter
from kubeproxy_ext.delivery.latency import ProgrammingLatency
from kubeproxy_ext.delivery.queue import Delivery, Push, DeliveryStatus, DesiredRuleset
from kubeproxy_ext.delivery.rulesets import GuestSpec, Generations, Rulesets, Ineligible, guest_spec, spec_changed
from kubeproxy_ext.metrics import Metrics
from ruleset.delta import RulesetDelta

# A list takes some hundredths of a second. Who has not been heard for so long is not there.
GRACE_S = 2.0
# For how long rules are computed in one turn. All of 30 guests with 1 000 Services take less.
TURN_S = 0.02
# Guests that come together, as after our start, are in one request; one that comes alone is not late.
GUEST_GAP_S = 0.005

_log = logs.get(__name__)


class Sources(Protocol):
    """The part of `watch.Watch` that is used."""

    def want(self, tenants: Iterable[str]) -> None: ...
    @property
    def next_end(self) -> float | None: ...
    @property
    def wanted(self) -> Iterable[str]: ...
    def is_heard(self, tenant: str) -> bool: ...
    def is_source_of(self, namespace: str) -> bool: ...


class Engine:
    """Guests and tenants of this node. Give it events; call `turn` when it asks for that by `wake`.

    `ask_saved` starts the reading of a tenant's saved state, whose end is `restored`; it is None
    where new guests shall wait for the API server.
    """

    def __init__(
        self,
        node_name: str,
        ranges: ServiceCidrs,
        hold_s: float,
        metrics: Metrics,
        *,
        now: Callable[[], float],
        wall: Callable[[], float],
        wake: Callable[[], None],
        send: Callable[[Push], None],
        ask_saved: Callable[[str], None] | None,
    ) -> None:
        self.world = ServiceState()
        self.feed = ObjectCache(self.world, hold_s)
        self.delivery = Delivery()
        self.sources: Sources | None = None
        self.tenants: dict[str, TenantSync] = {}
        self.asked: dict[str, GuestSpec | Ineligible] = {}
        self._generations = Generations(wall)
        self.groups = Rulesets(self.world, self._generations)
        self.brake = Brake(hold_s, metrics.held_lists)
        self.latency = ProgrammingLatency(wall, metrics.programming_duration.observe)
        self._node_name = node_name
        self._ranges = ranges
        self._hold_s = hold_s
        self._metrics = metrics
        self._now = now
        self._wall = wall
        self._wake = wake
        self._send = send
        self._ask_saved = ask_saved
        self._is_connected = False
        self._fresh: dict[str, float] = {}  # since when
        self._fresh_pace = SyncRateLimiter()
        self._is_prune_due = False
        self._to_save: set[str] = set()
        self._seen: frozenset[GuestSpec] = frozenset()

    # ---- the turn

    def turn(self) -> float | None:
        """Do what is due; return when the next is, if nothing else happens before."""
        now = self._now()
        self.brake.tell(self.feed.tick(now), self.feed.held)
        self._follow(now)
        for group in self.world.take_changed_groups():
            if group.tenant in self.tenants:
                self._changed(group.tenant, now)
        self._compute_due(now)
        if self._fresh_pace.is_due(now):
            self._compute_fresh(now)
        if self._is_prune_due:
            self._prune()
        if self._is_connected:
            for push in self.delivery.plan(now):
                self._metrics.flows.inc(len(push.flush) * len(push.guests))
                self._send(push)
        return self._next_turn()

    def _follow(self, now: float) -> None:
        """Take note of which tenants are here, and what is known of them."""
        present = {s.guest.tenant for s in self.delivery.guests.values() if s.guest.tenant}
        if self.sources is None:
            return
        self.sources.want(present)
        for name in present - self.tenants.keys():
            self.tenants[name] = TenantSync(now)
        for name in self.tenants.keys() - set(self.sources.wanted):
            del self.tenants[name]
            self.latency.forget(name)
        for name, tenant in self.tenants.items():
            ranges = self._ranges.of(name, self.feed)
            if tenant.ranges != ranges:
                tenant.ranges = ranges
                self._changed(name, now)
            if not tenant.is_heard and self.sources.is_heard(name) and self._is_credible(name, tenant, now):
                tenant.is_heard, tenant.restored = True, None
                _log.info("tenant is known", tenant=name, after_s=round(now - tenant.since, 3))
                self._changed(name, now)
            elif not tenant.is_heard and now >= tenant.since + GRACE_S:
                self._fall_back(name, tenant)

    def _is_credible(self, name: str, tenant: TenantSync, now: float) -> bool:
        """Whether a tenant's first lists may be believed: endpoints without any Service may not yet."""
        if not self.feed.is_bare(name):
            tenant.bare_since = None
            return True
        if tenant.bare_since is None:
            tenant.bare_since = now
            self._metrics.held_lists.labels(name).inc()
            _log.error(
                "a tenant has endpoints and not one Service, its guests keep what they have",
                tenant=name,
                hold_s=self._hold_s,
            )
        return now >= tenant.bare_since + self._hold_s

    def _fall_back(self, name: str, tenant: TenantSync) -> None:
        if not tenant.is_asked_for:
            tenant.is_asked_for = True
            if self._ask_saved is not None:
                self._ask_saved(name)

    def _changed(self, tenant: str, now: float) -> None:
        self.tenants[tenant].pace = self.tenants[tenant].pace.changed(now)

    def _compute_due(self, now: float) -> None:
        """Compute for the tenants whose turn it is, as long as that is soon done.

        In the order in which they became due, each later by what its rules take: so nobody's rules wait
        for those of a tenant that has more, and that one waits no longer for others than it makes them
        wait. What is left comes in the next turn: what has been computed is sent before that, and
        whatever else has happened is looked at.
        """
        due = sorted(
            (each.pace.due_at + each.took_s, each.took_s, name)
            for name, each in self.tenants.items()
            if each.pace.due_at is not None and each.pace.is_due(now)
        )
        for number, (_, took_s, tenant) in enumerate(due):
            if number and self._now() - now + took_s >= TURN_S:
                continue
            self._compute(tenant)

    def _compute(self, name: str) -> None:
        """Compute the rules of one tenant's guests."""
        started = self._now()
        tenant = self.tenants[name]
        guests = [i for i, s in self.delivery.guests.items() if s.guest.tenant == name]
        self._want(guests)
        ended = self._now()
        tenant.pace = tenant.pace.ran(started, ended)
        tenant.took_s = ended - started
        self._metrics.sync_duration.observe(max(0.0, ended - started))
        self._metrics.last_sync.set(self._wall())
        if tenant.is_heard:
            self._to_save.add(name)
            self.latency.computed(name, {s.wanted.digest for s in self._standings(guests) if s.wanted})

    def _compute_fresh(self, now: float) -> None:
        """Compute for guests that came or changed; their tenant need not be due."""
        self._fresh_pace = self._fresh_pace.ran(now, now, GUEST_GAP_S)
        fresh: dict[str, dict[str, float]] = {}
        for guest_id, since in self._fresh.items():
            if guest_id in self.delivery.guests:
                fresh.setdefault(self.delivery.guests[guest_id].guest.tenant, {})[guest_id] = since
        self._fresh.clear()
        costs = {name: self.tenants[name].took_s if name in self.tenants else 0.0 for name in fresh}
        order = sorted((min(guests.values()) + costs[name], name) for name, guests in fresh.items())
        for number, (_, tenant) in enumerate(order):
            if number and self._now() - now + costs[tenant] >= TURN_S:
                self._fresh.update(fresh[tenant])  # in a turn of its own, as `_compute_due`
                self._fresh_pace = self._fresh_pace.changed(now)
            else:
                self._want(fresh[tenant])

    def _prune(self) -> None:
        """Forget what was made for guests that are gone, or that see other Services now."""
        self._is_prune_due = False
        self.groups.keep(s.wanted for s in self.delivery.guests.values() if s.wanted is not None)
        seen = frozenset(each for each in self.asked.values() if isinstance(each, GuestSpec))
        if seen != self._seen:
            self._seen = seen
            self.groups.retain(seen)

    def _want(self, guests: Iterable[str]) -> None:
        """Say what these guests are to have, as far as it is known."""
        now = self._now()
        self._is_prune_due = True
        known: dict[str, GuestSpec] = {}
        for guest_id in guests:
            standing = self.delivery.guests[guest_id]
            tenant = self.tenants.get(standing.guest.tenant)
            ranges = () if tenant is None else tenant.ranges
            each = self.asked[guest_id] = guest_spec(standing.guest, self._node_name, ranges)
            if isinstance(each, Ineligible) or tenant is None:
                self.delivery.want(guest_id, None, now)
            elif tenant.is_heard or (tenant.restored is not None and not standing.has):
                known[guest_id] = each
            # Else it keeps what it has, and what it is to have if that was known before.
        found = self.groups.wanted(known)
        newer: dict[int, DesiredRuleset] = {}
        for guest_id, wanted in found.items():
            standing = self.delivery.guests[guest_id]
            if _is_older(wanted, standing.wanted) and id(wanted) not in newer:
                newer[id(wanted)] = self.groups.renumbered(wanted, standing.guest.tenant)
            self.delivery.want(guest_id, newer.get(id(wanted), wanted), now)

    def _standings(self, guests: Iterable[str]) -> list[DeliveryStatus]:
        return [self.delivery.guests[guest_id] for guest_id in guests]

    def _next_turn(self) -> float | None:
        times = [self.feed.next_tick, self._fresh_pace.due_at]
        if self._is_connected:
            times.append(self.delivery.next_at)
        for tenant in self.tenants.values():
            times.append(tenant.pace.due_at)
            if not tenant.is_heard and not tenant.is_asked_for:
                times.append(tenant.since + GRACE_S)
            if not tenant.is_heard and tenant.bare_since is not None:
                times.append(tenant.bare_since + self._hold_s)
        if self.sources is not None:
            times.append(self.sources.next_end)
        return min((time for time in times if time is not None), default=None)

    def slice_changed(self, item: EndpointSliceObject) -> None:
        """A watch told of a slice (its list did not): how long its way is will be measured."""
        namespace = self.feed.namespaces.get(item.metadata.namespace)
        if namespace is not None:
            self.latency.changed(tenant_of(namespace), item)

    # ---- guests, from kata-bridge

    def present(self, guest: Guest) -> None:
        known = self.delivery.guests.get(guest.id)
        before = None if known is None else known.guest
        self.delivery.present(guest, self._now())
        if before is None or spec_changed(before, guest):
            self._fresh.setdefault(guest.id, self._now())
            self._fresh_pace = self._fresh_pace.changed(self._now())
        self._is_connected = True
        self._wake()

    def gone(self, guest_id: str) -> None:
        self.delivery.gone(guest_id)
        self._forget(guest_id)

    def synced(self) -> None:
        self._is_connected = True
        for guest_id in self.delivery.synced():
            self._forget(guest_id)
        self._wake()

    def lost(self) -> None:
        self._is_connected = False
        self.delivery.lost()

    def _forget(self, guest_id: str) -> None:
        self.asked.pop(guest_id, None)
        self._fresh.pop(guest_id, None)
        self._is_prune_due = True
        self._wake()

    # ---- answers

    def answered(self, push: Push, result: GuestResult) -> None:
        kind = (
            "flush" if push.ruleset is None else "delta" if isinstance(push.ruleset, RulesetDelta) else "full"
        )
        self._metrics.pushes.labels(kind, result.code.name.lower()).inc()
        standing = self.delivery.guests.get(result.guest)
        before = "" if standing is None else standing.problem
        self.delivery.answered(push, result, self._now())
        if standing is not None and result.code is ResultCode.SUPERSEDED:
            self._overtake(standing, result.generation)
        if standing is not None and standing.problem and standing.problem != before:
            level = _log.error if result.code is ResultCode.REFUSED else _log.warning
            level(
                "guest did not take its rules",
                guest=result.guest,
                tenant=standing.guest.tenant,
                pod=f"{standing.guest.namespace}/{standing.guest.name}",
                result=result.code.name,
                reason=result.message,
                digest=push.digest,
            )
        is_settled = standing is None or standing.is_settled
        if not is_settled and not self.delivery.is_held(result.guest):
            self._wake()  # the others' answers leave nothing to do

    def _overtake(self, standing: DeliveryStatus, generation: int) -> None:
        """kata-bridge holds something newer: the clock was set back before our start."""
        self._generations.observe(standing.guest.tenant, generation)
        wanted = standing.wanted
        if wanted is not None and wanted.ruleset.generation <= generation:
            newer = self.groups.renumbered(wanted, standing.guest.tenant)
            self.delivery.want(standing.guest.id, newer, self._now())

    def failed(self, push: Push, unanswered: frozenset[str], is_refused: bool) -> None:
        self._metrics.failed_pushes.inc()
        self.delivery.failed(push, unanswered, self._now(), is_refused=is_refused)
        self._wake()

    def done(self, push: Push) -> None:
        """All answers to a push are in, or will never be."""
        if push.ruleset is not None:
            self.latency.done(push.digest)
            is_delta = isinstance(push.ruleset, RulesetDelta)
            # Under churn there are twenty deltas a second; the metrics count them.
            (_log.debug if is_delta else _log.info)(
                "sent",
                guests=len(push.guests),
                kind="delta" if is_delta else "full",
                generation=push.ruleset.generation,
                digest=push.digest,
                flows=len(push.flush),
            )

    # ---- saved state

    def restored(self, tenant_name: str, found: RestoredTenant | None) -> None:
        """What was saved of a tenant; it counts until the API server is heard."""
        tenant = self.tenants.get(tenant_name)
        if tenant is None or tenant.is_heard or found is None or self.sources is None:
            return
        now = self._now()
        tenant.restored, tenant.restored_at = found, now
        _log.warning("last known Services are used", tenant=tenant_name, age_s=round(found.age_s))
        put_restored(found, self.world, self.feed, self.sources.is_source_of, now)
        self._changed(tenant_name, now)
        self._wake()

    def take_to_save(self) -> frozenset[str]:
        """The tenants whose objects have changed since the last call."""
        taken, self._to_save = frozenset(self._to_save), set()
        return taken


def _is_older(wanted: DesiredRuleset, before: DesiredRuleset | None) -> bool:
    """Whether kata-bridge would take this for superseded by what it was handed before."""
    return (
        before is not None
        and before.digest != wanted.digest
        and wanted.ruleset.generation <= before.ruleset.generation
    )
