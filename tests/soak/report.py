# SPDX-License-Identifier: Apache-2.0
"""The report of a run, as lines of text. Values in, text out."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from tests.soak.answers import OK, FaultWindow, Violation
from tests.soak.growth import Growth
from vcnode.terminal import columns

_MOST_SHOWN = 40
_OUTCOME_CHARACTERS = 60


def requests(counts: Iterable[tuple[str, str, int]]) -> list[str]:
    """Requests by kind: how many were ok, and the failures by status or error."""
    kinds: dict[str, Counter[str]] = {}
    for kind, outcome, number in counts:
        kinds.setdefault(kind, Counter())[_short(outcome)] += number
    rows = [("KIND", "OK", "FAILED", "HOW")]
    for kind, outcomes in sorted(kinds.items()):
        failed = {outcome: number for outcome, number in outcomes.items() if outcome != OK}
        how = ", ".join(f"{outcome} ({number})" for outcome, number in sorted(failed.items())[:6])
        rows.append((kind, str(outcomes[OK]), str(sum(failed.values())), how))
    return columns(rows)


def faults(windows: Sequence[FaultWindow]) -> list[str]:
    """Each fault: how often, and the median and longest time until all load succeeded again."""
    rows = [("FAULT", "TIMES", "RECOVERED AFTER", "AT MOST")]
    for name in sorted({window.name for window in windows}):
        took_s = sorted(window.end_s - window.lifted_s for window in windows if window.name == name)
        rows.append((name, str(len(took_s)), f"{took_s[len(took_s) // 2]:.1f} s", f"{took_s[-1]:.1f} s"))
    return columns(rows)


def daemons(growths: Iterable[Growth]) -> list[str]:
    """The second and the last quarter of the longest life of each, and the trends, `?` where too few samples
    tell them."""
    rows = [("DAEMON", "SEEN FOR", "SAMPLES", "PSS MB", "MB/HOUR", "DESCRIPTORS", "AN HOUR", "THREADS")]
    rows += [
        (
            one.daemon,
            f"{one.span_s:.0f} s",
            f"{one.samples}",
            f"{one.pss_mb[0]:.1f} -> {one.pss_mb[1]:.1f}",
            f"{one.pss_trend.per_hour:+.1f}" if one.has_trend else "?",
            f"{one.descriptors[0]:.0f} -> {one.descriptors[1]:.0f}",
            f"{one.descriptor_trend.per_hour:+.1f}" if one.has_trend else "?",
            f"{one.threads[0]:.0f} -> {one.threads[1]:.0f}",
        )
        for one in growths
    ]
    return columns(rows)


def violations(found: Sequence[Violation]) -> list[str]:
    """Equal ones are counted, with the time of the first."""
    first: dict[str, float] = {}
    number: Counter[str] = Counter()
    for one in found:
        first.setdefault(one.text, one.at_s)
        number[one.text] += 1
    lines = [
        f"VIOLATION at {at_s:.1f} s{f', {number[text]} times' if number[text] > 1 else ''}: {text}"
        for text, at_s in first.items()
    ]
    if len(lines) > _MOST_SHOWN:
        lines[_MOST_SHOWN:] = [f"and {len(lines) - _MOST_SHOWN} others"]
    return lines


def _short(outcome: str) -> str:
    """A status, or the kind of an error, without what differs each time."""
    status = re.match(r"[0-9]{3} ", outcome)
    return status.group().strip() if status else outcome[:_OUTCOME_CHARACTERS]
