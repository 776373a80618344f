# SPDX-License-Identifier: Apache-2.0
from kata_bridge.start_gate.core.decision import Reason
from kata_bridge.start_gate.core.node_condition import BlockedPods, NodeCondition, condition_of


def test_the_condition_is_false_while_no_pod_is_blocked() -> None:
    expected = NodeCondition(False, "NoPodBlocked", "the start gate blocks no pod")
    assert condition_of(BlockedPods()) == expected


def test_the_reason_is_that_of_most_blocked_pods() -> None:
    blocked = BlockedPods(4, {Reason.RESOLVER: 3, Reason.RULES: 2})
    message = "pods blocked by the start gate: 4 (2 wait for their Services; 3 wait for their resolver)"
    assert condition_of(blocked) == NodeCondition(True, "ResolverNotSynced", message)
