# SPDX-License-Identifier: Apache-2.0
"""What `vcnode check` and `vcnode doctor` find: a level, a message, and what to do."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from vcnode.terminal import columns


class Level(enum.Enum):
    """`unknown`: what was asked gave no answer, so nothing is known of it."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """`check` is a name for programs: `kubelet`, `clock`. Only OK has no remedy."""

    check: str
    level: Level
    message: str
    remedy: str = ""


def failed(check: str, message: str, remedy: str) -> Finding:
    return Finding(check, Level.FAILED, message, remedy)


def warning(check: str, message: str, remedy: str) -> Finding:
    return Finding(check, Level.WARNING, message, remedy)


def render(findings: Iterable[Finding]) -> list[str]:
    """Two lines a finding: what it is, and what to do."""
    found = list(findings)
    heads = columns([(each.level.value, each.check, each.message) for each in found])
    lines = []
    for each, head in zip(found, heads, strict=True):
        lines.append(head)
        if each.remedy:
            lines.append(f"    -> {each.remedy}")
    return lines


def as_json(findings: Iterable[Finding]) -> list[dict[str, str]]:
    return [
        {"check": each.check, "level": each.level.value, "message": each.message, "remedy": each.remedy}
        for each in findings
    ]


def verdict(findings: Iterable[Finding], *, allowed: frozenset[Level]) -> bool | None:
    """Whether all findings are of an allowed level; None if all others are unknown."""
    levels = {each.level for each in findings} - allowed
    return None if levels == {Level.UNKNOWN} else not levels
