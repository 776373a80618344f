# SPDX-License-Identifier: Apache-2.0
"""A guest's state machine: how it records and repairs drift."""

from bridge_api.messages import ResultCode
from kata_bridge.guests.core.events import (
    ChannelChanged,
    CheckState,
    DesiredChanged,
    DriftKind,
    PushRuleset,
    RecordDrift,
    StateReported,
    StateReturned,
)
from tests.unit.kata_bridge.guests.core.machine_scripts import (
    EMPTY,
    A,
    B,
    MachineScript,
    set_reply,
    state_with,
)


def test_drift_is_recorded_once_and_repaired_in_full() -> None:
    script = MachineScript().with_ruleset(A)
    assert script.wait() == (CheckState(),)
    drifted = state_with(A, has_drifted=True)
    assert script(StateReturned(drifted)) == (RecordDrift(DriftKind.DRIFTED), PushRuleset(A, None, (), 1))
    assert script(StateReturned(state_with(A))) == (RecordDrift(None),)


def test_rebooted_guest_gets_its_rules_again() -> None:
    script = MachineScript().with_ruleset(A)
    script(ChannelChanged())
    assert script.attach(EMPTY) == (RecordDrift(DriftKind.LOST), PushRuleset(A, None, (), 1))


def test_late_push_of_an_older_ruleset_is_repaired() -> None:
    script = MachineScript().with_ruleset(B)
    assert script(StateReported(state_with(A))) == (
        RecordDrift(DriftKind.REPLACED),
        PushRuleset(B, None, (), 1),
    )


def test_report_during_a_push_is_checked_after_it() -> None:
    script = MachineScript().with_ruleset(A)
    script(DesiredChanged(B, (), 1))
    assert script(StateReported(state_with(A, has_drifted=True))) == ()
    assert script(StateReturned(state_with(B))) == (set_reply(1, ResultCode.APPLIED, holds=B), CheckState())


def test_repeated_drift_is_repaired_with_backoff() -> None:
    script = MachineScript().with_ruleset(A)
    waits = []
    for _ in range(10):
        began_s = script.now_s
        actions = script(StateReported(EMPTY))
        while not any(isinstance(action, PushRuleset) for action in actions):
            actions = script.wait()
            if CheckState() in actions:
                actions = script(StateReturned(EMPTY))
        waits.append(round(script.now_s - began_s, 3))
        script(StateReturned(state_with(A)))
    assert waits == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
