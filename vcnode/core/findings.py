# SPDX-License-Identifier: Apache-2.0
"""What `vcnode check` and `vcnode doctor` find: a level, a message, and what to do."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from vcnode.terminal import Style, styled, wrapped


class Level(enum.Enum):
    """`unknown`: what was asked gave no answer, so nothing is known of it."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


_STYLES = {
    Level.OK: Style.GOOD,
    Level.WARNING: Style.WARNING,
    Level.FAILED: Style.BAD,
    Level.UNKNOWN: Style.WARNING,
}


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


def render(findings: Iterable[Finding], width: int | None = None) -> list[str]:
    """What each finding is, and what to do; both fold at `width` characters."""
    found = list(findings)
    level_width = max((len(each.level.value) for each in found), default=0)
    check_width = max((len(each.check) for each in found), default=0)
    lines = []
    for each in found:
        level = each.level.value
        about = f"{' ' * (level_width - len(level))}  {each.check:<{check_width}}  "
        head = styled(level, _STYLES[each.level], f"{about}{each.message}")
        lines += wrapped(head, width, " " * (len(level) + len(about)))
        if each.remedy:
            lines += wrapped(f"    -> {each.remedy}", width, " " * len("    -> "))
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
