# SPDX-License-Identifier: Apache-2.0
"""The delivery status of each guest, and what to send next. Pure.

kata-bridge keeps the ruleset that it was given for a guest, and retries as long as the guest lives. Here
is decided what it gets, and when it gets it again. A guest has one request in flight at most: what
changes meanwhile goes out after the result, as a delta from what the guest then has.

A guest's applied ruleset is what kata-bridge last reported. After a restart, ours or kata-bridge's,
each guest's ruleset is submitted once, whole, so that kata-bridge can repair it against others'
changes. In a guest that has it already kata-bridge changes nothing.
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
from ruleset.model import Protocol

# kata-bridge retries by itself; this covers what it may have lost.
RESEND_S = 60.0
# A packet filter that refused once refuses again until the guest is repaired.
REFUSED_RETRY_S = 300.0
# The request failed, not the guest: the connection is new, or will be soon.
RETRY_S = 1.0
# Earlier rulesets are kept as bases of deltas, for guests that may still have them.
MAX_BASES = 64


@dataclass(frozen=True, slots=True)
class DesiredRuleset:
    """A guest's desired ruleset, and the results that it was rendered from, one for each family."""

    ruleset: Ruleset
    results: tuple[GuestRulesResult, ...]

    @property
    def digest(self) -> str:
        return self.ruleset.digest


@dataclass(frozen=True, slots=True)
class RulesetPush:
    """One request: a ruleset for guests that need the same, and the flows to flush after it.

    With `ruleset` None the rules stay, and only the flows are flushed.
    """

    guests: tuple[str, ...]
    ruleset: Ruleset | RulesetDelta | None
    flush: tuple[StaleFlow, ...]

    @property
    def digest(self) -> str:
        return "" if self.ruleset is None else self.ruleset.digest

    @property
    def kind(self) -> str:
        """full, delta or flush: a label of metrics."""
        if self.ruleset is None:
            return "flush"
        return "delta" if isinstance(self.ruleset, RulesetDelta) else "full"


@dataclass(slots=True)
class DeliveryStatus:
    """One guest. Rulesets are named by their digests.

    `applied` is what the guest has, as last reported; `submitted` is what kata-bridge was given for it;
    `in_flight` is being sent, and `sent` is what that request or the last one was made from. `flows_match`
    are the results that its conntrack entries agree with, None when that is unknown. `behind_since` is when
    `applied` ceased to be the desired ruleset.
    """

    guest: Guest
    desired: DesiredRuleset | None = None
    applied: str = ""
    submitted: str = ""
    in_flight: str = ""
    sent: DesiredRuleset | None = None
    flows_match: tuple[GuestRulesResult, ...] | None = None
    is_flushing: bool = False
    retry_at: float = float("-inf")
    behind_since: float | None = None
    problem: str = ""

    @property
    def can_send(self) -> bool:
        """Whether something is desired, the guest is reachable, and nothing is in flight."""
        guest = self.guest
        is_reachable = guest.capabilities is not None and not guest.not_injectable
        return self.desired is not None and is_reachable and not self.in_flight and not self.is_flushing

    @property
    def is_settled(self) -> bool:
        """Whether the desired ruleset is applied and the guest's flows agree with it."""
        return self.desired is None or (not self.is_behind and self.flows_match is self.desired.results)

    @property
    def is_behind(self) -> bool:
        return self.desired is not None and self.applied != self.desired.digest


@dataclass(slots=True)
class _PushRequest:
    guests: list[str] = field(default_factory=list)
    ruleset: Ruleset | RulesetDelta | None = None
    flush: tuple[StaleFlow, ...] = ()


class RulesetDelivery:
    """All guests of the node. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._guests: dict[str, DeliveryStatus] = {}
        self._bases: dict[str, Ruleset] = {}
        self._unconfirmed: set[str] = set()
        self._in_flight = InFlightBatches()
        self._barrier_until: float | None = None
        """The first end of a batch barrier that holds a guest back."""

    @property
    def guests(self) -> dict[str, DeliveryStatus]:
        """By id; not to be changed."""
        return self._guests

    # ---- guests, from kata-bridge

    def on_guest(self, guest: Guest, now: float) -> DeliveryStatus:
        """A guest exists, or something of it has changed."""
        status = self._guests.get(guest.id)
        if status is None:
            status = self._guests[guest.id] = DeliveryStatus(guest)
        was_behind = status.is_behind
        before, status.guest, status.applied = status.guest, guest, guest.digest
        self._unconfirmed.discard(guest.id)
        if status.is_behind and not was_behind and status.submitted:
            # The guest lost its rules, or this event is older than they are. kata-bridge repairs the first.
            status.retry_at = now + RESEND_S
        self._update_behind(status, now)
        if before.capabilities != guest.capabilities or before.not_injectable != guest.not_injectable:
            # The guest has another channel, or its first one: earlier failures do not count.
            status.submitted, status.problem, status.retry_at = "", "", float("-inf")
        return status

    def on_guest_gone(self, guest_id: str) -> None:
        self._guests.pop(guest_id, None)
        self._unconfirmed.discard(guest_id)
        self._in_flight.gone(guest_id)

    def on_disconnect(self) -> None:
        """The connection to kata-bridge ended. What was submitted on it is unknown now."""
        for status in self._guests.values():
            status.submitted = status.in_flight = ""
            status.is_flushing, status.retry_at = False, float("-inf")
        self._in_flight.clear()
        self._unconfirmed = set(self._guests)

    def on_synced(self) -> tuple[str, ...]:
        """kata-bridge has listed its guests on a new connection. Returns the ids of those that are gone."""
        missing = tuple(sorted(self._unconfirmed))
        for guest_id in missing:
            self.on_guest_gone(guest_id)
        return missing

    # ---- desired rulesets

    def set_desired(self, guest_id: str, desired: DesiredRuleset | None, now: float) -> None:
        """Set what a guest shall have. None: unknown, so it keeps what it has."""
        status = self._guests[guest_id]
        status.desired = desired
        if desired is not None:
            self._bases[desired.digest] = desired.ruleset
        self._update_behind(status, now)

    # ---- requests

    def take_due(self, now: float) -> tuple[RulesetPush, ...]:
        """The requests to send now. Their guests stay in flight until `on_result` or `on_failure`."""
        # A request never has guests of two tenants, whatever they have in common.
        requests: dict[tuple[str, str, str, tuple[StaleFlow, ...]], _PushRequest] = {}
        deltas: dict[tuple[str, str], RulesetDelta | None] = {}
        flows: dict[tuple[int, int, bool], tuple[StaleFlow, ...]] = {}
        self._barrier_until = None
        for guest_id, status in self._guests.items():
            desired = status.desired
            if desired is None or not self._is_due(status, desired, now):
                continue
            barrier_until = self._in_flight.barrier_until(guest_id)
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
            status.sent = desired
            base = ruleset.base_digest if isinstance(ruleset, RulesetDelta) else ""
            digest = desired.digest if ruleset is not None else ""
            key = (status.guest.tenant, digest, base, flush)
            request = requests.setdefault(key, _PushRequest(ruleset=ruleset, flush=flush))
            request.guests.append(guest_id)
        for each in requests.values():
            if each.ruleset is not None:
                self._in_flight.sent(each.guests)
        self._drop_unused_bases()
        return tuple(RulesetPush(tuple(each.guests), each.ruleset, each.flush) for each in requests.values())

    @property
    def next_at(self) -> float | None:
        """When `take_due` has something to return though nothing happens."""
        waiting = (s for s in self._guests.values() if s.can_send and (s.is_behind or not s.submitted))
        times = [s.retry_at for s in waiting if isfinite(s.retry_at)]
        if self._barrier_until is not None:
            times.append(self._barrier_until)
        return min(times, default=None)

    def is_waiting_for_batch(self, guest_id: str) -> bool:
        """Whether the guest waits for its batch: until `next_at`, or the results of the others."""
        return self._barrier_until is not None and self._in_flight.barrier_until(guest_id) is not None

    def on_result(self, push: RulesetPush, result: GuestResult, now: float) -> None:
        """kata-bridge reported the result of a push in one guest."""
        self._in_flight.answered(result.guest, now)
        status = self._guests.get(result.guest)
        if status is None:
            return
        if push.ruleset is None:
            status.is_flushing = False
            # A flush is not retried: a stale flow is worth one attempt.
            status.flows_match = status.sent.results if status.sent is not None else None
            return
        status.in_flight = ""
        match result.code:
            case ResultCode.APPLIED | ResultCode.UNCHANGED:
                self._applied(status, push, result)
            case ResultCode.NEEDS_FULL:
                status.applied, status.submitted, status.retry_at = result.digest, "", float("-inf")
            case ResultCode.SUPERSEDED:
                # There is one request of ours at a time, so another client submits rulesets too.
                status.submitted, status.retry_at = "", now + RETRY_S
            case ResultCode.REFUSED:
                status.submitted, status.retry_at = push.digest, now + REFUSED_RETRY_S
            case _:
                status.submitted, status.retry_at = push.digest, now + RESEND_S
        if result.code not in (ResultCode.APPLIED, ResultCode.UNCHANGED, ResultCode.NEEDS_FULL):
            status.problem = f"{result.code.name}: {result.message}".removesuffix(": ")
        self._update_behind(status, now)

    def on_failure(
        self, push: RulesetPush, unanswered: Iterable[str], now: float, *, is_refused: bool
    ) -> None:
        """The request failed without results for these guests. `is_refused`: it would fail again."""
        retry_at = now + (REFUSED_RETRY_S if is_refused else RETRY_S)
        for guest_id in unanswered:
            self._in_flight.answered(guest_id, now)
            status = self._guests.get(guest_id)
            if status is None:
                continue
            status.is_flushing = False
            if push.ruleset is not None and status.in_flight == push.digest:
                # Whether it was applied is unknown, so the next ruleset is sent whole.
                status.in_flight, status.submitted, status.retry_at = "", "", retry_at

    def _is_due(self, status: DeliveryStatus, desired: DesiredRuleset, now: float) -> bool:
        if not status.can_send:
            return False
        if status.submitted not in ("", desired.digest):
            return True
        if status.is_behind or not status.submitted:
            # kata-bridge has it, or has refused it: not before the retry time.
            return status.retry_at <= now
        return status.flows_match is not desired.results

    def _ruleset(
        self,
        status: DeliveryStatus,
        desired: DesiredRuleset,
        deltas: dict[tuple[str, str], RulesetDelta | None],
    ) -> Ruleset | RulesetDelta:
        # kata-bridge applies the delta to what was submitted, the guest to what it has.
        base = self._bases.get(status.applied) if status.applied == status.submitted else None
        capabilities = status.guest.capabilities
        if base is None or capabilities is None or not capabilities.deltas or base.digest == desired.digest:
            return desired.ruleset
        pair = (base.digest, desired.digest)
        if pair not in deltas:
            deltas[pair] = _worthwhile(difference(base, desired.ruleset), desired.ruleset)
        return deltas[pair] or desired.ruleset

    def _applied(self, status: DeliveryStatus, push: RulesetPush, result: GuestResult) -> None:
        status.applied = result.digest or push.digest
        status.submitted, status.problem = push.digest, ""
        status.retry_at = float("-inf")
        # A guest that holds a ruleset already flushes nothing: then the flows are flushed by themselves.
        is_flushed = result.code is ResultCode.APPLIED or not push.flush
        # Something newer may be desired by now: its flows are judged against what was sent.
        if is_flushed and status.sent is not None and status.sent.digest == push.digest:
            status.flows_match = status.sent.results

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
    """The delta, unless it is nearly as large as the whole ruleset."""
    if delta is None:
        return None
    touched = sum(len(each.touched()) for each in delta.documents)
    return delta if touched * 2 <= sum(len(each.objects) for each in whole.documents) else None


def _flows(
    status: DeliveryStatus, desired: DesiredRuleset, known: dict[tuple[int, int, bool], tuple[StaleFlow, ...]]
) -> tuple[StaleFlow, ...]:
    capabilities = status.guest.capabilities
    if capabilities is None or not capabilities.conntrack:
        return ()
    if status.flows_match is None and not status.applied:
        # Nothing has been translated in the guest yet.
        return ()
    # Before our start the guest may have got the desired ruleset, for endpoints that have ended since.
    is_udp_alone = status.flows_match is None and not status.is_behind
    key = (id(status.flows_match), id(desired.results), is_udp_alone)
    if key not in known:
        before = {result.rules.family: result for result in status.flows_match or ()}
        found = [stale_flows(before.get(new.rules.family), new) for new in desired.results]
        known[key] = tuple(
            flow for each in found for flow in each if flow.protocol is Protocol.UDP or not is_udp_alone
        )
    return known[key]
