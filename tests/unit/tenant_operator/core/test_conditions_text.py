# SPDX-License-Identifier: Apache-2.0
"""Conditions have text of tenants in them, and stay one line each."""

import pytest

from tenant_operator.core.conditions import ConditionType, fails, merged


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Forbidden", "Forbidden"),
        ("a", "a"),
        ("x" * 128, "x" * 128),
        ("x" * 129, "Refused"),
        ("x" * 5000, "Refused"),
        ("", "Refused"),
        ("A\x1b[2J", "Refused"),
        ("A\n", "Refused"),
        ("A B", "Refused"),
        ("É", "Refused"),
    ],
)
def test_a_reason_is_one_word(reason: str, expected: str) -> None:
    assert [each.reason for each in merged([], [fails(ConditionType.READY, reason, "m")], 0.0)] == [expected]


@pytest.mark.parametrize(
    ("message", "expected"),
    [("a\n\x1b]0;b\x07\tc", "a ]0;b c"), ("x" * 1_000_000, "x" * 1024), ("é\u2028\u200bd", "é d")],
)
def test_a_message_is_one_bounded_line(message: str, expected: str) -> None:
    found = merged([], [fails(ConditionType.UP_TO_DATE, "Refused", message)], 0.0)
    assert [each.message for each in found] == [expected]
