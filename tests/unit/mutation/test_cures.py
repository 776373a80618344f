# SPDX-License-Identifier: Apache-2.0
"""The list of cures, mutants of a text, and their tests' results."""

from dataclasses import replace
from typing import Any

import pytest

from tests.mutation.__main__ import LISTS, ROOT, read
from tests.mutation.cures import Cure, CureError, Verdict, blind, left_out, parse, verdict, without

SOURCE = "def f(x):\n    if x > 3:\n        return 3\n    return x\n"
CURE = Cure("bound", "f.py", "    if x > 3:\n        return 3\n", "", ("t.py::test_a",))


def cure(**changes: Any) -> Cure:
    return replace(CURE, **changes)


def test_each_cure_is_in_the_code() -> None:
    """The author of a change to a cure's lines updates the list."""
    for one in parse(read(LISTS)):
        without(one, (ROOT / one.file).read_text(encoding="utf-8"))


def test_a_mutant_lacks_the_lines() -> None:
    assert without(CURE, SOURCE) == "def f(x):\n    return x\n"


@pytest.mark.parametrize(
    ("remove", "put", "reason"),
    [
        ("    if x > 4:\n", "", "stand 0 times"),
        ("    return", "", "stand 2 times"),
        ("if x > 3:\n", "", "whole lines"),
        ("    if x > 3:", "", "whole lines"),
        ("    return x\n", "    return x\n", "by themselves"),
    ],
)
def test_lines_that_cannot_be_taken_out(remove: str, put: str, reason: str) -> None:
    with pytest.raises(CureError, match=reason):
        without(cure(remove=remove, replace=put), SOURCE)


def test_a_mutant_is_killed_when_each_named_test_fails() -> None:
    both = cure(tests=("t.py::test_a", "u.py"))
    assert verdict(both, 1, ["t.py::test_a[1]", "u.py::test_b"], [], []) is Verdict.KILLED
    assert verdict(both, 1, ["t.py::test_a"], [], []) is Verdict.SURVIVED
    assert blind(both, ["t.py::test_a"]) == ["u.py"]


def test_a_name_that_only_begins_alike_is_another_test() -> None:
    assert verdict(CURE, 1, ["t.py::test_a_and_more"], [], []) is Verdict.SURVIVED


def test_tests_that_all_pass_have_not_noticed() -> None:
    assert verdict(CURE, 0, [], [], []) is Verdict.SURVIVED


@pytest.mark.parametrize(("code", "uncollected"), [(2, ["t.py"]), (4, []), (5, []), (1, ["t.py"])])
def test_tests_that_did_not_run_show_nothing(code: int, uncollected: list[str]) -> None:
    assert verdict(CURE, code, ["t.py::test_a"], uncollected, []) is Verdict.BROKEN


def test_a_skipped_test_has_neither_noticed_nor_not() -> None:
    """It needs root, or a program that is not built here."""
    skipped = {"t.py::test_a[1]": "not as root", "u.py": "no kernel", "v.py::test_c": "other"}
    both = cure(tests=("t.py::test_a", "u.py"))
    assert verdict(both, 0, [], [], skipped) is Verdict.LEFT_OUT
    assert left_out(both, [], skipped) == ["t.py::test_a[1]: not as root", "u.py: no kernel"]
    assert verdict(both, 1, ["u.py::test_b"], [], skipped) is Verdict.LEFT_OUT
    assert left_out(both, ["u.py::test_b"], skipped) == ["t.py::test_a[1]: not as root"]
    # Another of its sets of parameters has noticed.
    assert verdict(both, 1, ["u.py::test_b", "t.py::test_a[2]"], [], skipped) is Verdict.KILLED


ENTRY = '[[cure]]\nname = "a"\nfile = "p/q/f.py"\nremove = "x\\n"\ntests = ["t.py"]\n'


def test_an_entry() -> None:
    assert parse({"p.q": ENTRY}) == (Cure("a", "p/q/f.py", "x\n", "", ("t.py",)),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ENTRY + ENTRY, "two cures are called 'a'"),
        (ENTRY + "why = 1\n", "unknown keys"),
        (ENTRY.replace('tests = ["t.py"]', "tests = []"), "at least one test"),
        (ENTRY.replace('file = "p/q/f.py"\n', ""), "without"),
        ("cures = 1\n", "unknown keys"),
        ("[[", "p.q: "),
        (ENTRY.replace("p/q", "p"), "its place is the list of p, not of p.q"),
    ],
)
def test_lists_that_are_not_usable(text: str, reason: str) -> None:
    with pytest.raises(CureError, match=reason):
        parse({"p.q": text})


def test_a_name_is_taken_in_all_lists() -> None:
    with pytest.raises(CureError, match="two cures are called 'a'"):
        parse({"p.q": ENTRY, "p": ENTRY.replace("p/q", "p")})
