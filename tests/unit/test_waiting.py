# SPDX-License-Identifier: Apache-2.0
"""A failed wait shows its condition and the last values."""

import pytest

from tests import waiting

SEEN = [1, 2]


def test_failure_shows_the_operands_of_a_comparison() -> None:
    expected = 3
    assert waiting.failure(lambda: len(SEEN) == expected, 20) == (
        "not within 20 s: len(SEEN) == expected\n  len(SEEN) = 2\n  expected = 3"
    )


def test_failure_shows_each_part_of_a_conjunction() -> None:
    def is_ready() -> bool:
        return False

    text = waiting.failure(
        lambda: is_ready() and not (SEEN[0] == 1 or SEEN[1] > 7),
        0.5,
        lambda: "the log ends: gone",
    )
    assert text.splitlines() == [
        "not within 0.5 s: is_ready() and (not (SEEN[0] == 1 or SEEN[1] > 7))",
        "  is_ready() = False",
        "  SEEN[0] = 1",
        "  SEEN[1] = 2",
        "the log ends: gone",
    ]


def test_failure_shows_what_an_operand_raises() -> None:
    assert "SEEN[7] = IndexError" in waiting.failure(lambda: SEEN[7] == 1, 1)


def test_failure_names_a_function() -> None:
    def is_served() -> bool:
        return False

    assert waiting.failure(is_served, 1) == (
        "not within 1 s: test_failure_names_a_function.<locals>.is_served"
    )


@pytest.mark.asyncio
async def test_until_returns_with_the_condition_or_fails_late() -> None:
    await waiting.until(lambda: len(SEEN) == 2)
    with pytest.raises(AssertionError, match=r"not within 20 s: SEEN == \[\]"):
        await waiting.until(lambda: SEEN == [])


@pytest.mark.asyncio
async def test_failing_calls_are_repeated_until_the_deadline() -> None:
    errors = [KeyError("a"), KeyError("b")]

    async def call() -> int:
        if errors:
            raise errors.pop()
        return 7

    assert await waiting.until_it_succeeds(call, KeyError) == 7
    errors = [KeyError("c")] * 3000
    with pytest.raises(AssertionError, match=r"(?s)not within 20 s: .*call\n  it raised KeyError\('c'\)"):
        await waiting.until_it_succeeds(call, KeyError)
