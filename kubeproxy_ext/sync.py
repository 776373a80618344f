# SPDX-License-Identifier: Apache-2.0
"""Brings the guests of this node in line with the cached objects: one `sync()` after another.

A sync trusts or distrusts relists, follows the tenants that have guests here, computes the rules that
are due and returns what to send. It runs on the event loop without an await, so it sees one state.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from bridge_api.messages import Guest, GuestResult, ResultCode
from daemonkit import logs
from daemonkit.kube.relist_guard import DistrustedRemoval, trusted_at
from kubeproxy_ext.cache.object_cache import ObjectCache
from kubeproxy_ext.cache.service_cidrs import ServiceCidrs
from kubeproxy_ext.cache.tenants import RestoredTenant, TenantSync, put_restored
from kubeproxy_ext.compute.rules_probe import RulesProbe
from kubeproxy_ext.compute.service_state import ServiceState
from kubeproxy_ext.compute.sync_rate import SyncRateLimiter
from kubeproxy_ext.delivery.latency import ProgrammingLatency
from kubeproxy_ext.delivery.queue import DeliveryStatus, DesiredRuleset, RulesetDelivery, RulesetPush
from kubeproxy_ext.delivery.rulesets import (
    Generations,
    GuestSpec,
    Ineligible,
    Rulesets,
    guest_spec,
    spec_changed,
)
from kubeproxy_ext.metrics import Metrics
from ruleset.delta import RulesetDelta

# A list takes some hundredths of a second. After this long without one, saved Services are used.
GRACE_S = 2.0
# For how long one sync computes rules. All rules of 30 guests with 1 000 Services take less.
SYNC_BUDGET_S = 0.02
# Guests that come together, as after our start, share one request. One that comes alone is not delayed.
GUEST_GAP_S = 0.005
# Something that is due and cannot be done must not keep the loop busy.
MIN_WAIT_S = 0.001

_log = logs.get(__name__)


class TenantWatch(Protocol):
    """The part of `watch.Watch` that the controller uses."""

    def follow(self, tenants: Iterable[str]) -> None: ...
    @property
    def next_watch_stop_at(self) -> float | None: ...
    @property
    def followed(self) -> Iterable[str]: ...
    def has_synced(self, tenant: str) -> bool: ...
    def is_listed(self, namespace: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class SyncActions:
    """What a sync asks for: requests to send, tenants whose saved state to load, and the next sync."""

    pushes: tuple[RulesetPush, ...]
    restores: tuple[str, ...]
    next_at: float | None


class RulesetController:
    """The guests and tenants of this node. It calls `wake` when `sync` has something to do.

    With `can_restore` tenants that do not sync within `GRACE_S` get their saved state: `sync` names them,
    and `restored` takes the answer.
    """

    def __init__(
        self,
        node_name: str,
        service_cidrs: ServiceCidrs,
        state: ServiceState,
        cache: ObjectCache,
        watch: TenantWatch,
        latency: ProgrammingLatency,
        metrics: Metrics,
        *,
        hold_s: float,
        can_restore: bool,
        rules_probe: RulesProbe | None = None,
        now: Callable[[], float],
        wall: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self.state = state
        self.cache = cache
        self.delivery = RulesetDelivery()
        self.tenants: dict[str, TenantSync] = {}
        self.guest_specs: dict[str, GuestSpec | Ineligible] = {}
        self.distrusted: frozenset[DistrustedRemoval] = frozenset()
        self._generations = Generations(wall)
        self.rulesets = Rulesets(state, self._generations, rules_probe)
        self._latency = latency
        self._node_name = node_name
        self._service_cidrs = service_cidrs
        self._watch = watch
        self._hold_s = hold_s
        self._metrics = metrics
        self._now = now
        self._wall = wall
        self._wake = wake
        self._can_restore = can_restore
        self._is_connected = False
        self._new_guests: dict[str, float] = {}  # since when
        self._new_guest_limiter = SyncRateLimiter()
        self._is_prune_due = False
        self._to_save: set[str] = set()
        self._seen_specs: frozenset[GuestSpec] = frozenset()

    # ---- sync

    def sync(self) -> SyncActions:
        """Do what is due."""
        now = self._now()
        self._report_distrust(self.cache.trust_expired(now))
        restores = self._follow_tenants(now)
        for group in self.state.take_changed_groups():
            if group.tenant in self.tenants:
                self._mark_changed(group.tenant, now)
        self._compute_due(now)
        if self._new_guest_limiter.is_due(now):
            self._compute_new_guests(now)
        if self._is_prune_due:
            self._prune()
        pushes = self.delivery.take_due(now) if self._is_connected else ()
        for push in pushes:
            self._metrics.stale_flows.inc(len(push.flush) * len(push.guests))
        return SyncActions(pushes, restores, self._next_sync_at())

    def _report_distrust(self, expired: Iterable[DistrustedRemoval]) -> None:
        for each in expired:
            _log.warning(
                "holdSeconds have passed, relist is trusted",
                tenant=each.tenant,
                namespace=each.lacking.namespace,
            )
        distrusted = frozenset(self.cache.distrusted)
        for each in distrusted - self.distrusted:
            self._metrics.relists_distrusted.labels(each.tenant).inc()
            _log.error(
                "relist removed a Namespace though it has Services, keeping it for holdSeconds"
                if each.lacking.kind == "Namespace"
                else "relist removed all Services though EndpointSlices remain, keeping them for holdSeconds",
                tenant=each.tenant,
                namespace=each.lacking.namespace,
                services=len(each.names),
                hold_s=self._hold_s,
            )
        self.distrusted = distrusted

    def _follow_tenants(self, now: float) -> tuple[str, ...]:
        """Follow the tenants that have guests here; returns those whose saved state is wanted."""
        present = {s.guest.tenant for s in self.delivery.guests.values() if s.guest.tenant}
        self._watch.follow(present)
        for name in present - self.tenants.keys():
            self.tenants[name] = TenantSync(now)
        for name in self.tenants.keys() - set(self._watch.followed):
            del self.tenants[name]
            self._latency.forget(name)
        restores = []
        for name, tenant in self.tenants.items():
            cidrs = self._service_cidrs.of(name, self.cache)
            if tenant.service_cidrs != cidrs:
                tenant.service_cidrs = cidrs
                self._mark_changed(name, now)
            if tenant.has_synced:
                continue
            if self._watch.has_synced(name) and self._judge_first_lists(name, tenant, now):
                tenant.has_synced, tenant.restored = True, None
                _log.info("tenant synced", tenant=name, after_s=round(now - tenant.since, 3))
                self._mark_changed(name, now)
            elif now >= tenant.since + GRACE_S and not tenant.is_restore_requested:
                tenant.is_restore_requested = True
                if self._can_restore:
                    restores.append(name)
                else:
                    _log.warning("tenant not synced, its new guests wait", tenant=name)
        return tuple(restores)

    def _judge_first_lists(self, name: str, tenant: TenantSync, now: float) -> bool:
        """Distrust first lists with endpoints and no Service. Returns whether they are trusted now."""
        if not self.cache.has_only_endpoints(name):
            tenant.only_endpoints_since = None
            return True
        if tenant.only_endpoints_since is None:
            tenant.only_endpoints_since = now
            self._metrics.relists_distrusted.labels(name).inc()
            _log.error(
                "first lists have EndpointSlices and no Services, guests keep their rules for holdSeconds",
                tenant=name,
                hold_s=self._hold_s,
            )
        return now >= trusted_at(tenant.only_endpoints_since, self._hold_s)

    def _mark_changed(self, tenant: str, now: float) -> None:
        self.tenants[tenant].limiter = self.tenants[tenant].limiter.changed(now)

    def _compute_due(self, now: float) -> None:
        """Compute the rules of tenants that are due, within `SYNC_BUDGET_S`.

        The order is by when a tenant became due plus how long its rules took. So no tenant waits for a
        larger one. A tenant with slow rules waits at most as long as it delays others.
        The rest follows in the next sync, after what has been computed was sent.
        """
        due = sorted(
            (each.limiter.due_at + each.sync_duration_s, each.sync_duration_s, name)
            for name, each in self.tenants.items()
            if each.limiter.due_at is not None and each.limiter.is_due(now)
        )
        for number, (_, duration_s, tenant) in enumerate(due):
            if number and self._now() - now + duration_s >= SYNC_BUDGET_S:
                continue
            self._compute(tenant)

    def _compute(self, name: str) -> None:
        """Compute the rules of one tenant's guests."""
        started = self._now()
        tenant = self.tenants[name]
        guests = {
            guest_id: status.desired.digest if status.desired is not None else ""
            for guest_id, status in self.delivery.guests.items()
            if status.guest.tenant == name
        }
        self._set_desired(guests)
        ended = self._now()
        tenant.limiter = tenant.limiter.ran(started, ended)
        tenant.sync_duration_s = ended - started
        self._metrics.sync_duration.observe(max(0.0, ended - started))
        self._metrics.last_sync.set(self._wall())
        if tenant.has_synced:
            self._to_save.add(name)
            self._report_changed(name, guests)

    def _report_changed(self, tenant: str, before: Mapping[str, str]) -> None:
        """Begin to measure changes in guests. `before` are their desired digests before the computation."""
        changed = {}
        for guest_id, digest in before.items():
            status = self.delivery.guests[guest_id]
            if status.desired is None or not status.is_behind:
                self._latency.forget_guest(guest_id)
            elif status.applied and status.desired.digest != digest:  # a guest's first rules are no change
                changed[guest_id] = status.desired.digest
        self._latency.computed(tenant, changed)

    def _compute_new_guests(self, now: float) -> None:
        """Compute for guests that came or changed, whether or not their tenant is due."""
        self._new_guest_limiter = self._new_guest_limiter.ran(now, now, GUEST_GAP_S)
        by_tenant: dict[str, dict[str, float]] = {}
        for guest_id, since in self._new_guests.items():
            if guest_id in self.delivery.guests:
                by_tenant.setdefault(self.delivery.guests[guest_id].guest.tenant, {})[guest_id] = since
        self._new_guests.clear()
        costs = {
            name: self.tenants[name].sync_duration_s if name in self.tenants else 0.0 for name in by_tenant
        }
        order = sorted((min(guests.values()) + costs[name], name) for name, guests in by_tenant.items())
        for number, (_, tenant) in enumerate(order):
            if number and self._now() - now + costs[tenant] >= SYNC_BUDGET_S:
                self._new_guests.update(by_tenant[tenant])  # in the next sync, as in `_compute_due`
                self._new_guest_limiter = self._new_guest_limiter.changed(now)
            else:
                self._set_desired(by_tenant[tenant])

    def _prune(self) -> None:
        """Drop what was made for guests that are gone, or that see other Services now."""
        self._is_prune_due = False
        self.rulesets.keep_only(s.desired for s in self.delivery.guests.values() if s.desired is not None)
        seen = frozenset(each for each in self.guest_specs.values() if isinstance(each, GuestSpec))
        if seen != self._seen_specs:
            self._seen_specs = seen
            self.rulesets.keep_results_of(seen)

    def _set_desired(self, guests: Iterable[str]) -> None:
        """Set the desired rulesets of these guests, where their tenants' Services are known."""
        now = self._now()
        self._is_prune_due = True
        known: dict[str, GuestSpec] = {}
        for guest_id in guests:
            status = self.delivery.guests[guest_id]
            tenant = self.tenants.get(status.guest.tenant)
            cidrs = () if tenant is None else tenant.service_cidrs
            spec = self.guest_specs[guest_id] = guest_spec(status.guest, self._node_name, cidrs)
            if isinstance(spec, Ineligible) or tenant is None:
                self.delivery.set_desired(guest_id, None, now)
            elif tenant.has_synced or (tenant.restored is not None and not status.applied):
                known[guest_id] = spec
            # Otherwise the guest keeps its rules, and its desired ruleset if it had one.
        newer: dict[int, DesiredRuleset] = {}
        for guest_id, desired in self.rulesets.desired_for(known).items():
            status = self.delivery.guests[guest_id]
            if _is_superseded(desired, status.desired) and id(desired) not in newer:
                newer[id(desired)] = self.rulesets.with_next_generation(desired, status.guest.tenant)
            self.delivery.set_desired(guest_id, newer.get(id(desired), desired), now)

    def _next_sync_at(self) -> float | None:
        times = [self.cache.next_expiry_at, self._new_guest_limiter.due_at, self._watch.next_watch_stop_at]
        if self._is_connected:
            times.append(self.delivery.next_at)
        for tenant in self.tenants.values():
            times.append(tenant.limiter.due_at)
            if not tenant.has_synced and not tenant.is_restore_requested:
                times.append(tenant.since + GRACE_S)
            if not tenant.has_synced and tenant.only_endpoints_since is not None:
                times.append(trusted_at(tenant.only_endpoints_since, self._hold_s))
        return min((time for time in times if time is not None), default=None)

    # ---- guests, from kata-bridge

    def present(self, guest: Guest) -> None:
        known = self.delivery.guests.get(guest.id)
        before = None if known is None else known.guest
        self._report_applied(self.delivery.on_guest(guest, self._now()))
        if before is None or spec_changed(before, guest):
            self._new_guests.setdefault(guest.id, self._now())
            self._new_guest_limiter = self._new_guest_limiter.changed(self._now())
        self._is_connected = True
        self._wake()

    def gone(self, guest_id: str) -> None:
        self.delivery.on_guest_gone(guest_id)
        self._forget(guest_id)

    def synced(self) -> None:
        self._is_connected = True
        for guest_id in self.delivery.on_synced():
            self._forget(guest_id)
        self._wake()

    def disconnected(self) -> None:
        self._is_connected = False
        self.delivery.on_disconnect()

    def _forget(self, guest_id: str) -> None:
        self.guest_specs.pop(guest_id, None)
        self._new_guests.pop(guest_id, None)
        self._latency.forget_guest(guest_id)
        self._is_prune_due = True
        self._wake()

    def _report_applied(self, status: DeliveryStatus) -> None:
        if status.desired is None:
            self._latency.forget_guest(status.guest.id)  # it gets no rules any more
        else:
            self._latency.applied(status.guest.id, status.applied, is_desired=not status.is_behind)

    # ---- results, from kata-bridge

    def on_result(self, push: RulesetPush, result: GuestResult) -> None:
        self._metrics.pushes.labels(push.kind, result.code.name.lower()).inc()
        status = self.delivery.guests.get(result.guest)
        before = "" if status is None else status.problem
        self.delivery.on_result(push, result, self._now())
        if status is not None:
            self._report_applied(status)
        if status is not None and result.code is ResultCode.SUPERSEDED:
            self._supersede(status, result.generation)
        if status is not None and status.problem and status.problem != before:
            level = _log.error if result.code is ResultCode.REFUSED else _log.warning
            level(
                "ruleset was not applied in a guest",
                guest=result.guest,
                tenant=status.guest.tenant,
                pod=f"{status.guest.namespace}/{status.guest.name}",
                result=result.code.name,
                reason=result.message,
                digest=push.digest,
            )
        is_settled = status is None or status.is_settled
        if not is_settled and not self.delivery.is_waiting_for_batch(result.guest):
            self._wake()  # after other results there is nothing to do

    def _supersede(self, status: DeliveryStatus, generation: int) -> None:
        """kata-bridge holds a newer generation: the clock was set back before our start."""
        self._generations.observe(status.guest.tenant, generation)
        desired = status.desired
        if desired is not None and desired.ruleset.generation <= generation:
            newer = self.rulesets.with_next_generation(desired, status.guest.tenant)
            self.delivery.set_desired(status.guest.id, newer, self._now())

    def on_failure(self, push: RulesetPush, unanswered: frozenset[str], is_refused: bool) -> None:
        self._metrics.failed_pushes.inc()
        self.delivery.on_failure(push, unanswered, self._now(), is_refused=is_refused)
        self._wake()

    def on_done(self, push: RulesetPush) -> None:
        """All results of a push are in."""
        if push.ruleset is not None:
            # Under churn there are twenty deltas a second; the metrics count them.
            (_log.debug if isinstance(push.ruleset, RulesetDelta) else _log.info)(
                "ruleset pushed",
                guests=len(push.guests),
                kind=push.kind,
                generation=push.ruleset.generation,
                digest=push.digest,
                flows=len(push.flush),
            )

    # ---- saved state

    def restored(self, name: str, found: RestoredTenant | None) -> None:
        """Use a tenant's saved state until the tenant has synced. None: there is none."""
        tenant = self.tenants.get(name)
        if tenant is None or tenant.has_synced or found is None:
            return
        now = self._now()
        tenant.restored, tenant.restored_at = found, now
        _log.warning("tenant not synced, saved Services are used", tenant=name, age_s=round(found.age_s))
        put_restored(found, self.state, self.cache, self._watch.is_listed, now)
        self._mark_changed(name, now)
        self._wake()

    def take_to_save(self) -> frozenset[str]:
        """The tenants whose objects have changed since the last call."""
        taken, self._to_save = frozenset(self._to_save), set()
        return taken


async def run_sync_loop(
    controller: RulesetController,
    act: Callable[[SyncActions], None],
    woken: asyncio.Event,
    now: Callable[[], float],
) -> None:
    """Sync whenever something has happened or is due, until cancelled."""
    while True:
        actions = controller.sync()
        act(actions)
        next_at = actions.next_at
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if next_at is None else max(MIN_WAIT_S, next_at - now())):
                await woken.wait()
        woken.clear()


def _is_superseded(desired: DesiredRuleset, before: DesiredRuleset | None) -> bool:
    """Whether kata-bridge would take this for older than what it was given before."""
    return (
        before is not None
        and before.digest != desired.digest
        and desired.ruleset.generation <= before.ruleset.generation
    )
