# SPDX-License-Identifier: Apache-2.0
"""A guest's state machine: failures, their retries and replies."""

from bridge_api.messages import ResultCode
from kata_bridge.guests.core.events import (
    CallRefused,
    ChannelChanged,
    CheckState,
    DesiredChanged,
    FlushFlows,
    FlushSucceeded,
    GuestNotInjectable,
    GuestUnreachable,
    ProbeChannel,
    PushRuleset,
    StateReturned,
)
from tests.unit.kata_bridge.guests.core.machine_scripts import (
    CHECK_S,
    EMPTY,
    FLOW,
    A,
    B,
    MachineScript,
    rules,
    set_reply,
    state_with,
)


def test_unreachable_guest_is_probed_with_backoff() -> None:
    script = MachineScript()
    script(DesiredChanged(A, (), 1))
    first = script(GuestUnreachable("agent: not attached"))
    assert first == (set_reply(1, ResultCode.UNREACHABLE, "agent: not attached"),)
    assert script.machine.message == "agent: not attached"
    waits = []
    for _ in range(12):
        began_s = script.now_s
        assert script.wait() == (ProbeChannel(),)
        waits.append(round(script.now_s - began_s, 3))
        assert script(GuestUnreachable("agent: not attached")) == ()
    assert waits == [0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]
    # Another request gets its reply at once, and does not wait for the next try.
    assert script(DesiredChanged(B, (), 2)) == (set_reply(2, ResultCode.UNREACHABLE, "agent: not attached"),)
    # The agent attaches: the desired ruleset is applied at once.
    assert script(ChannelChanged()) == (ProbeChannel(),)
    assert script.attach() == (PushRuleset(B, None, (), 2),)
    assert script(StateReturned(state_with(B))) == ()
    assert script.machine.is_current


def test_flows_of_a_push_with_unknown_outcome_are_flushed() -> None:
    script = MachineScript()
    script.attach()
    script(DesiredChanged(A, (FLOW,), 1))
    script(GuestUnreachable("nothing within 10 s"))
    assert script.wait() == (ProbeChannel(),)
    assert script.attach(state_with(A)) == (FlushFlows((FLOW,), 1),)
    assert script(FlushSucceeded()) == ()
    assert script.machine.due_s() == script.now_s + CHECK_S / 2


def test_refused_ruleset_waits_for_another_one() -> None:
    script = MachineScript().with_ruleset(A)
    script(DesiredChanged(B, (), 1))
    refused = script(CallRefused("line 3: -j NOPE"))
    assert refused == (set_reply(1, ResultCode.REFUSED, "line 3: -j NOPE", A), CheckState())
    assert script(StateReturned(state_with(A))) == ()
    assert script.machine.message == "the guest refused the ruleset: line 3: -j NOPE"
    assert script(DesiredChanged(rules(3, B.digest), (), 2)) == (
        set_reply(2, ResultCode.REFUSED, "line 3: -j NOPE", A),
    )
    assert script.later(60) == (CheckState(),)
    assert script(StateReturned(state_with(A))) == ()
    # Part of B may be applied: the next push is full.
    assert script(DesiredChanged(rules(4), (), 3)) == (PushRuleset(rules(4), None, (), 4),)


def test_refused_ruleset_is_tried_again_after_minutes() -> None:
    script = MachineScript()
    script.attach()
    script(DesiredChanged(A, (), 1))
    script(CallRefused("no such table"))
    script(StateReturned(EMPTY))
    tried_after_s = None
    while tried_after_s is None:
        for action in script.wait():
            if isinstance(action, CheckState):
                script(StateReturned(EMPTY))
            elif isinstance(action, PushRuleset):
                tried_after_s = script.now_s - 100.0
    assert tried_after_s == 150.0


def test_not_injectable_guest_is_not_retried_soon() -> None:
    script = MachineScript()
    script(DesiredChanged(A, (), 1))
    text = "shim: the agent's policy forbids it"
    assert script(GuestNotInjectable(text)) == (set_reply(1, ResultCode.NOT_INJECTABLE, text),)
    assert script(DesiredChanged(B, (), 2)) == (set_reply(2, ResultCode.NOT_INJECTABLE, text),)
    assert script.machine.message == text
    assert script.later(100) == ()
    assert script(ChannelChanged()) == (ProbeChannel(),)
    assert script.attach() == (PushRuleset(B, None, (), 2),)


def test_push_that_has_no_effect_is_retried_with_backoff() -> None:
    script = MachineScript()
    script.attach()
    script(DesiredChanged(A, (), 1))
    text = "after a push of d1 the guest holds nothing"
    assert script(StateReturned(EMPTY)) == (set_reply(1, ResultCode.UNREACHABLE, text),)
    assert script.machine.due_s() == 100.025
