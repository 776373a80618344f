# SPDX-License-Identifier: Apache-2.0
from kata_bridge.start_gate.core.decision import Kind
from kata_bridge.start_gate.core.node_condition import Condition, Tally, condition_of


def test_nobody_waits() -> None:
    assert condition_of(Tally()) == Condition(False, "GateOpen", "no pod waits at the gate")


def test_what_most_wait_for_is_the_reason() -> None:
    tally = Tally(4, {Kind.RESOLVER: 3, Kind.RULES: 2})
    message = "pods that wait at the gate: 4 (2 wait for their Services; 3 wait for their DNS settings)"
    assert condition_of(tally) == Condition(True, "ResolverMissing", message)
