# SPDX-License-Identifier: Apache-2.0
"""A guest's state machine: transcripts of what matters, and a model check over random histories."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kata_bridge.api.messages import Capabilities, Flow, ResultCode
from kata_bridge.channels.channel import GuestState
from kata_bridge.core.events import (
    Abandon,
    Action,
    Answer,
    Began,
    Call,
    ChannelChanged,
    Check,
    Desired,
    Event,
    Flush,
    Flushed,
    Gone,
    Loss,
    NeededFull,
    Note,
    Probe,
    Probed,
    Push,
    Reported,
    Result,
    Stated,
    Tick,
    WasNotInjectable,
    WasRefused,
    WasUnreachable,
)
from kata_bridge.core.guest import GuestMachine
from ruleset.document import Ruleset

AGENT = Capabilities(channel="agent", backends=("iptables",), deltas=True, conntrack=True)
SHIM = Capabilities(channel="shim", backends=("iptables",))
EMPTY = GuestState(0, "", False)
FLOW = Flow(protocol="udp", destination="10.0.0.10", port=53)
OTHER = Flow(protocol="tcp", destination="10.0.0.1", port=443)
CHECK_S = 30.0


def _set(generation: int, digest: str = "") -> Ruleset:
    return Ruleset(generation, digest or f"d{generation}", ())


A, B, C = _set(1), _set(2), _set(3)


def _held(ruleset: Ruleset, *, has_drifted: bool = False) -> GuestState:
    return GuestState(ruleset.generation, ruleset.digest, has_drifted)


def _answer(ticket: int, code: ResultCode, text: str = "", holds: Ruleset | None = None) -> Answer:
    return Answer(ticket, code, text, holds.generation if holds else 0, holds.digest if holds else "")


class _Script:
    """A machine and its clock; luck is always 0, so every wait is half of what it may be."""

    def __init__(self, *, capabilities: Capabilities = AGENT) -> None:
        self.machine = GuestMachine(CHECK_S)
        self.now_s = 100.0
        assert self(Began()) == (Probe(),)
        self.capabilities = capabilities

    def __call__(self, event: Event) -> tuple[Action, ...]:
        return self.machine.on(event, self.now_s, 0.0)

    def attach(self, state: GuestState = EMPTY) -> tuple[Action, ...]:
        return self(Probed(self.capabilities, state))

    def later(self, seconds: float) -> tuple[Action, ...]:
        self.now_s += seconds
        return self(Tick())

    def wait(self) -> tuple[Action, ...]:
        """Until it wants to be woken."""
        due_s = self.machine.due_s()
        assert due_s is not None
        self.now_s = max(self.now_s, due_s)
        return self(Tick())

    def with_ruleset(self, ruleset: Ruleset) -> "_Script":
        """Make the guest hold `ruleset` because it was set."""
        self.attach()
        self(Desired(ruleset, (), 0))
        assert _answer(0, ResultCode.APPLIED, holds=ruleset) in self(Stated(_held(ruleset)))
        assert self.machine.is_current
        return self


def test_a_new_guest_is_probed_and_gets_what_was_set_meanwhile() -> None:
    script = _Script()
    assert script(Desired(A, (FLOW,), 7)) == ()
    assert script.attach() == (Push(A, None, (FLOW,), 1),)
    assert script(Stated(_held(A))) == (_answer(7, ResultCode.APPLIED, holds=A),)
    assert script.machine.why == ""
    assert script.machine.due_s() == 100.0 + CHECK_S / 2


def test_what_is_there_is_not_applied() -> None:
    script = _Script()
    assert script.attach(_held(A)) == ()
    assert script(Desired(A, (FLOW,), 1)) == (_answer(1, ResultCode.UNCHANGED, holds=A),)
    again = _set(9, A.digest)
    assert script(Desired(again, (), 2)) == (_answer(2, ResultCode.UNCHANGED, holds=A),)


def test_the_latest_wins_and_the_one_before_is_told() -> None:
    script = _Script()
    script.attach()
    assert script(Desired(A, (FLOW,), 1)) == (Push(A, None, (FLOW,), 1),)
    superseded = "generation 2 was set after it"
    assert script(Desired(B, (OTHER,), 2)) == (_answer(1, ResultCode.SUPERSEDED, superseded, B),)
    # What A was to flush has been; the change to B goes as a delta.
    assert script(Stated(_held(A))) == (Push(B, A, (OTHER,), 2),)
    stale = _answer(3, ResultCode.SUPERSEDED, "generation 2 was set before", B)
    assert script(Desired(A, (), 3)) == (stale,)
    assert script(Stated(_held(B))) == (_answer(2, ResultCode.APPLIED, holds=B),)


def test_a_flow_asked_for_while_it_is_flushed_is_flushed_again() -> None:
    script = _Script()
    script.attach()
    script(Desired(A, (FLOW, OTHER), 1))
    script(Desired(B, (FLOW,), 2))
    assert script(Stated(_held(A))) == (Push(B, A, (FLOW,), 2),)


def test_a_channel_without_deltas_gets_the_whole() -> None:
    script = _Script(capabilities=SHIM).with_ruleset(A)
    assert script(Desired(B, (), 1)) == (Push(B, None, (), 2),)


def test_a_missing_base_is_answered_with_the_whole() -> None:
    script = _Script().with_ruleset(A)
    assert script(Desired(B, (), 1)) == (Push(B, A, (), 2),)
    assert script(NeededFull()) == (Push(B, None, (), 2),)
    assert script(Stated(_held(B))) == (_answer(1, ResultCode.APPLIED, holds=B),)


def test_an_unreachable_guest_is_retried_ever_more_slowly_and_then_probed_again() -> None:
    script = _Script()
    script(Desired(A, (), 1))
    first = script(WasUnreachable("agent: not attached"))
    assert first == (_answer(1, ResultCode.UNREACHABLE, "agent: not attached"),)
    assert script.machine.why == "agent: not attached"
    waits = []
    for _ in range(12):
        began_s = script.now_s
        assert script.wait() == (Probe(),)
        waits.append(round(script.now_s - began_s, 3))
        assert script(WasUnreachable("agent: not attached")) == ()
    assert waits == [0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]
    # Whoever sets another now is told at once, and does not wait for the next try.
    assert script(Desired(B, (), 2)) == (_answer(2, ResultCode.UNREACHABLE, "agent: not attached"),)
    # The agent attaches: no waiting any more, and what is desired goes in unasked.
    assert script(ChannelChanged()) == (Probe(),)
    assert script.attach() == (Push(B, None, (), 2),)
    assert script(Stated(_held(B))) == ()
    assert script.machine.is_current


def test_a_better_way_in_does_not_wait_for_a_worse_one() -> None:
    script = _Script()
    script(Desired(A, (), 1))
    assert script(ChannelChanged()) == (Abandon(), Probe())
    assert script.attach() == (Push(A, None, (), 1),)


def test_flows_of_a_push_whose_end_is_not_known_are_flushed_though_it_was_applied() -> None:
    script = _Script()
    script.attach()
    script(Desired(A, (FLOW,), 1))
    script(WasUnreachable("nothing within 10 s"))
    assert script.wait() == (Probe(),)
    assert script.attach(_held(A)) == (Flush((FLOW,), 1),)
    assert script(Flushed()) == ()
    assert script.machine.due_s() == script.now_s + CHECK_S / 2


def test_a_refused_ruleset_is_not_tried_again_until_another_is_set() -> None:
    script = _Script().with_ruleset(A)
    script(Desired(B, (), 1))
    refused = script(WasRefused("line 3: -j NOPE"))
    assert refused == (_answer(1, ResultCode.REFUSED, "line 3: -j NOPE", A), Check())
    assert script(Stated(_held(A))) == ()
    assert script.machine.why == "refused by its packet filter: line 3: -j NOPE"
    assert script(Desired(_set(3, B.digest), (), 2)) == (
        _answer(2, ResultCode.REFUSED, "line 3: -j NOPE", A),
    )
    assert script.later(60) == (Check(),)
    assert script(Stated(_held(A))) == ()
    # Part of B may be in: the next one is whole.
    assert script(Desired(_set(4), (), 3)) == (Push(_set(4), None, (), 4),)


def test_a_refused_ruleset_is_tried_again_slowly() -> None:
    script = _Script()
    script.attach()
    script(Desired(A, (), 1))
    script(WasRefused("no such table"))
    script(Stated(EMPTY))
    tried_after_s = None
    while tried_after_s is None:
        for action in script.wait():
            if isinstance(action, Check):
                script(Stated(EMPTY))
            elif isinstance(action, Push):
                tried_after_s = script.now_s - 100.0
    assert tried_after_s == 150.0


def test_what_no_try_helps_is_said_and_not_tried() -> None:
    script = _Script()
    script(Desired(A, (), 1))
    text = "shim: the agent's policy forbids it"
    assert script(WasNotInjectable(text)) == (_answer(1, ResultCode.NOT_INJECTABLE, text),)
    assert script(Desired(B, (), 2)) == (_answer(2, ResultCode.NOT_INJECTABLE, text),)
    assert script.machine.why == text
    assert script.later(100) == ()
    assert script(ChannelChanged()) == (Probe(),)
    assert script.attach() == (Push(B, None, (), 2),)


def test_drift_is_noted_once_and_repaired_with_the_whole() -> None:
    script = _Script().with_ruleset(A)
    assert script.wait() == (Check(),)
    drifted = _held(A, has_drifted=True)
    assert script(Stated(drifted)) == (Note(Loss.DRIFTED), Push(A, None, (), 1))
    assert script(Stated(_held(A))) == (Note(None),)


def test_a_rebooted_guest_gets_its_rules_back() -> None:
    script = _Script().with_ruleset(A)
    script(ChannelChanged())
    assert script.attach(EMPTY) == (Note(Loss.LOST), Push(A, None, (), 1))


def test_a_late_push_of_an_older_ruleset_is_repaired() -> None:
    script = _Script().with_ruleset(B)
    assert script(Reported(_held(A))) == (Note(Loss.REPLACED), Push(B, None, (), 1))


def test_a_report_that_crosses_a_push_is_looked_into_afterwards() -> None:
    script = _Script().with_ruleset(A)
    script(Desired(B, (), 1))
    assert script(Reported(_held(A, has_drifted=True))) == ()
    assert script(Stated(_held(B))) == (_answer(1, ResultCode.APPLIED, holds=B), Check())


def test_somebody_who_rewrites_again_and_again_is_answered_ever_more_slowly() -> None:
    script = _Script().with_ruleset(A)
    waits = []
    for _ in range(10):
        began_s = script.now_s
        actions = script(Reported(EMPTY))
        while not any(isinstance(action, Push) for action in actions):
            actions = script.wait()
            if Check() in actions:
                actions = script(Stated(EMPTY))
        waits.append(round(script.now_s - began_s, 3))
        script(Stated(_held(A)))
    assert waits == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_guest_that_does_not_hold_what_it_was_given_is_not_given_it_without_end() -> None:
    script = _Script()
    script.attach()
    script(Desired(A, (), 1))
    text = "given d1 it holds nothing"
    assert script(Stated(EMPTY)) == (_answer(1, ResultCode.UNREACHABLE, text),)
    assert script.machine.due_s() == 100.025


def test_whoever_waits_for_a_sandbox_that_goes_is_told() -> None:
    script = _Script()
    script(Desired(A, (), 1))
    gone = "the sandbox is gone"
    assert script(Gone()) == (_answer(1, ResultCode.GONE, gone),)
    assert script.attach() == ()
    assert script(Desired(B, (), 2)) == (_answer(2, ResultCode.GONE, gone),)
    assert script.machine.due_s() is None


# ---- the model check


class _World:
    """A guest that does what it is asked for, or does not, and a machine that knows only results."""

    def __init__(self) -> None:
        self.machine = GuestMachine(CHECK_S)
        self.now_s = 0.0
        self.holds = EMPTY
        self.is_reachable = True
        self.refuses: set[str] = set()
        self.calls: list[Call] = []
        self.open_tickets: set[int] = set()
        self.tickets = self.generation = self.flushes_owed = 0
        self.newest_applied = 0
        self.send(Began(), 0.0)

    def send(self, event: Event, luck: float) -> None:
        for action in self.machine.on(event, self.now_s, luck):
            if isinstance(action, Answer):
                self.open_tickets.remove(action.ticket)
                if action.code in (ResultCode.APPLIED, ResultCode.UNCHANGED):
                    assert self.machine.desired is not None
                    assert action.digest == self.machine.desired.digest
            elif isinstance(action, Abandon):
                assert isinstance(self.calls.pop(), Probe)
            elif not isinstance(action, Note):
                self.calls.append(action)
        assert len(self.calls) <= 1, "the guest has one writer"
        assert self.machine.in_flight == (self.calls[0] if self.calls else None)
        assert bool(self.calls) or self.machine.due_s() is not None, "it would sleep for ever"

    def desire(self, generation: int, digest: str, luck: float) -> None:
        self.tickets += 1
        self.open_tickets.add(self.tickets)
        self.send(Desired(Ruleset(generation, digest, ()), (FLOW,), self.tickets), luck)

    def carry_out(self, call: Call) -> Result:
        if not self.is_reachable:
            return WasUnreachable("away")
        if isinstance(call, Probe):
            return Probed(AGENT, self.holds)
        if isinstance(call, Check):
            return Stated(self.holds)
        if isinstance(call, Flush):
            return Flushed()
        if call.ruleset.digest in self.refuses:
            return WasRefused("no")
        is_there = self.holds.digest == call.ruleset.digest and not self.holds.has_drifted
        if is_there:
            return Stated(self.holds)
        if call.base is not None and (self.holds.digest != call.base.digest or self.holds.has_drifted):
            return NeededFull()
        assert call.ruleset.generation >= self.newest_applied, "an older one after a newer"
        self.newest_applied = call.ruleset.generation
        self.holds = _held(call.ruleset)
        return Stated(self.holds)

    def finish(self, luck: float, *, is_reply_lost: bool = False) -> None:
        if self.calls:
            result = self.carry_out(self.calls.pop())
            self.send(WasUnreachable("reply lost") if is_reply_lost else result, luck)

    def wait(self, luck: float) -> None:
        due_s = self.machine.due_s()
        if due_s is not None:
            self.now_s = max(self.now_s, due_s)
            self.send(Tick(), luck)


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
def test_over_any_history_it_ends_at_what_is_desired(steps: list[tuple[str, float]]) -> None:
    world = _World()
    for step, luck in steps:
        match step:
            case "finish":
                world.finish(luck)
            case "lose reply":
                world.finish(luck, is_reply_lost=True)
            case "wait":
                world.wait(luck)
            case "tick":
                world.now_s += 10 * luck
                world.send(Tick(), luck)
            case "desire":
                world.generation += 1
                # Few digests, so that things come back to what they were.
                world.desire(world.generation, f"d{int(luck * 4)}", luck)
            case "same" if world.machine.desired is not None:
                world.desire(world.generation, world.machine.desired.digest, luck)
            case "stale" if world.generation > 1:
                world.desire(world.generation - 1, f"d{int(luck * 4)}", luck)
            case "flush":
                world.holds = GuestState(world.holds.generation, world.holds.digest, has_drifted=True)
            case "drift":
                world.holds = GuestState(0, f"d{int(luck * 4)}", has_drifted=luck > 0.5)
            case "reboot":
                world.holds = EMPTY
                world.send(ChannelChanged(), luck)
            case "away":
                world.is_reachable = False
            case "back":
                world.is_reachable = True
            case "refuse":
                world.refuses.add(f"d{int(luck * 4)}")
            case "report" if world.is_reachable:
                world.send(Reported(world.holds), luck)
            case "channel":
                world.send(ChannelChanged(), luck)
            case "hopeless" if world.calls:
                world.calls.pop()
                world.send(WasNotInjectable("policy"), luck)
            case _:
                pass
    world.is_reachable = True
    world.refuses.clear()
    for _ in range(60):
        world.finish(0.5)
        # Long enough for every slow retry, and for the check that finds what nobody reported.
        world.now_s += 60.0
        world.send(Tick(), 0.5)
    world.finish(0.5)
    assert not world.open_tickets
    if world.machine.desired is not None:
        assert world.machine.is_current
        assert world.holds.digest == world.machine.desired.digest
        assert not world.holds.has_drifted
