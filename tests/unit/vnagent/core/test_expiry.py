# SPDX-License-Identifier: Apache-2.0
"""What has expired is found at its time, and nothing else is looked at."""

import math

import pytest

from vnagent.core.expiry import ExpiryIndex

NOW_S = 1_700_000_000.5


@pytest.mark.parametrize(
    ("not_after_s", "now_s", "is_due"),
    [
        (NOW_S + 9.5, NOW_S + 9.4, False),
        (NOW_S + 9.5, NOW_S + 9.5, False),  # its last moment
        (NOW_S + 9.5, NOW_S + 9.6, True),
        (NOW_S + 9.6, NOW_S + 9.7, False),  # within a second
        (NOW_S + 9.6, NOW_S + 10.6, True),
        (NOW_S + 9.5, NOW_S + 1e6, True),  # the clock was set
        (math.inf, NOW_S + 1e6, False),
    ],
)
def test_when_something_is_due(not_after_s: float, now_s: float, *, is_due: bool) -> None:
    index = ExpiryIndex[str]()
    index.add("one", not_after_s)
    assert index.due(NOW_S) == []
    assert index.due(now_s) == ["one"] * is_due
    assert index.due(now_s) == []


def test_what_was_discarded_is_not_due() -> None:
    index = ExpiryIndex[str]()
    for one in ("a", "b"):
        index.add(one, NOW_S)
    index.discard("a", NOW_S)
    index.discard("a", NOW_S)
    index.discard("c", NOW_S + 5)
    index.discard("d", math.inf)
    assert index.due(NOW_S + 1) == ["b"]
    index.discard("b", NOW_S)
    assert len(index) == 0


def test_what_expired_before_it_was_added_is_due_next() -> None:
    """A certificate may expire between the handshake that verified it and the connection's admission."""
    index = ExpiryIndex[str]()
    assert index.due(NOW_S) == []
    for one in ("a", "b"):
        index.add(one, NOW_S - 0.6)
    index.discard("b", NOW_S - 0.6)
    assert index.due(NOW_S + 0.1) == ["a"]
    assert index.due(NOW_S + 1.1) == []


def test_a_clock_that_goes_back_makes_it_due_again() -> None:
    """It had not expired when it was looked at, so it still has to end."""
    index = ExpiryIndex[str]()
    index.add("one", NOW_S + 5)
    found = [index.due(NOW_S + after_s) for after_s in (0, 10, -3600, 0, 4, 6)]
    assert found == [[], ["one"], [], [], [], ["one"]]


def test_each_of_many_seconds_is_looked_at_once() -> None:
    index = ExpiryIndex[int]()
    for number in range(10):
        index.add(number, math.floor(NOW_S) + number)
    found = [index.due(NOW_S + number) for number in range(10)]
    assert found == [[number] for number in range(10)]
