# SPDX-License-Identifier: Apache-2.0
"""What a run saw, and which of it no fault explains. Values in, verdict out.

Times are seconds since the run began.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

OK = "ok"


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """One request and its outcome: `ok`, or how it failed.

    `begin_s` is the last time at which all was well: of a long stream, its last answer.
    """

    begin_s: float
    end_s: float
    kind: str
    tenant: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Allowance:
    """What may fail during a fault, and how. `kinds` and `outcomes` are regular expressions of all of each;
    an empty `tenant` stands for every one."""

    kinds: str
    outcomes: str
    tenant: str = ""

    def covers(self, answer: LoadAnswer) -> bool:
        return (
            self.tenant in ("", answer.tenant)
            and re.fullmatch(self.kinds, answer.kind) is not None
            and re.fullmatch(self.outcomes, answer.outcome, re.DOTALL) is not None
        )


@dataclass(frozen=True, slots=True)
class FaultWindow:
    """From before a fault began until all load succeeded again. `lifted_s` is when its cause was gone.

    `is_recovered` is false where the load did not succeed in time.
    """

    name: str
    begin_s: float
    lifted_s: float
    end_s: float
    allowances: tuple[Allowance, ...]
    must: str = ""
    is_recovered: bool = True


@dataclass(frozen=True, slots=True)
class Violation:
    at_s: float
    text: str


def unexplained(answers: Iterable[LoadAnswer], windows: Sequence[FaultWindow]) -> list[Violation]:
    """The failed answers that no fault allows."""
    return [
        Violation(answer.end_s, f"{answer.kind} of {answer.tenant} failed: {answer.outcome}")
        for answer in answers
        if answer.outcome != OK and not any(_explains(window, answer) for window in windows)
    ]


def _explains(window: FaultWindow, answer: LoadAnswer) -> bool:
    is_meanwhile = answer.begin_s <= window.end_s and answer.end_s >= window.begin_s
    return is_meanwhile and any(allowance.covers(answer) for allowance in window.allowances)


def fault_problems(answers: Sequence[LoadAnswer], windows: Sequence[FaultWindow]) -> list[Violation]:
    """Faults after which the load did not succeed again, and those without their documented effect.

    A fault without an effect tests nothing.
    """
    found = [
        Violation(window.end_s, f"the load did not succeed again after {window.name}")
        for window in windows
        if not window.is_recovered
    ]
    for name, must in dict.fromkeys((window.name, window.must) for window in windows if window.must):
        mine = [window for window in windows if window.name == name]
        if not any(_has_effect(window, answer, must) for window in mine for answer in answers):
            found.append(Violation(mine[-1].end_s, f"{name} had no effect: no answer was {must}"))
    return found


def _has_effect(window: FaultWindow, answer: LoadAnswer, must: str) -> bool:
    is_meanwhile = answer.begin_s <= window.end_s and answer.end_s >= window.begin_s
    return is_meanwhile and re.fullmatch(must, answer.outcome, re.DOTALL) is not None


def foreign_words(body: bytes, words: Iterable[bytes]) -> list[str]:
    """Those words of others that stand in this answer."""
    return [word.decode() for word in words if word in body]
