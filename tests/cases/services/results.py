# SPDX-License-Identifier: Apache-2.0
"""What came of one case."""

from collections.abc import Callable
from dataclasses import dataclass

Job = Callable[[], tuple[list[str], str]]
"""A case to be answered: its complaints, and what was asked and left out."""


@dataclass(frozen=True, slots=True)
class NamedCase:
    id: str


@dataclass(frozen=True, slots=True)
class ServiceCaseResult:
    """One that is left out whole counts as nothing; `note` says why."""

    case: NamedCase
    complaints: tuple[str, ...]
    took_s: float
    note: str = ""
    is_left_out: bool = False

    @property
    def has_passed(self) -> bool:
        return not self.complaints and not self.is_left_out
