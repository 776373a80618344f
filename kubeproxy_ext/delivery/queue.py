# SPDX-License-Identifier: Apache-2.0
"""What each guest has, what it is to have, and what to send for it. Pure.

kata-bridge is handed a ruleset and sees to it, with retries, as long as the guest lives; here is
decided what it is handed, and when again. There is one request under way for a guest at most: what
changes meanwhile goes out when its answer is in, as a delta from what the guest then has.

What a guest has is what kata-bridge last told of it. After a restart, ours or the bridge's, each
guest's ruleset is handed over once, whole, so that the bridge can repair what strangers do to it; a
guest that has it already is left alone by the bridge.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isfinite

from bridge_api.messages import Guest, GuestResult, ResultCode
from kubeproxy_ext.compute.guest_view import GuestRulesResult
from kubeproxy_ext.compute.stale_flows import StaleFlow, stale_flows
from kubeproxy_ext.delivery.in_flight import InFlightBatches
from ruleset.delta import RulesetDelta, difference
from ruleset.document import Ruleset

# kata-bridge tries again by itself; this is for what it may have lost.
RESEND_S = 60.0
# A packet filter that says no says so again; but somebody may have repaired the guest.
REFUSED_RETRY_S = 300.0
# The request failed, not the guest: the connection is new, or soon will be.
RETRY_S = 1.0
# An earlier ruleset is good for a delta while some guest may have it; more are of no use.
MAX_BASES = 64


@dataclass(frozen=True, slots=True)
class DesiredRuleset:
    """What a guest is to have, and what that was computed from, a family each."""

    ruleset: Ruleset
    results: tuple[GuestRulesResult, ...]

    @property
    def digest(self) -> str:
        return self.ruleset.digest


@dataclass(frozen=True, slots=True)
class Push:
    """One request: a ruleset for guests that need the same, and the flows to flush after it.

    `ruleset` None: the rules stay, but flows are to be flushed all the same.
    """

    guests: tuple[str, ...]
    ruleset: Ruleset | RulesetDelta | None
    flush: tuple[StaleFlow, ...]

    @property
    def digest(self) -> str:
        return "" if self.ruleset is None else self.ruleset.digest


@dataclass(slots=True)
class DeliveryStatus:
    """One guest.

    `has` is the digest of what it has, as far as is known; `handed` of what kata-bridge has for it;
    `sending` of what is under way. `repaired` are the outcomes that its flows agree with, None when
    nothing is known of them. `behind_since` is when it last ceased to have what it is to have.
    """

    guest: Guest
    desired: DesiredRuleset | None = None
    applied: str = ""
    submitted: str = ""
    in_flight: str = ""
    flows_match: tuple[GuestRulesResult, ...] | None = None
    is_flushing: bool = False
    retry_at: float = float("-inf")
    behind_since: float | None = None
    problem: str = ""

    @property
    def is_idle(self) -> bool:
        """Whether something could be sent: it is known what, there is a way, and nothing under way."""
        guest = self.guest
        has_way = guest.capabilities is not None and not guest.not_injectable
        return self.desired is not None and has_way and not self.in_flight and not self.is_flushing

    @property
    def is_settled(self) -> bool:
        """Whether it has what it is to have, and its flows agree with that."""
        return self.desired is None or (not self.is_behind and self.flows_match is self.desired.results)

    @property
    def is_behind(self) -> bool:
        return self.desired is not None and self.applied != self.desired.digest


@dataclass(slots=True)
class _Request:
    guests: list[str] = field(default_factory=list)
    ruleset: Ruleset | RulesetDelta | None = None
    flush: tuple[StaleFlow, ...] = ()


class Delivery:
    """All guests of the node. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._guests: dict[str, DeliveryStatus] = {}
        self._bases: dict[str, Ruleset] = {}
        self._unconfirmed: set[str] = set()
        self._in_flight = InFlightBatches()
        self._barrier_until: float | None = None
        """When the first of those may be sent something that wait for the others of their request."""

    @property
    def guests(self) -> dict[str, DeliveryStatus]:
        """By id; not to be changed."""
        return self._guests

    # ---- what kata-bridge tells

    def on_guest(self, guest: Guest, now: float) -> DeliveryStatus:
        """A guest is there, or something of it has changed."""
        status = self._guests.get(guest.id)
        if status is None:
            status = self._guests[guest.id] = DeliveryStatus(guest)
        was_behind = status.is_behind
        before, status.guest, status.applied = status.guest, guest, guest.digest
        self._unconfirmed.discard(guest.id)
        if status.is_behind and not was_behind and status.submitted:
            # It lost its rules, or this was told before they were in. kata-bridge has them.
            status.retry_at = now + RESEND_S
        self._update_behind(status, now)
        if before.capabilities != guest.capabilities or before.not_injectable != guest.not_injectable:
            # Another channel, or one at last: what went wrong before says nothing any more.
            status.submitted, status.problem, status.retry_at = "", "", float("-inf")
        return status

    def on_guest_gone(self, guest_id: str) -> None:
        self._guests.pop(guest_id, None)
        self._unconfirmed.discard(guest_id)
        self._in_flight.on_guest_gone(guest_id)

    def on_disconnect(self) -> None:
        """The connection to kata-bridge ended; what it was handed and answers with is not known."""
        for status in self._guests.values():
            status.submitted = status.in_flight = ""
            status.is_flushing, status.retry_at = False, float("-inf")
        self._in_flight.clear()
        self._unconfirmed = set(self._guests)

    def on_synced(self) -> tuple[str, ...]:
        """All guests have been told after a connection began; the others are gone: their ids."""
        missing = tuple(sorted(self._unconfirmed))
        for guest_id in missing:
            self.on_guest_gone(guest_id)
        return missing

    # ---- what is wanted

    def set_desired(self, guest_id: str, desired: DesiredRuleset | None, now: float) -> None:
        """A guest is to have this; None: nothing is known yet, so it keeps what it has."""
        status = self._guests[guest_id]
        status.desired = desired
        if desired is not None:
            self._bases[desired.digest] = desired.ruleset
        self._update_behind(status, now)

    # ---- what to do

    def take_due(self, now: float) -> tuple[Push, ...]:
        """The requests to make now. Each of their guests is then under way until `answered`."""
        # Guests of two tenants are in no request together, whatever they have in common.
        requests: dict[tuple[str, str, str, tuple[StaleFlow, ...]], _Request] = {}
        deltas: dict[tuple[str, str], RulesetDelta | None] = {}
        flows: dict[tuple[int, int], tuple[StaleFlow, ...]] = {}
        self._barrier_until = None
        for guest_id, status in self._guests.items():
            desired = status.desired
            if desired is None or not self._is_due(status, desired, now):
                continue
            barrier_until = self._in_flight.until(guest_id)
            if barrier_until is not None and barrier_until > now:
                self._barrier_until = min(barrier_until, self._barrier_until or barrier_until)
                continue
            flush = _flows(status, desired, flows)
            ruleset: Ruleset | RulesetDelta | None = None
            if status.is_behind or status.submitted != desired.digest:
                ruleset = self._ruleset(status, desired, deltas)
                status.in_flight = desired.digest
            elif flush:
                status.is_flushing = True
            else:
                status.flows_match = desired.results
                continue
            base = ruleset.base_digest if isinstance(ruleset, RulesetDelta) else ""
            digest = desired.digest if ruleset is not None else ""
            key = (status.guest.tenant, digest, base, flush)
            batch = requests.setdefault(key, _Request(ruleset=ruleset, flush=flush))
            batch.guests.append(guest_id)
        for each in requests.values():
            if each.ruleset is not None:
                self._in_flight.sent(each.guests)
        self._drop_unused_bases()
        return tuple(Push(tuple(each.guests), each.ruleset, each.flush) for each in requests.values())

    @property
    def next_at(self) -> float | None:
        """When `plan` has to be asked again though nothing happens."""
        waiting = (s for s in self._guests.values() if s.is_idle and (s.is_behind or not s.submitted))
        times = [s.retry_at for s in waiting if isfinite(s.retry_at)]
        if self._barrier_until is not None:
            times.append(self._barrier_until)
        return min(times, default=None)

    def is_waiting_for_batch(self, guest_id: str) -> bool:
        """Whether there is nothing to plan for it before `next_at` but what others' answers bring."""
        return self._barrier_until is not None and self._in_flight.until(guest_id) is not None

    def on_result(self, push: Push, result: GuestResult, now: float) -> None:
        """kata-bridge said what became of a push in one guest."""
        self._in_flight.on_result(result.guest, now)
        status = self._guests.get(result.guest)
        if status is None:
            return
        if push.ruleset is None:
            status.is_flushing = False
            # What could not be flushed is not tried again: a flow is worth one attempt.
            status.flows_match = status.desired.results if status.desired else None
            return
        status.in_flight = ""
        match result.code:
            case ResultCode.APPLIED | ResultCode.UNCHANGED:
                self._applied(status, push, result)
            case ResultCode.NEEDS_FULL:
                status.applied, status.submitted, status.retry_at = result.digest, "", float("-inf")
            case ResultCode.SUPERSEDED:
                # Not by us: there is one request at a time. Somebody else writes, too.
                status.submitted, status.retry_at = "", now + RETRY_S
            case ResultCode.REFUSED:
                status.submitted, status.retry_at = push.digest, now + REFUSED_RETRY_S
            case _:
                status.submitted, status.retry_at = push.digest, now + RESEND_S
        if result.code not in (ResultCode.APPLIED, ResultCode.UNCHANGED, ResultCode.NEEDS_FULL):
            status.problem = f"{result.code.name}: {result.message}".removesuffix(": ")
        self._update_behind(status, now)

    def on_failure(self, push: Push, unanswered: Iterable[str], now: float, *, is_refused: bool) -> None:
        """The request itself failed before these guests were answered for.

        `is_refused`: it is at fault, and as it is would be again.
        """
        retry_at = now + (REFUSED_RETRY_S if is_refused else RETRY_S)
        for guest_id in unanswered:
            self._in_flight.on_result(guest_id, now)
            status = self._guests.get(guest_id)
            if status is None:
                continue
            status.is_flushing = False
            if push.ruleset is not None and status.in_flight == push.digest:
                # It may have been applied or not: a delta would have to know.
                status.in_flight, status.submitted, status.retry_at = "", "", retry_at

    # ---- inside

    def _is_due(self, status: DeliveryStatus, desired: DesiredRuleset, now: float) -> bool:
        if not status.is_idle:
            return False
        if status.submitted not in ("", desired.digest):
            return True
        if status.is_behind or not status.submitted:
            # Of what kata-bridge has, or would not take, not before the time is up.
            return status.retry_at <= now
        return status.flows_match is not desired.results

    def _ruleset(
        self, status: DeliveryStatus, desired: DesiredRuleset, deltas: dict[tuple[str, str], RulesetDelta | None]
    ) -> Ruleset | RulesetDelta:
        # The bridge makes the delta's outcome of what it was handed, the guest of what it has.
        base = self._bases.get(status.applied) if status.applied == status.submitted else None
        capabilities = status.guest.capabilities
        if base is None or capabilities is None or not capabilities.deltas or base.digest == desired.digest:
            return desired.ruleset
        pair = (base.digest, desired.digest)
        if pair not in deltas:
            deltas[pair] = _worthwhile(difference(base, desired.ruleset), desired.ruleset)
        return deltas[pair] or desired.ruleset

    def _applied(self, status: DeliveryStatus, push: Push, result: GuestResult) -> None:
        status.applied = result.digest or push.digest
        status.submitted, status.problem = push.digest, ""
        status.retry_at = float("-inf")
        if status.desired is not None and status.desired.digest == push.digest:
            status.flows_match = status.desired.results

    def _update_behind(self, status: DeliveryStatus, now: float) -> None:
        if not status.is_behind:
            status.behind_since, status.problem = None, ""
        elif status.behind_since is None:
            status.behind_since = now

    def _drop_unused_bases(self) -> None:
        used: dict[str, None] = {}
        for status in self._guests.values():
            desired = status.desired.digest if status.desired is not None else ""
            used |= dict.fromkeys((desired, status.applied, status.in_flight))
        kept = [digest for digest in used if digest in self._bases][:MAX_BASES]
        self._bases = {digest: self._bases[digest] for digest in kept}


def _worthwhile(delta: RulesetDelta | None, whole: Ruleset) -> RulesetDelta | None:
    """The delta, unless it says nearly as much as the whole."""
    if delta is None:
        return None
    touched = sum(len(each.touched()) for each in delta.documents)
    return delta if touched * 2 <= sum(len(each.objects) for each in whole.documents) else None


def _flows(
    status: DeliveryStatus, desired: DesiredRuleset, known: dict[tuple[int, int], tuple[StaleFlow, ...]]
) -> tuple[StaleFlow, ...]:
    capabilities = status.guest.capabilities
    if capabilities is None or not capabilities.conntrack:
        return ()
    if status.flows_match is None and (not status.applied or not status.is_behind):
        # Nothing has been translated in it yet; or it has just what it is to have, as before we
        # came: there is nothing to tell its flows from what they should be.
        return ()
    pair = (id(status.flows_match), id(desired.results))
    if pair not in known:
        before = {result.rules.family: result for result in status.flows_match or ()}
        found = [stale_flows(before.get(new.rules.family), new) for new in desired.results]
        known[pair] = tuple(flow for each in found for flow in each)
    return known[pair]
