# SPDX-License-Identifier: Apache-2.0
"""The result of one case."""

from collections.abc import Callable
from dataclasses import dataclass

Job = Callable[[], tuple[list[str], str]]
"""Runs a case; returns its failures, and a note about what was checked and left out."""


@dataclass(frozen=True, slots=True)
class NamedCase:
    id: str


@dataclass(frozen=True, slots=True)
class ServiceCaseResult:
    """The result of a case; `note` has what was left out, and why."""

    case: NamedCase
    failures: tuple[str, ...]
    took_s: float
    note: str = ""
    is_left_out: bool = False

    @property
    def has_passed(self) -> bool:
        return not self.failures and not self.is_left_out
