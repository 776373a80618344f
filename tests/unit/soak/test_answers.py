# SPDX-License-Identifier: Apache-2.0
"""Which failed answers of a soak a fault explains, and which words are another tenant's."""

from dataclasses import replace
from typing import Any

import pytest

from tests.soak.answers import (
    OK,
    Allowance,
    FaultWindow,
    LoadAnswer,
    Violation,
    fault_problems,
    foreign_words,
    unexplained,
)

AWAY = Allowance("log|page", r"50[24] .*|cut: .*")


KUBELET_DOWN = FaultWindow("kubelet down", 10.0, 12.0, 14.0, (AWAY,))


def window(**changes: Any) -> FaultWindow:
    return replace(KUBELET_DOWN, **changes)


def answer(begin_s: float, end_s: float, kind: str = "log", outcome: str = "502 down") -> LoadAnswer:
    return LoadAnswer(begin_s, end_s, kind, "acme", outcome)


@pytest.mark.parametrize(
    ("failed", "is_explained"),
    [
        (answer(11.0, 11.5), True),
        (answer(9.0, 10.0), True),  # it began before the fault did
        (answer(14.0, 15.0), True),  # it ended after the recovery
        (answer(8.0, 9.9), False),
        (answer(14.1, 15.0), False),
        (answer(11.0, 11.5, kind="refusal"), False),
        (answer(11.0, 11.5, outcome="503 no reason"), False),
        (answer(11.0, 11.5, outcome="cut: reset\nby peer"), True),
        (answer(11.0, 11.5, outcome="the log: 502 "), False),  # of all of the outcome
        (answer(50.0, 51.0, outcome=OK), True),
    ],
)
def test_a_fault_explains_what_it_allows_in_its_window(failed: LoadAnswer, is_explained: bool) -> None:
    expected = (
        [] if is_explained else [Violation(failed.end_s, f"{failed.kind} of acme failed: {failed.outcome}")]
    )
    assert unexplained([failed], [window()]) == expected


def test_an_allowance_for_one_tenant_is_no_other_ones() -> None:
    windows = [window(allowances=(Allowance("log", ".*", tenant="globex"),))]
    assert len(unexplained([answer(11.0, 11.5)], windows)) == 1


def test_load_that_does_not_succeed_again_is_a_violation() -> None:
    assert fault_problems([], [window(is_recovered=False)]) == [
        Violation(14.0, "the load did not succeed again after kubelet down")
    ]


@pytest.mark.parametrize(
    ("seen", "has_effect"),
    [(answer(11.0, 11.5), True), (answer(11.0, 11.5, outcome="cut: x"), False), (answer(20.0, 21.0), False)],
)
def test_a_fault_without_its_effect_is_a_violation(seen: LoadAnswer, has_effect: bool) -> None:
    expected = [] if has_effect else [Violation(14.0, "kubelet down had no effect: no answer was 502 .*")]
    assert fault_problems([seen], [window(must="502 .*")]) == expected


def test_one_effect_is_enough_for_all_times_of_a_fault() -> None:
    windows = [window(must="502 .*"), window(must="502 .*", begin_s=30.0, lifted_s=31.0, end_s=32.0)]
    assert fault_problems([answer(31.0, 31.5)], windows) == []


def test_words_of_others_are_found_anywhere() -> None:
    assert foreign_words(b'{"a":"xx-4f1c-yy"}', [b"4f1c", b"77aa"]) == ["4f1c"]
