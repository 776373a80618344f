# SPDX-License-Identifier: Apache-2.0
"""What to do next for one guest: a state machine without sockets and clocks. Pure.

Events come in with the time (seconds of a monotonic clock) and a jitter in [0, 1); actions go out. At
most one action is a call into the guest, and the next call waits for the outcome of the last. So
kata-bridge is the only writer of each guest.

A ruleset stays desired until a newer one is set. A guest that was away, was rebooted or lost its rules gets
the ruleset again without a request. A ruleset that the guest holds already is not applied again.
"""

from bridge_api.messages import Capabilities, Flow, ResultCode
from daemonkit.backoff import backoff_s, spread_s
from kata_bridge.channels.port import GuestState
from kata_bridge.guests.core.events import (
    CallOutcome,
    CallRefused,
    CancelProbe,
    ChannelChanged,
    CheckState,
    DesiredChanged,
    DriftKind,
    FlushFlows,
    FlushSucceeded,
    FullRulesetNeeded,
    GuestAction,
    GuestCall,
    GuestMachineEvent,
    GuestNotInjectable,
    GuestUnreachable,
    ProbeChannel,
    ProbeSucceeded,
    PushRuleset,
    RecordDrift,
    SandboxAdded,
    SandboxRemoved,
    SetRulesetReply,
    StateReported,
    StateReturned,
    Tick,
)
from ruleset.document import Ruleset

# A VM needs 0.1 to 1 s until its first answer. Early tries are cheap and save that time.
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 10.0
# A policy may be changed or a kernel module loaded, so a permanent failure is tried again too.
PERMANENT_FAILURE_RETRY_S = 300.0
# Repairs slow down against a program that rewrites the rules again and again.
REPAIR_FIRST_S = 0.5
REPAIR_MAX_S = 60.0
# Pending flows of one guest. Beyond that its stale entries had better time out.
MAX_FLOWS = 20_000


class GuestMachine:
    """One guest from the start of its sandbox to the end.

    `desired` is the ruleset that was set; `observed` is the guest's state, None while unknown;
    `last_reported` is the state that the guest reported last.
    """

    __slots__ = (
        "_base",
        "_check_at_s",
        "_check_s",
        "_drifted_at_s",
        "_failures",
        "_flush",
        "_flush_sequence",
        "_has_applied",
        "_is_check_pending",
        "_is_flush_pending",
        "_needs_full",
        "_not_before_s",
        "_pending_tickets",
        "_probe_due",
        "_refused_until_s",
        "_repair_at_s",
        "_repairs",
        "_was_current",
        "capabilities",
        "desired",
        "drift",
        "in_flight",
        "is_removed",
        "last_reported",
        "not_injectable",
        "observed",
        "refused",
        "unreachable",
    )

    def __init__(self, check_s: float) -> None:
        """`check_s` is the interval of drift checks while the guest holds the desired ruleset."""
        self.capabilities: Capabilities | None = None
        self.desired: Ruleset | None = None
        self.observed: GuestState | None = None
        self.last_reported = GuestState(0, "", False)
        self.in_flight: GuestCall | None = None
        self.is_removed = False
        self.drift: DriftKind | None = None
        self.not_injectable = self.refused = self.unreachable = ""
        self._check_s = check_s
        self._base: Ruleset | None = None  # the ruleset whose digest `observed` has, if it is known
        self._pending_tickets: list[int] = []
        self._has_applied = False  # a push was applied, and SetRuleset has not been answered yet
        self._was_current = False  # the guest held the desired ruleset: its absence is a drift
        self._flush: dict[Flow, int] = {}  # each with the `_flush_sequence` that asked for it last
        self._flush_sequence = 0
        self._is_flush_pending = False
        self._is_check_pending = False
        self._needs_full = False
        self._probe_due = True
        self._failures = self._repairs = 0
        self._not_before_s = self._repair_at_s = self._refused_until_s = float("-inf")
        self._check_at_s = self._drifted_at_s = float("-inf")

    # ---- its state

    @property
    def is_current(self) -> bool:
        """Whether the guest is known to hold the desired ruleset."""
        return self.desired is not None and self._holds(self.desired)

    @property
    def message(self) -> str:
        """Why the guest does not hold the desired ruleset, for a person; empty if it does."""
        if self.not_injectable:
            return self.not_injectable
        if self.unreachable:
            return self.unreachable
        if self.desired is None:
            return "no ruleset was set for this guest"
        if self.is_current:
            return ""
        if self.refused:
            return f"the guest refused the ruleset: {self.refused}"
        return "the ruleset is being applied"

    def due_s(self) -> float | None:
        """When to send the next Tick; None while a call is in flight."""
        if self.is_removed or self.in_flight is not None:
            return None
        if self._probe_due or self.observed is None or self._is_check_pending:
            return self._not_before_s
        if self.desired is not None and not self.is_current:
            return min(max(self._not_before_s, self._push_at_s()), self._check_at_s)
        return max(self._not_before_s, self._check_at_s)

    # ---- events

    def handle(self, event: GuestMachineEvent, now_s: float, jitter: float) -> tuple[GuestAction, ...]:
        """Take an event that happened at `now_s`; return the actions to do, in order."""
        if self.is_removed:
            if isinstance(event, DesiredChanged):
                return (SetRulesetReply(event.ticket, ResultCode.GONE, "the sandbox was stopped", 0, ""),)
            return ()
        out: list[GuestAction] = []
        match event:
            case SandboxAdded() | Tick():
                pass
            case ChannelChanged():
                # A probe that waits for a shim must not hold up an agent that has just attached.
                if isinstance(self.in_flight, ProbeChannel):
                    self.in_flight = None
                    out.append(CancelProbe())
                self._probe_due = True
                self._failures = 0
                self._not_before_s = now_s
            case DesiredChanged():
                self._set_desired(event, out)
            case SandboxRemoved():
                self.is_removed = True
                self._reply_to_all(out, ResultCode.GONE, "the sandbox was stopped")
                return tuple(out)
            case StateReported(state):
                if self.in_flight is None:
                    self._observe(state, now_s, jitter, out)
                else:
                    # The report may be older or newer than the call in flight: check after that.
                    self._is_check_pending = True
            case _:
                self._complete_call(event, now_s, jitter, out)
        self._report_if_current(out)
        self._start_next_call(now_s, out)
        return tuple(out)

    def _set_desired(self, event: DesiredChanged, out: list[GuestAction]) -> None:
        new, old = event.ruleset, self.desired
        if old is not None and new.generation < old.generation:
            text = f"generation {old.generation} was set before"
            out.append(_superseded(event.ticket, text, old))
            return
        if old is None or new.digest != old.digest:
            text = f"generation {new.generation} was set after it"
            out.extend(_superseded(ticket, text, new) for ticket in self._pending_tickets)
            self._pending_tickets.clear()
            self._has_applied = self._was_current = False
            self.refused = ""
            self.drift = None
        self.desired = new
        self._pending_tickets.append(event.ticket)
        self._add_flush(event.flush)
        self._repair_at_s = float("-inf")  # a request is not delayed as repairs are
        if self.is_current:
            return
        if self.refused:
            self._reply_to_all(out, ResultCode.REFUSED, self.refused)
        elif self.in_flight is not None:
            return  # the reply follows its outcome
        elif self.not_injectable:
            self._reply_to_all(out, ResultCode.NOT_INJECTABLE, self.not_injectable)
        elif self.unreachable:
            self._reply_to_all(out, ResultCode.UNREACHABLE, self.unreachable)

    def _complete_call(
        self, outcome: CallOutcome, now_s: float, jitter: float, out: list[GuestAction]
    ) -> None:
        call, self.in_flight = self.in_flight, None
        match outcome:
            case ProbeSucceeded(capabilities, state):
                self.capabilities = capabilities
                self.not_injectable = self.unreachable = ""
                self._not_before_s = now_s
                self._observe(state, now_s, jitter, out)
                if self.desired is None or self.is_current:
                    self._failures = 0
            case StateReturned(state) if isinstance(call, PushRuleset):
                self._complete_push(call, state, now_s, jitter, out)
            case StateReturned(state):
                self._failures = 0
                self._observe(state, now_s, jitter, out)
            case FlushSucceeded() if isinstance(call, FlushFlows):
                self._failures = 0
                self._clear_flush(call)
            case FullRulesetNeeded() if isinstance(call, PushRuleset) and call.base is not None:
                self._base = None
                self._needs_full = True
            case FullRulesetNeeded():
                self._fail("the guest got the full ruleset and asks for it", now_s, jitter, out)
            case CallRefused(message):
                desired = self.desired
                if isinstance(call, PushRuleset) and desired and call.ruleset.digest == desired.digest:
                    self.refused = message
                    self._refused_until_s = now_s + spread_s(PERMANENT_FAILURE_RETRY_S, jitter)
                    self._reply_to_all(out, ResultCode.REFUSED, message)
                # Families and tables are separate transactions: some may be applied.
                self.observed = self._base = None
            case GuestUnreachable(message):
                self._fail(message, now_s, jitter, out)
            case GuestNotInjectable(message):
                self.not_injectable = message
                self.unreachable = ""
                self._reply_to_all(out, ResultCode.NOT_INJECTABLE, message)
                self._mark_unknown()
                self._not_before_s = now_s + spread_s(PERMANENT_FAILURE_RETRY_S, jitter)

    def _complete_push(
        self, call: PushRuleset, state: GuestState, now_s: float, jitter: float, out: list[GuestAction]
    ) -> None:
        self._needs_full = False
        if state.digest != call.ruleset.digest or state.has_drifted:
            holds = f"{state.digest[:12] or 'nothing'}{', changed by another' if state.has_drifted else ''}"
            message = f"after a push of {call.ruleset.digest[:12]} the guest holds {holds}"
            self._fail(message, now_s, jitter, out)
            return
        self._has_applied = True
        self._failures = 0
        self.refused = ""
        self.observed = self.last_reported = state
        self._base = call.ruleset
        self._check_at_s = now_s + spread_s(self._check_s, jitter)
        self._clear_flush(call)

    def _observe(self, state: GuestState, now_s: float, jitter: float, out: list[GuestAction]) -> None:
        """Take the state that the guest itself reported."""
        self.observed = self.last_reported = state
        self._check_at_s = now_s + spread_s(self._check_s, jitter)
        if self.desired is None or self.is_current:
            self._base = self.desired
            return
        if self._base is not None and (state.has_drifted or state.digest != self._base.digest):
            self._base = None
        if self._was_current and self.drift is None:
            self.drift = _drift_of(state)
            out.append(RecordDrift(self.drift))
            is_again = now_s - self._drifted_at_s < 2 * REPAIR_MAX_S
            self._repairs = self._repairs + 1 if is_again else 0
            self._drifted_at_s = now_s
            if self._repairs:
                wait_s = backoff_s(self._repairs, first_s=REPAIR_FIRST_S, longest_s=REPAIR_MAX_S)
                self._repair_at_s = now_s + spread_s(wait_s, jitter)

    def _fail(self, message: str, now_s: float, jitter: float, out: list[GuestAction]) -> None:
        self.unreachable = message
        self._reply_to_all(out, ResultCode.UNREACHABLE, message)
        self._mark_unknown()
        self._failures += 1
        wait_s = backoff_s(self._failures, first_s=RETRY_FIRST_S, longest_s=RETRY_MAX_S)
        self._not_before_s = now_s + spread_s(wait_s, jitter)

    def _mark_unknown(self) -> None:
        """The guest's state is unknown until the next probe."""
        self.observed = self._base = None
        self._probe_due = True
        # The last push may or may not have been applied, and its flows deleted.
        self._is_flush_pending = bool(self._flush)

    # ---- actions

    def _report_if_current(self, out: list[GuestAction]) -> None:
        """Reply to all requests whose ruleset the guest holds now."""
        if self.in_flight is not None or not self.is_current:
            return
        if self.drift is not None:
            self.drift = None
            out.append(RecordDrift(None))
        if not self._is_flush_pending:
            self._flush.clear()
        self._reply_to_all(out, ResultCode.APPLIED if self._has_applied else ResultCode.UNCHANGED, "")
        self._has_applied = False
        self._was_current = True

    def _start_next_call(self, now_s: float, out: list[GuestAction]) -> None:
        if self.in_flight is not None or now_s < self._not_before_s:
            return
        call: GuestCall | None = None
        if self._probe_due:
            self._probe_due = False
            call = ProbeChannel()
        elif self.observed is None:
            call = CheckState()
        elif self.desired is not None and not self.is_current and now_s >= self._push_at_s():
            takes_deltas = self.capabilities is not None and self.capabilities.deltas
            base = self._base if takes_deltas and not self._needs_full else None
            call = PushRuleset(self.desired, base, tuple(self._flush), self._flush_sequence)
        elif self._is_flush_pending and self.is_current:
            call = FlushFlows(tuple(self._flush), self._flush_sequence)
        elif self._is_check_pending or now_s >= self._check_at_s:
            call = CheckState()
        if call is None:
            return
        if isinstance(call, ProbeChannel | CheckState):
            self._is_check_pending = False
        self.in_flight = call
        out.append(call)

    def _push_at_s(self) -> float:
        return max(self._repair_at_s if self.drift else 0.0, self._refused_until_s if self.refused else 0.0)

    def _holds(self, ruleset: Ruleset) -> bool:
        observed = self.observed
        return observed is not None and observed.digest == ruleset.digest and not observed.has_drifted

    def _add_flush(self, flows: tuple[Flow, ...]) -> None:
        self._flush_sequence += 1
        for flow in flows[: MAX_FLOWS - len(self._flush)]:
            self._flush[flow] = self._flush_sequence

    def _clear_flush(self, call: PushRuleset | FlushFlows) -> None:
        """Drop the flows that `call` deleted, and keep those that were added while it ran."""
        done = call.flush_sequence
        self._flush = {flow: sequence for flow, sequence in self._flush.items() if sequence > done}
        self._is_flush_pending = False

    def _reply_to_all(self, out: list[GuestAction], code: ResultCode, message: str) -> None:
        last = self.last_reported
        out.extend(
            SetRulesetReply(ticket, code, message, last.generation, last.digest)
            for ticket in self._pending_tickets
        )
        self._pending_tickets.clear()


def _superseded(ticket: int, message: str, by: Ruleset) -> SetRulesetReply:
    """Name the newer ruleset: the client numbers beyond it, and must not trust a guest's number."""
    return SetRulesetReply(ticket, ResultCode.SUPERSEDED, message, by.generation, by.digest)


def _drift_of(state: GuestState) -> DriftKind:
    if state.has_drifted:
        return DriftKind.DRIFTED
    return DriftKind.REPLACED if state.digest else DriftKind.LOST
