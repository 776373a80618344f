# SPDX-License-Identifier: Apache-2.0
"""No text from outside meets an expression that takes more than linear time; tests/regexes proves it."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.regexes.automaton import Automaton
from tests.regexes.expressions import Expression, expressions, of_module
from tests.regexes.steps import Matcher, TooManyStepsError
from tests.regexes.syntax import alphabet_of, parse

EXPRESSIONS = expressions()
NAMES = [each.place for each in EXPRESSIONS]

# Pumped so often, and twice as often.
PUMPED, PUMPS = 64, 6
MAX_STEPS = 400_000
# For a text twice as long: 2 if linear, with room for the fixed costs of a short text.
MAX_RATIO = 2.4
# An expression with a bound may take the square of it, which `re` does in 40 ms.
MAX_BOUNDED_STEPS = 16_000_000


def automaton(each: Expression) -> Automaton:
    return Automaton(each.pattern, is_search=each.is_search, is_full=each.is_full)


@pytest.mark.parametrize("each", EXPRESSIONS, ids=NAMES)
def test_each_expression_is_linear_or_has_a_bound(each: Expression) -> None:
    """Mend it: a possessive quantifier, a bound, or none at all (`str.find`, `str.partition`)."""
    pumps = automaton(each).pumps()
    assert each.bound is not None or pumps == []


def cost(each: Expression, text: str) -> int:
    """The steps that the expression takes, used as it is; and that the matcher finds what `re` does."""
    matcher = Matcher(text, MAX_STEPS, isinstance(each.pattern.pattern, bytes))
    node = parse(each.pattern)
    real: Any = text.encode("latin-1") if matcher.is_bytes else text
    if each.is_search:
        at = 0
        for match in each.pattern.finditer(real):
            found = matcher.search(node, at)
            if found is None or found[1] == at or match.end() == match.start():
                break  # empty matches have rules of their own
            assert found == match.span()
            at = found[1]
        else:
            assert matcher.search(node, at) is None
        return matcher.steps
    match = each.pattern.fullmatch(real) if each.is_full else each.pattern.match(real)
    assert matcher.match(node, 0, is_full=each.is_full) == (match.end() if match else None)
    return matcher.steps


@pytest.mark.parametrize("each", EXPRESSIONS, ids=NAMES)
def test_each_expression_is_pumped(each: Expression) -> None:
    """A text twice as long takes twice as many steps. Steps are counted, as times vary."""
    alphabet = alphabet_of(each.pattern)
    ends = ("", next((c for c in "\x00~\n" if c in alphabet), ""))
    for begin, again in automaton(each).cycles(PUMPS):
        for end in ends:
            short = cost(each, begin + again * PUMPED + end)
            long = cost(each, begin + again * (2 * PUMPED) + end)
            if each.bound is None:
                assert long <= MAX_RATIO * short, (begin, again, end)
            else:
                assert long * (each.bound / (2 * PUMPED * len(again))) ** 2 <= MAX_BOUNDED_STEPS


# Those that were found by attack, and the forms that hide.
SLOW = [
    r"\S*tables-\S+ failed: ",
    r'"(?:\\.|[^"\\])*"',
    r"(?:a|a)*b",
    r"(?:a*)*b",
    r"a*+b",  # no backtracking, and yet it tries each start
    r"a*$",
    r"(?i:A)*a+b",
    r"(?:a?){2,}b",
    r"[^x]+x?y",
]
LINEAR = [
    r"[0-9.]+",
    r'"(?:\\.|[^"\\])*+(?:"|\\?\Z)',
    r"x[^x]*y",
    r"\bline:? ([0-9]{1,7})\b",
    r"a{1,100}b",
]


def of(pattern: str) -> Expression:
    return Expression(pattern, re.compile(pattern, re.DOTALL), frozenset({"sub"}))


@pytest.mark.parametrize("pattern", SLOW)
def test_the_proof_finds_a_pump_and_the_pump_is_slow(pattern: str) -> None:
    (pump, *_) = automaton(of(pattern)).pumps()
    once, twice, end = pump.begin + pump.again * 12, pump.begin + pump.again * 24, "\x00"
    matcher, double = Matcher(once + end, 1 << 30), Matcher(twice + end, MAX_STEPS)
    matcher.search(parse(re.compile(pattern)), 0)
    with suppress(TooManyStepsError):
        double.search(parse(re.compile(pattern)), 0)
    assert double.steps > MAX_RATIO * matcher.steps


def test_a_lookahead_from_each_position_is_found_too() -> None:
    assert automaton(of(r",(?![^(]*\))")).pumps() != []


@pytest.mark.parametrize("pattern", LINEAR)
def test_the_proof_lets_linear_ones_be(pattern: str) -> None:
    assert automaton(of(pattern)).pumps() == []


def test_none_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.regexes.expressions.ROOT", tmp_path)
    inside = tmp_path / "inside.py"
    inside.write_text("import re\ndef f(text: str) -> object:\n    return re.compile(text)\n")
    with pytest.raises(ValueError, match=r"inside\.py:3"):
        list(of_module(inside))
    built = tmp_path / "built.py"
    built.write_text("import re\ndef f(a: str, b: str) -> object:\n    return re.search(a + '*', b)\n")
    with pytest.raises(AssertionError, match=r"built\.py:3"):
        list(of_module(built))
