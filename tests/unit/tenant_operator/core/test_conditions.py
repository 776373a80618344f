# SPDX-License-Identifier: Apache-2.0
"""Conditions have a type, one each, and a time that changes with their status alone."""

from __future__ import annotations

from tenant_operator.core.conditions import MAX_MESSAGE_CHARS, ConditionType, fails, holds, merged, unknown
from tenant_operator.model.virtual_cluster import Condition

NOW = 1_800_000_000.0
AT, BEFORE = "2027-01-15T08:00:00Z", "2027-01-15T07:00:00Z"
# Of vc-syncer, which keys them by their reason.
FOREIGN = Condition("", "True", "NotReachable", "it does not answer", BEFORE)


def test_condition_becomes_true_and_false_again() -> None:
    """Upstream's conditions were always True, and never changed."""
    first = merged([], [fails(ConditionType.READY, "WorkloadNotReady", "etcd has 0 of 1")], NOW)
    assert first == [Condition("Ready", "False", "WorkloadNotReady", "etcd has 0 of 1", AT)]
    second = merged(first, [holds(ConditionType.READY, "TenantReady")], NOW + 60)
    assert second == [Condition("Ready", "True", "TenantReady", "", "2027-01-15T08:01:00Z")]
    third = merged(second, [unknown(ConditionType.READY, "NotAsked", "")], NOW + 120)
    assert third == [Condition("Ready", "Unknown", "NotAsked", "", "2027-01-15T08:02:00Z")]


def test_another_reason_keeps_the_time() -> None:
    before = [Condition("Ready", "False", "A", "one", BEFORE)]
    assert merged(before, [fails(ConditionType.READY, "B", "two")], NOW) == [
        Condition("Ready", "False", "B", "two", BEFORE)
    ]


def test_conditions_of_others_stay() -> None:
    """And there is one of each type, however often it is written."""
    found = [FOREIGN]
    for _ in range(3):
        found = merged(found, [holds(ConditionType.READY, "TenantReady")], NOW)
    assert found == [Condition("Ready", "True", "TenantReady", "", AT), FOREIGN]


def test_long_message_is_cut() -> None:
    (found,) = merged([], [fails(ConditionType.READY, "A", "x" * 5_000)], NOW)
    assert len(found.message) == MAX_MESSAGE_CHARS
