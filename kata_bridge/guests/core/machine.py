# SPDX-License-Identifier: Apache-2.0
"""What to do next for one guest: a state machine that knows no socket and no clock.

Events go in with the time (seconds of a monotonic clock) and a number in [0, 1) that spreads
retries; actions come out. At most one action is a call into the guest, and no other call is asked
for until its result has come in as an event: that is what makes kata-bridge the guest's one writer.

What is desired stays desired until something newer is: a guest that was away, was rebooted or lost
its rules to somebody gets it without anyone asking again. What is there already is not applied.
"""

from bridge_api.messages import Capabilities, Flow, ResultCode
from daemonkit.backoff import backoff_s, spread_s
from kata_bridge.channels.port import GuestState
from kata_bridge.guests.core.events import (
    Action,
    Call,
    CallRefused,
    CancelProbe,
    ChannelChanged,
    CheckState,
    DesiredChanged,
    DriftKind,
    Event,
    FlushFlows,
    FlushSucceeded,
    FullRulesetNeeded,
    GuestNotInjectable,
    GuestUnreachable,
    ProbeChannel,
    ProbeSucceeded,
    PushRuleset,
    RecordDrift,
    Result,
    SandboxAdded,
    SandboxRemoved,
    SetRulesetReply,
    StateReported,
    StateReturned,
    Tick,
)
from ruleset.document import Ruleset

# A VM needs 0.1 to 1 s to answer for the first time: early tries are cheap and save that time.
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 10.0
# What no try helps is tried all the same now and then: a policy was changed, a module was loaded.
HOPELESS_S = 300.0
# Somebody who rewrites the rules again and again is answered ever more slowly.
REPAIR_FIRST_S = 0.5
REPAIR_MAX_S = 60.0
# Flows that wait for one guest. Beyond that all of its stale entries are better left to time out.
MAX_FLOWS = 20_000


class GuestMachine:
    """One guest from the first sight of its sandbox to the last."""

    __slots__ = (
        "_base",
        "_check_at_s",
        "_check_s",
        "_failures",
        "_flush",
        "_has_applied",
        "_is_check_asked",
        "_is_flush_owed",
        "_is_whole_needed",
        "_lost_at_s",
        "_not_before_s",
        "_owed",
        "_probe_due",
        "_refused_until_s",
        "_repair_at_s",
        "_repairs",
        "_waiting",
        "_was_current",
        "capabilities",
        "desired",
        "held",
        "in_flight",
        "is_gone",
        "loss",
        "not_injectable",
        "refused",
        "said",
        "unreachable",
    )

    def __init__(self, check_s: float) -> None:
        """`check_s`: how often a guest that is as it should be is asked whether it still is."""
        self.capabilities: Capabilities | None = None
        self.desired: Ruleset | None = None
        self.held: GuestState | None = None  # None: not known now
        self.said = GuestState(0, "", False)  # what it held when it was last heard
        self.in_flight: Call | None = None
        self.is_gone = False
        self.loss: DriftKind | None = None
        self.not_injectable = self.refused = self.unreachable = ""
        self._check_s = check_s
        self._base: Ruleset | None = None  # the whole of what `held` names, if known
        self._waiting: list[int] = []
        self._has_applied = False  # the desired was pushed and nobody was told yet
        self._was_current = False  # the desired was there: its absence is a loss
        self._flush: dict[Flow, int] = {}  # and when each was asked for, counted in `_owed`
        self._owed = 0
        self._is_flush_owed = False
        self._is_check_asked = False
        self._is_whole_needed = False
        self._probe_due = True
        self._failures = self._repairs = 0
        self._not_before_s = self._repair_at_s = self._refused_until_s = float("-inf")
        self._check_at_s = self._lost_at_s = float("-inf")

    # ---- what it says of itself

    @property
    def is_current(self) -> bool:
        """Whether the guest is known to hold what is desired."""
        return self.desired is not None and self._holds(self.desired)

    @property
    def why(self) -> str:
        """Why the guest does not hold what is desired, for a person; empty if it does."""
        if self.not_injectable:
            return self.not_injectable
        if self.unreachable:
            return self.unreachable
        if self.desired is None:
            return "no ruleset was set for it yet"
        if self.is_current:
            return ""
        if self.refused:
            return f"refused by its packet filter: {self.refused}"
        return "is being applied"

    def due_s(self) -> float | None:
        """When to send the next Tick; None while a call is under way, whose result will come."""
        if self.is_gone or self.in_flight is not None:
            return None
        if self._probe_due or self.held is None or self._is_check_asked:
            return self._not_before_s
        if self.desired is not None and not self.is_current:
            return min(max(self._not_before_s, self._push_at_s()), self._check_at_s)
        return max(self._not_before_s, self._check_at_s)

    # ---- what happens

    def on(self, event: Event, now_s: float, luck: float) -> tuple[Action, ...]:
        """Take in what happened at `now_s`; return what to do, in order. `luck` is in [0, 1)."""
        if self.is_gone:
            if isinstance(event, DesiredChanged):
                return (SetRulesetReply(event.ticket, ResultCode.GONE, "the sandbox is gone", 0, ""),)
            return ()
        out: list[Action] = []
        match event:
            case SandboxAdded() | Tick():
                pass
            case ChannelChanged():
                # A shim that is waited for must not hold up an agent that has just attached.
                if isinstance(self.in_flight, ProbeChannel):
                    self.in_flight = None
                    out.append(CancelProbe())
                self._probe_due = True
                self._failures = 0
                self._not_before_s = now_s
            case DesiredChanged():
                self._desire(event, out)
            case SandboxRemoved():
                self.is_gone = True
                self._answer(out, ResultCode.GONE, "the sandbox is gone")
                return tuple(out)
            case StateReported(state):
                if self.in_flight is None:
                    self._learn(state, now_s, luck, out)
                else:
                    # It may tell of before or after what is under way: ask when that is over.
                    self._is_check_asked = True
            case _:
                self._result(event, now_s, luck, out)
        self._settle(out)
        self._next(now_s, out)
        return tuple(out)

    def _desire(self, event: DesiredChanged, out: list[Action]) -> None:
        new, old = event.ruleset, self.desired
        if old is not None and new.generation < old.generation:
            text = f"generation {old.generation} was set before"
            out.append(_superseded(event.ticket, text, old))
            return
        if old is None or new.digest != old.digest:
            text = f"generation {new.generation} was set after it"
            out.extend(_superseded(ticket, text, new) for ticket in self._waiting)
            self._waiting.clear()
            self._has_applied = self._was_current = False
            self.refused = ""
            self.loss = None
        self.desired = new
        self._waiting.append(event.ticket)
        self._owe(event.flush)
        self._repair_at_s = float("-inf")  # whoever sets it means now
        if self.is_current:
            return
        if self.refused:
            self._answer(out, ResultCode.REFUSED, self.refused)
        elif self.in_flight is not None:
            return  # its result says more
        elif self.not_injectable:
            self._answer(out, ResultCode.NOT_INJECTABLE, self.not_injectable)
        elif self.unreachable:
            self._answer(out, ResultCode.UNREACHABLE, self.unreachable)

    def _result(self, event: Result, now_s: float, luck: float, out: list[Action]) -> None:
        call, self.in_flight = self.in_flight, None
        match event:
            case ProbeSucceeded(capabilities, state):
                self.capabilities = capabilities
                self.not_injectable = self.unreachable = ""
                self._not_before_s = now_s
                self._learn(state, now_s, luck, out)
                if self.desired is None or self.is_current:
                    self._failures = 0
            case StateReturned(state) if isinstance(call, PushRuleset):
                self._pushed_to(call, state, now_s, luck, out)
            case StateReturned(state):
                self._failures = 0
                self._learn(state, now_s, luck, out)
            case FlushSucceeded() if isinstance(call, FlushFlows):
                self._failures = 0
                self._clear_flush(call)
            case FullRulesetNeeded() if isinstance(call, PushRuleset) and call.base is not None:
                self._base = None
                self._is_whole_needed = True
            case FullRulesetNeeded():
                self._fail("it was given the whole ruleset and asks for it", now_s, luck, out)
            case CallRefused(text):
                if (
                    isinstance(call, PushRuleset)
                    and self.desired
                    and call.ruleset.digest == self.desired.digest
                ):
                    self.refused = text
                    self._refused_until_s = now_s + spread_s(HOPELESS_S, luck)
                    self._answer(out, ResultCode.REFUSED, text)
                # Families and tables are separate transactions: some may be in.
                self.held = self._base = None
            case GuestUnreachable(text):
                self._fail(text, now_s, luck, out)
            case GuestNotInjectable(text):
                self.not_injectable = text
                self.unreachable = ""
                self._answer(out, ResultCode.NOT_INJECTABLE, text)
                self._forget()
                self._not_before_s = now_s + spread_s(HOPELESS_S, luck)

    def _pushed_to(
        self, call: PushRuleset, state: GuestState, now_s: float, luck: float, out: list[Action]
    ) -> None:
        self._is_whole_needed = False
        if state.digest != call.ruleset.digest or state.has_drifted:
            held = f"{state.digest[:12] or 'nothing'}{', changed by another' if state.has_drifted else ''}"
            self._fail(f"given {call.ruleset.digest[:12]} it holds {held}", now_s, luck, out)
            return
        self._has_applied = True
        self._failures = 0
        self.refused = ""
        self.held = self.said = state
        self._base = call.ruleset
        self._check_at_s = now_s + spread_s(self._check_s, luck)
        self._clear_flush(call)

    def _learn(self, state: GuestState, now_s: float, luck: float, out: list[Action]) -> None:
        """Take in what the guest itself says it holds."""
        self.held = self.said = state
        self._check_at_s = now_s + spread_s(self._check_s, luck)
        if self.desired is None or self.is_current:
            self._base = self.desired
            return
        if self._base is not None and (state.has_drifted or state.digest != self._base.digest):
            self._base = None
        if self._was_current and self.loss is None:
            self.loss = _loss(state)
            out.append(RecordDrift(self.loss))
            is_again = now_s - self._lost_at_s < 2 * REPAIR_MAX_S
            self._repairs = self._repairs + 1 if is_again else 0
            self._lost_at_s = now_s
            if self._repairs:
                wait_s = backoff_s(self._repairs, first_s=REPAIR_FIRST_S, longest_s=REPAIR_MAX_S)
                self._repair_at_s = now_s + spread_s(wait_s, luck)

    def _fail(self, text: str, now_s: float, luck: float, out: list[Action]) -> None:
        self.unreachable = text
        self._answer(out, ResultCode.UNREACHABLE, text)
        self._forget()
        self._failures += 1
        wait_s = backoff_s(self._failures, first_s=RETRY_FIRST_S, longest_s=RETRY_MAX_S)
        self._not_before_s = now_s + spread_s(wait_s, luck)

    def _forget(self) -> None:
        """Nothing is known of the guest but what its next probe says."""
        self.held = self._base = None
        self._probe_due = True
        # Whether the last push got in is not known, nor whether its flows were flushed.
        self._is_flush_owed = bool(self._flush)

    # ---- what follows

    def _settle(self, out: list[Action]) -> None:
        """Answer whoever waits for what is there now."""
        if self.in_flight is not None or not self.is_current:
            return
        if self.loss is not None:
            self.loss = None
            out.append(RecordDrift(None))
        if not self._is_flush_owed:
            self._flush.clear()
        self._answer(out, ResultCode.APPLIED if self._has_applied else ResultCode.UNCHANGED, "")
        self._has_applied = False
        self._was_current = True

    def _next(self, now_s: float, out: list[Action]) -> None:
        if self.in_flight is not None or now_s < self._not_before_s:
            return
        call: Call | None = None
        if self._probe_due:
            self._probe_due = False
            call = ProbeChannel()
        elif self.held is None:
            call = CheckState()
        elif self.desired is not None and not self.is_current and now_s >= self._push_at_s():
            has_base = self.capabilities is not None and self.capabilities.deltas
            base = self._base if has_base and not self._is_whole_needed else None
            call = PushRuleset(self.desired, base, tuple(self._flush), self._owed)
        elif self._is_flush_owed and self.is_current:
            call = FlushFlows(tuple(self._flush), self._owed)
        elif self._is_check_asked or now_s >= self._check_at_s:
            call = CheckState()
        if call is None:
            return
        if isinstance(call, ProbeChannel | CheckState):
            self._is_check_asked = False
        self.in_flight = call
        out.append(call)

    def _push_at_s(self) -> float:
        return max(self._repair_at_s if self.loss else 0.0, self._refused_until_s if self.refused else 0.0)

    def _holds(self, ruleset: Ruleset) -> bool:
        return self.held is not None and self.held.digest == ruleset.digest and not self.held.has_drifted

    def _owe(self, flows: tuple[Flow, ...]) -> None:
        self._owed += 1
        for flow in flows[: MAX_FLOWS - len(self._flush)]:
            self._flush[flow] = self._owed

    def _clear_flush(self, call: PushRuleset | FlushFlows) -> None:
        """Forget the flows that `call` has flushed, but not those asked for while it ran."""
        self._flush = {flow: owed for flow, owed in self._flush.items() if owed > call.owed}
        self._is_flush_owed = False

    def _answer(self, out: list[Action], code: ResultCode, text: str) -> None:
        out.extend(self._answered(ticket, code, text) for ticket in self._waiting)
        self._waiting.clear()

    def _answered(self, ticket: int, code: ResultCode, text: str) -> SetRulesetReply:
        return SetRulesetReply(ticket, code, text, self.said.generation, self.said.digest)


def _superseded(ticket: int, text: str, by: Ruleset) -> SetRulesetReply:
    """Names what was set instead: whoever has to number beyond it must not go by a guest's word."""
    return SetRulesetReply(ticket, ResultCode.SUPERSEDED, text, by.generation, by.digest)


def _loss(state: GuestState) -> DriftKind:
    if state.has_drifted:
        return DriftKind.DRIFTED
    return DriftKind.REPLACED if state.digest else DriftKind.LOST
