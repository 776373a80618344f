# SPDX-License-Identifier: Apache-2.0
"""A guest's state machine against a model of a guest: any history ends with the desired ruleset."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge_api.messages import ResultCode
from kata_bridge.channels.port import GuestState
from kata_bridge.guests.core.events import (
    CallOutcome,
    CallRefused,
    CancelProbe,
    ChannelChanged,
    CheckState,
    DesiredChanged,
    FlushFlows,
    FlushSucceeded,
    FullRulesetNeeded,
    GuestCall,
    GuestMachineEvent,
    GuestNotInjectable,
    GuestUnreachable,
    ProbeChannel,
    ProbeSucceeded,
    RecordDrift,
    SandboxAdded,
    SetRulesetReply,
    StateReported,
    StateReturned,
    Tick,
)
from kata_bridge.guests.core.machine import GuestMachine
from ruleset.document import Ruleset
from tests.unit.kata_bridge.guests.core.machine_scripts import AGENT, CHECK_S, EMPTY, FLOW, state_with


class ModelGuest:
    """A guest that executes calls or fails, and the machine that sees only their outcomes."""

    def __init__(self) -> None:
        self.machine = GuestMachine(CHECK_S)
        self.now_s = 0.0
        self.holds = EMPTY
        self.is_reachable = True
        self.refuses: set[str] = set()
        self.calls: list[GuestCall] = []
        self.open_tickets: set[int] = set()
        self.tickets = self.generation = 0
        self.newest_applied = 0
        self.send(SandboxAdded(), 0.0)

    def send(self, event: GuestMachineEvent, jitter: float) -> None:
        for action in self.machine.handle(event, self.now_s, jitter):
            if isinstance(action, SetRulesetReply):
                self.open_tickets.remove(action.ticket)
                if action.code in (ResultCode.APPLIED, ResultCode.UNCHANGED):
                    assert self.machine.desired is not None
                    assert action.digest == self.machine.desired.digest
            elif isinstance(action, CancelProbe):
                assert isinstance(self.calls.pop(), ProbeChannel)
            elif not isinstance(action, RecordDrift):
                self.calls.append(action)
        assert len(self.calls) <= 1, "the guest has one writer"
        assert self.machine.in_flight == (self.calls[0] if self.calls else None)
        assert bool(self.calls) or self.machine.due_s() is not None, "no timer is set"

    def set_desired(self, generation: int, digest: str, jitter: float) -> None:
        self.tickets += 1
        self.open_tickets.add(self.tickets)
        self.send(DesiredChanged(Ruleset(generation, digest, ()), (FLOW,), self.tickets), jitter)

    def outcome_of(self, call: GuestCall) -> CallOutcome:
        if not self.is_reachable:
            return GuestUnreachable("away")
        if isinstance(call, ProbeChannel):
            return ProbeSucceeded(AGENT, self.holds)
        if isinstance(call, CheckState):
            return StateReturned(self.holds)
        if isinstance(call, FlushFlows):
            return FlushSucceeded()
        if call.ruleset.digest in self.refuses:
            return CallRefused("no")
        is_there = self.holds.digest == call.ruleset.digest and not self.holds.has_drifted
        if is_there:
            return StateReturned(self.holds)
        if call.base is not None and (self.holds.digest != call.base.digest or self.holds.has_drifted):
            return FullRulesetNeeded()
        assert call.ruleset.generation >= self.newest_applied, "an older ruleset was pushed after a newer one"
        self.newest_applied = call.ruleset.generation
        self.holds = state_with(call.ruleset)
        return StateReturned(self.holds)

    def finish(self, jitter: float, *, is_reply_lost: bool = False) -> None:
        if self.calls:
            result = self.outcome_of(self.calls.pop())
            self.send(GuestUnreachable("reply lost") if is_reply_lost else result, jitter)

    def wait(self, jitter: float) -> None:
        due_s = self.machine.due_s()
        if due_s is not None:
            self.now_s = max(self.now_s, due_s)
            self.send(Tick(), jitter)

    def act(self, step: str, jitter: float) -> None:
        match step:
            case "finish":
                self.finish(jitter)
            case "lose reply":
                self.finish(jitter, is_reply_lost=True)
            case "wait":
                self.wait(jitter)
            case "tick":
                self.now_s += 10 * jitter
                self.send(Tick(), jitter)
            case "desire":
                self.generation += 1
                # Few digests, so that some come again.
                self.set_desired(self.generation, f"d{int(jitter * 4)}", jitter)
            case "same" if self.machine.desired is not None:
                self.set_desired(self.generation, self.machine.desired.digest, jitter)
            case "stale" if self.generation > 1:
                self.set_desired(self.generation - 1, f"d{int(jitter * 4)}", jitter)
            case "flush":
                self.holds = GuestState(self.holds.generation, self.holds.digest, has_drifted=True)
            case "drift":
                self.holds = GuestState(0, f"d{int(jitter * 4)}", has_drifted=jitter > 0.5)
            case "reboot":
                self.holds = EMPTY
                self.send(ChannelChanged(), jitter)
            case "away":
                self.is_reachable = False
            case "back":
                self.is_reachable = True
            case "refuse":
                self.refuses.add(f"d{int(jitter * 4)}")
            case "report" if self.is_reachable:
                self.send(StateReported(self.holds), jitter)
            case "channel":
                self.send(ChannelChanged(), jitter)
            case "hopeless" if self.calls:
                self.calls.pop()
                self.send(GuestNotInjectable("policy"), jitter)
            case _:
                pass


_STEPS = st.sampled_from(
    (
        *("finish",) * 8,
        *("wait", "desire", "back") * 3,
        *("same", "stale", "flush", "drift", "reboot", "away", "lose reply", "refuse"),
        *("report", "channel", "tick", "hopeless"),
    )
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(_STEPS, st.floats(0, 1, exclude_max=True)), min_size=10, max_size=80))
def test_any_history_ends_with_the_desired_ruleset(steps: list[tuple[str, float]]) -> None:
    model = ModelGuest()
    for step, jitter in steps:
        model.act(step, jitter)
    model.is_reachable = True
    model.refuses.clear()
    for _ in range(60):
        model.finish(0.5)
        # Long enough for each slow retry, and for the check that finds unreported drift.
        model.now_s += 60.0
        model.send(Tick(), 0.5)
    model.finish(0.5)
    assert not model.open_tickets
    if model.machine.desired is not None:
        assert model.machine.is_current
        assert model.holds.digest == model.machine.desired.digest
        assert not model.holds.has_drifted
