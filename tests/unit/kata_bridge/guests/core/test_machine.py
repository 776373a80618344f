# SPDX-License-Identifier: Apache-2.0
"""A guest's state machine: how it applies the desired ruleset, and its replies."""

from bridge_api.messages import ResultCode
from kata_bridge.guests.core.events import (
    CancelProbe,
    ChannelChanged,
    DesiredChanged,
    FullRulesetNeeded,
    ProbeChannel,
    PushRuleset,
    SandboxRemoved,
    StateReturned,
)
from tests.unit.kata_bridge.guests.core.machine_scripts import (
    CHECK_S,
    FLOW,
    OTHER,
    SHIM,
    A,
    B,
    MachineScript,
    rules,
    set_reply,
    state_with,
)


def test_new_guest_gets_the_ruleset_that_was_set_before() -> None:
    script = MachineScript()
    assert script(DesiredChanged(A, (FLOW,), 7)) == ()
    assert script.attach() == (PushRuleset(A, None, (FLOW,), 1),)
    assert script(StateReturned(state_with(A))) == (set_reply(7, ResultCode.APPLIED, holds=A),)
    assert script.machine.message == ""
    assert script.machine.due_s() == 100.0 + CHECK_S / 2


def test_ruleset_that_the_guest_holds_is_not_pushed() -> None:
    script = MachineScript()
    assert script.attach(state_with(A)) == ()
    assert script(DesiredChanged(A, (FLOW,), 1)) == (set_reply(1, ResultCode.UNCHANGED, holds=A),)
    again = rules(9, A.digest)
    assert script(DesiredChanged(again, (), 2)) == (set_reply(2, ResultCode.UNCHANGED, holds=A),)


def test_newer_ruleset_supersedes_the_one_before() -> None:
    script = MachineScript()
    script.attach()
    assert script(DesiredChanged(A, (FLOW,), 1)) == (PushRuleset(A, None, (FLOW,), 1),)
    superseded = "generation 2 was set after it"
    assert script(DesiredChanged(B, (OTHER,), 2)) == (set_reply(1, ResultCode.SUPERSEDED, superseded, B),)
    # The push of A has flushed its flows. The change to B is sent as a delta.
    assert script(StateReturned(state_with(A))) == (PushRuleset(B, A, (OTHER,), 2),)
    stale = set_reply(3, ResultCode.SUPERSEDED, "generation 2 was set before", B)
    assert script(DesiredChanged(A, (), 3)) == (stale,)
    assert script(StateReturned(state_with(B))) == (set_reply(2, ResultCode.APPLIED, holds=B),)


def test_flow_added_during_its_flush_is_flushed_again() -> None:
    script = MachineScript()
    script.attach()
    script(DesiredChanged(A, (FLOW, OTHER), 1))
    script(DesiredChanged(B, (FLOW,), 2))
    assert script(StateReturned(state_with(A))) == (PushRuleset(B, A, (FLOW,), 2),)


def test_channel_without_deltas_gets_the_full_ruleset() -> None:
    script = MachineScript(capabilities=SHIM).with_ruleset(A)
    assert script(DesiredChanged(B, (), 1)) == (PushRuleset(B, None, (), 2),)


def test_missing_base_leads_to_a_full_push() -> None:
    script = MachineScript().with_ruleset(A)
    assert script(DesiredChanged(B, (), 1)) == (PushRuleset(B, A, (), 2),)
    assert script(FullRulesetNeeded()) == (PushRuleset(B, None, (), 2),)
    assert script(StateReturned(state_with(B))) == (set_reply(1, ResultCode.APPLIED, holds=B),)


def test_channel_change_cancels_the_probe_in_flight() -> None:
    script = MachineScript()
    script(DesiredChanged(A, (), 1))
    assert script(ChannelChanged()) == (CancelProbe(), ProbeChannel())
    assert script.attach() == (PushRuleset(A, None, (), 1),)


def test_pending_requests_end_with_the_sandbox() -> None:
    script = MachineScript()
    script(DesiredChanged(A, (), 1))
    gone = "the sandbox was stopped"
    assert script(SandboxRemoved()) == (set_reply(1, ResultCode.GONE, gone),)
    assert script.attach() == ()
    assert script(DesiredChanged(B, (), 2)) == (set_reply(2, ResultCode.GONE, gone),)
    assert script.machine.due_s() is None
