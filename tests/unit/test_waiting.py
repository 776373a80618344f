# SPDX-License-Identifier: Apache-2.0
"""A failed wait shows its condition and the last values."""

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import waiting
from tests.packages import ROOT

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


def test_failure_shows_a_functions_variables_and_result() -> None:
    expected = 3

    def is_served() -> bool:
        count = len(SEEN)
        return count == expected

    assert waiting.failure(is_served, 1).splitlines() == [
        "not within 1 s: test_failure_shows_a_functions_variables_and_result.<locals>.is_served",
        "  count = 2",
        "  expected = 3",
        "  its result = False",
    ]


class BrokenRepr:
    def has_ended(self) -> bool:
        raise OSError

    def __repr__(self) -> str:
        raise ValueError


def test_failure_shows_what_a_method_raises() -> None:
    assert waiting.failure(BrokenRepr().has_ended, 1).splitlines() == [
        "not within 1 s: BrokenRepr.has_ended",
        "  self = ValueError()",
        "  its result = OSError()",
    ]


@pytest.mark.asyncio
async def test_failure_of_an_awaited_condition_shows_the_same() -> None:
    async def are_current() -> bool:
        states = ["pending"]
        await asyncio.sleep(1)
        states.append("applied")
        return False

    assert (await waiting.awaited_failure(are_current, 1)).splitlines()[1:] == [
        "  states = ['pending', 'applied']",
        "  its result = False",
    ]
    assert "SEEN = [1, 2]" in await waiting.awaited_failure(lambda: SEEN == [], 1)


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


def _of_the_loop(node: ast.AST) -> Iterator[ast.AST]:
    """What a loop runs itself: not in another loop, nor in a function that it only defines."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.While | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _of_the_loop(child)


def _bare_waits(path: Path) -> Iterator[str]:
    """Loops that sleep, fail without `waiting.failure`, and give no reason for their pace."""
    text = path.read_text()
    lines = text.splitlines()
    for loop in ast.walk(ast.parse(text)):
        if not isinstance(loop, ast.While):
            continue
        calls = [each for each in _of_the_loop(loop) if isinstance(each, ast.Call)]
        named = [(ast.unparse(call.func).rpartition(".")[2], call.lineno) for call in calls]
        if {"failure", "awaited_failure"} & {name for name, _ in named}:
            continue
        sleeps = [line for name, line in named if name == "sleep"]
        yield from (f"{path}:{line}" for line in sleeps if "  # pace: " not in lines[line - 1])


def test_loops_that_wait_report_what_they_saw() -> None:
    """Mend it: `tests.waiting`. Or say beside the sleep what paces the loop: `# pace: why`.

    In tests/unit a sleep takes no time, so nothing there waits for another process.
    """
    tests = ROOT / "tests"
    paths = sorted(path for path in tests.rglob("*.py") if not path.is_relative_to(tests / "unit"))
    assert [each for path in paths if path.name != "waiting.py" for each in _bare_waits(path)] == []
