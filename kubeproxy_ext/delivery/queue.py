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
from kubeproxy_ext.compute.guest_view import Outcome
from kubeproxy_ext.compute.stale_flows import StaleFlow, stale_flows
from kubeproxy_ext.delivery.in_flight import Convoys
from ruleset.delta import RulesetDelta, difference
from ruleset.document import Ruleset

# kata-bridge tries again by itself; this is for what it may have lost.
RESEND_S = 60.0
# A packet filter that says no says so again; but somebody may have repaired the guest.
REFUSED_AGAIN_S = 300.0
# The request failed, not the guest: the connection is new, or soon will be.
AGAIN_S = 1.0
# An earlier ruleset is good for a delta while some guest may have it; more are of no use.
MAX_BASES = 64


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a guest is to have, and what that was computed from, a family each."""

    ruleset: Ruleset
    outcomes: tuple[Outcome, ...]

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
class Standing:
    """One guest.

    `has` is the digest of what it has, as far as is known; `handed` of what kata-bridge has for it;
    `sending` of what is under way. `repaired` are the outcomes that its flows agree with, None when
    nothing is known of them. `behind_since` is when it last ceased to have what it is to have.
    """

    guest: Guest
    wanted: Wanted | None = None
    has: str = ""
    handed: str = ""
    sending: str = ""
    repaired: tuple[Outcome, ...] | None = None
    is_flushing: bool = False
    again_at: float = float("-inf")
    behind_since: float | None = None
    problem: str = ""

    @property
    def is_idle(self) -> bool:
        """Whether something could be sent: it is known what, there is a way, and nothing under way."""
        guest = self.guest
        has_way = guest.capabilities is not None and not guest.not_injectable
        return self.wanted is not None and has_way and not self.sending and not self.is_flushing

    @property
    def is_settled(self) -> bool:
        """Whether it has what it is to have, and its flows agree with that."""
        return self.wanted is None or (not self.is_behind and self.repaired is self.wanted.outcomes)

    @property
    def is_behind(self) -> bool:
        return self.wanted is not None and self.has != self.wanted.digest


@dataclass(slots=True)
class _Batch:
    guests: list[str] = field(default_factory=list)
    ruleset: Ruleset | RulesetDelta | None = None
    flush: tuple[StaleFlow, ...] = ()


class Delivery:
    """All guests of the node. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._guests: dict[str, Standing] = {}
        self._bases: dict[str, Ruleset] = {}
        self._unconfirmed: set[str] = set()
        self._convoys = Convoys()
        self._held_until: float | None = None
        """When the first of those may be sent something that wait for the others of their request."""

    @property
    def guests(self) -> dict[str, Standing]:
        """By id; not to be changed."""
        return self._guests

    # ---- what kata-bridge tells

    def present(self, guest: Guest, now: float) -> Standing:
        """A guest is there, or something of it has changed."""
        standing = self._guests.get(guest.id)
        if standing is None:
            standing = self._guests[guest.id] = Standing(guest)
        was_behind = standing.is_behind
        before, standing.guest, standing.has = standing.guest, guest, guest.digest
        self._unconfirmed.discard(guest.id)
        if standing.is_behind and not was_behind and standing.handed:
            # It lost its rules, or this was told before they were in. kata-bridge has them.
            standing.again_at = now + RESEND_S
        self._note(standing, now)
        if before.capabilities != guest.capabilities or before.not_injectable != guest.not_injectable:
            # Another channel, or one at last: what went wrong before says nothing any more.
            standing.handed, standing.problem, standing.again_at = "", "", float("-inf")
        return standing

    def gone(self, guest_id: str) -> None:
        self._guests.pop(guest_id, None)
        self._unconfirmed.discard(guest_id)
        self._convoys.gone(guest_id)

    def lost(self) -> None:
        """The connection to kata-bridge ended; what it was handed and answers with is not known."""
        for standing in self._guests.values():
            standing.handed = standing.sending = ""
            standing.is_flushing, standing.again_at = False, float("-inf")
        self._convoys.clear()
        self._unconfirmed = set(self._guests)

    def synced(self) -> tuple[str, ...]:
        """All guests have been told after a connection began; the others are gone: their ids."""
        missing = tuple(sorted(self._unconfirmed))
        for guest_id in missing:
            self.gone(guest_id)
        return missing

    # ---- what is wanted

    def want(self, guest_id: str, wanted: Wanted | None, now: float) -> None:
        """A guest is to have this; None: nothing is known yet, so it keeps what it has."""
        standing = self._guests[guest_id]
        standing.wanted = wanted
        if wanted is not None:
            self._bases[wanted.digest] = wanted.ruleset
        self._note(standing, now)

    # ---- what to do

    def plan(self, now: float) -> tuple[Push, ...]:
        """The requests to make now. Each of their guests is then under way until `answered`."""
        # Guests of two tenants are in no request together, whatever they have in common.
        batches: dict[tuple[str, str, str, tuple[StaleFlow, ...]], _Batch] = {}
        deltas: dict[tuple[str, str], RulesetDelta | None] = {}
        flows: dict[tuple[int, int], tuple[StaleFlow, ...]] = {}
        self._held_until = None
        for guest_id, standing in self._guests.items():
            wanted = standing.wanted
            if wanted is None or not self._is_due(standing, wanted, now):
                continue
            held_until = self._convoys.until(guest_id)
            if held_until is not None and held_until > now:
                self._held_until = min(held_until, self._held_until or held_until)
                continue
            flush = _flows(standing, wanted, flows)
            ruleset: Ruleset | RulesetDelta | None = None
            if standing.is_behind or standing.handed != wanted.digest:
                ruleset = self._ruleset(standing, wanted, deltas)
                standing.sending = wanted.digest
            elif flush:
                standing.is_flushing = True
            else:
                standing.repaired = wanted.outcomes
                continue
            base = ruleset.base_digest if isinstance(ruleset, RulesetDelta) else ""
            digest = wanted.digest if ruleset is not None else ""
            key = (standing.guest.tenant, digest, base, flush)
            batch = batches.setdefault(key, _Batch(ruleset=ruleset, flush=flush))
            batch.guests.append(guest_id)
        for each in batches.values():
            if each.ruleset is not None:
                self._convoys.sent(each.guests)
        self._forget_bases()
        return tuple(Push(tuple(each.guests), each.ruleset, each.flush) for each in batches.values())

    @property
    def next_at(self) -> float | None:
        """When `plan` has to be asked again though nothing happens."""
        waiting = (s for s in self._guests.values() if s.is_idle and (s.is_behind or not s.handed))
        times = [s.again_at for s in waiting if isfinite(s.again_at)]
        if self._held_until is not None:
            times.append(self._held_until)
        return min(times, default=None)

    def is_held(self, guest_id: str) -> bool:
        """Whether there is nothing to plan for it before `next_at` but what others' answers bring."""
        return self._held_until is not None and self._convoys.until(guest_id) is not None

    def answered(self, push: Push, result: GuestResult, now: float) -> None:
        """kata-bridge said what became of a push in one guest."""
        self._convoys.answered(result.guest, now)
        standing = self._guests.get(result.guest)
        if standing is None:
            return
        if push.ruleset is None:
            standing.is_flushing = False
            # What could not be flushed is not tried again: a flow is worth one attempt.
            standing.repaired = standing.wanted.outcomes if standing.wanted else None
            return
        standing.sending = ""
        match result.code:
            case ResultCode.APPLIED | ResultCode.UNCHANGED:
                self._applied(standing, push, result)
            case ResultCode.NEEDS_FULL:
                standing.has, standing.handed, standing.again_at = result.digest, "", float("-inf")
            case ResultCode.SUPERSEDED:
                # Not by us: there is one request at a time. Somebody else writes, too.
                standing.handed, standing.again_at = "", now + AGAIN_S
            case ResultCode.REFUSED:
                standing.handed, standing.again_at = push.digest, now + REFUSED_AGAIN_S
            case _:
                standing.handed, standing.again_at = push.digest, now + RESEND_S
        if result.code not in (ResultCode.APPLIED, ResultCode.UNCHANGED, ResultCode.NEEDS_FULL):
            standing.problem = f"{result.code.name}: {result.message}".removesuffix(": ")
        self._note(standing, now)

    def failed(self, push: Push, unanswered: Iterable[str], now: float, *, is_refused: bool) -> None:
        """The request itself failed before these guests were answered for.

        `is_refused`: it is at fault, and as it is would be again.
        """
        again_at = now + (REFUSED_AGAIN_S if is_refused else AGAIN_S)
        for guest_id in unanswered:
            self._convoys.answered(guest_id, now)
            standing = self._guests.get(guest_id)
            if standing is None:
                continue
            standing.is_flushing = False
            if push.ruleset is not None and standing.sending == push.digest:
                # It may have been applied or not: a delta would have to know.
                standing.sending, standing.handed, standing.again_at = "", "", again_at

    # ---- inside

    def _is_due(self, standing: Standing, wanted: Wanted, now: float) -> bool:
        if not standing.is_idle:
            return False
        if standing.handed not in ("", wanted.digest):
            return True
        if standing.is_behind or not standing.handed:
            # Of what kata-bridge has, or would not take, not before the time is up.
            return standing.again_at <= now
        return standing.repaired is not wanted.outcomes

    def _ruleset(
        self, standing: Standing, wanted: Wanted, deltas: dict[tuple[str, str], RulesetDelta | None]
    ) -> Ruleset | RulesetDelta:
        # The bridge makes the delta's outcome of what it was handed, the guest of what it has.
        base = self._bases.get(standing.has) if standing.has == standing.handed else None
        capabilities = standing.guest.capabilities
        if base is None or capabilities is None or not capabilities.deltas or base.digest == wanted.digest:
            return wanted.ruleset
        pair = (base.digest, wanted.digest)
        if pair not in deltas:
            deltas[pair] = _worthwhile(difference(base, wanted.ruleset), wanted.ruleset)
        return deltas[pair] or wanted.ruleset

    def _applied(self, standing: Standing, push: Push, result: GuestResult) -> None:
        standing.has = result.digest or push.digest
        standing.handed, standing.problem = push.digest, ""
        standing.again_at = float("-inf")
        if standing.wanted is not None and standing.wanted.digest == push.digest:
            standing.repaired = standing.wanted.outcomes

    def _note(self, standing: Standing, now: float) -> None:
        if not standing.is_behind:
            standing.behind_since, standing.problem = None, ""
        elif standing.behind_since is None:
            standing.behind_since = now

    def _forget_bases(self) -> None:
        used: dict[str, None] = {}
        for standing in self._guests.values():
            wanted = standing.wanted.digest if standing.wanted is not None else ""
            used |= dict.fromkeys((wanted, standing.has, standing.sending))
        kept = [digest for digest in used if digest in self._bases][:MAX_BASES]
        self._bases = {digest: self._bases[digest] for digest in kept}


def _worthwhile(delta: RulesetDelta | None, whole: Ruleset) -> RulesetDelta | None:
    """The delta, unless it says nearly as much as the whole."""
    if delta is None:
        return None
    touched = sum(len(each.touched()) for each in delta.documents)
    return delta if touched * 2 <= sum(len(each.objects) for each in whole.documents) else None


def _flows(
    standing: Standing, wanted: Wanted, known: dict[tuple[int, int], tuple[StaleFlow, ...]]
) -> tuple[StaleFlow, ...]:
    capabilities = standing.guest.capabilities
    if capabilities is None or not capabilities.conntrack:
        return ()
    if standing.repaired is None and (not standing.has or not standing.is_behind):
        # Nothing has been translated in it yet; or it has just what it is to have, as before we
        # came: there is nothing to tell its flows from what they should be.
        return ()
    pair = (id(standing.repaired), id(wanted.outcomes))
    if pair not in known:
        before = {outcome.rules.family: outcome for outcome in standing.repaired or ()}
        found = [stale_flows(before.get(new.rules.family), new) for new in wanted.outcomes]
        known[pair] = tuple(flow for each in found for flow in each)
    return known[pair]
