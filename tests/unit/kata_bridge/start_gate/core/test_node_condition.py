# SPDX-License-Identifier: Apache-2.0
from kata_bridge.start_gate.core.decision import Reason
from kata_bridge.start_gate.core.node_condition import (
    REASON_MESSAGES,
    REPORTED_AFTER_S,
    BlockedPods,
    NodeCondition,
    condition_of,
    count_blocked,
)


def test_pods_are_counted_once_they_are_blocked_for_long() -> None:
    """A pod with two reasons counts for each of them, and once in all."""
    short_s = REPORTED_AFTER_S - 0.001
    pods = [
        (REPORTED_AFTER_S, [Reason.RULES, Reason.RESOLVER]),
        (60.0, [Reason.RESOLVER, Reason.RESOLVER]),
        (short_s, [Reason.RULES]),
        (3600.0, []),
    ]
    assert count_blocked(pods) == BlockedPods(2, {Reason.RULES: 1, Reason.RESOLVER: 2})


def test_the_condition_is_false_while_no_pod_is_blocked() -> None:
    message = "the start gate has blocked no pod for 10 s or longer"
    assert condition_of(count_blocked([])) == NodeCondition(False, "NoPodBlocked", message)


def test_the_reason_is_that_of_most_blocked_pods() -> None:
    blocked = BlockedPods(4, {Reason.RESOLVER: 3, Reason.RULES: 2})
    message = (
        "pods blocked by the start gate for 10 s or longer: 4"
        " (2 wait for their Services; 3 wait for their resolver)"
    )
    assert condition_of(blocked) == NodeCondition(True, "ResolverNotSynced", message)


def test_each_reason_has_a_message_in_the_condition() -> None:
    """Without one, the loop that writes the condition would end by KeyError."""
    assert set(REASON_MESSAGES) == set(Reason)
    for reason in Reason:
        assert condition_of(BlockedPods(1, {reason: 1})).reason == reason.value
