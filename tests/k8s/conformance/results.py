# SPDX-License-Identifier: Apache-2.0
"""Results of specs as ginkgo reports them, and the table of two runs beside each other. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_AREA = re.compile(r"\[sig-([a-z-]+)\]")
_TAGS = re.compile(r"\s*\[(?:sig-[a-z-]+|NodeConformance|Conformance|LinuxOnly|Slow|Serial|Disruptive)\]")
_PASSED, _SKIPPED = "passed", "skipped"


@dataclass(frozen=True, slots=True)
class SpecResult:
    """One spec that ran; `message` says why it failed."""

    area: str
    name: str
    state: str
    seconds: float
    message: str = ""

    @property
    def has_passed(self) -> bool:
        return self.state == _PASSED


@dataclass(frozen=True, slots=True)
class Totals:
    """One row's figures."""

    run: int
    passed: int
    failed: int
    skipped: int


def results(report: Sequence[Mapping[str, Any]]) -> list[SpecResult]:
    """The specs of ginkgo's JSON report that were not left out by the focus."""
    found = []
    for suite in report:
        for spec in suite.get("SpecReports") or ():
            texts = [*(spec.get("ContainerHierarchyTexts") or ()), spec.get("LeafNodeText") or ""]
            text = " ".join(texts)
            area = _AREA.search(text)
            failure = spec.get("Failure") or {}
            # What the focus leaves out is skipped too, but has not begun.
            if (
                spec.get("LeafNodeType") != "It"
                or area is None
                or (spec["State"] == _SKIPPED and not failure.get("Message"))
                or spec["State"] == "pending"
            ):
                continue
            found.append(
                SpecResult(
                    area.group(1),
                    _TAGS.sub("", text).strip(),
                    spec["State"],
                    spec.get("RunTime", 0) / 1e9,
                    failure.get("Message", ""),
                )
            )
    return sorted(found, key=lambda each: (each.area, each.name))


def totals(found: Iterable[SpecResult]) -> Totals:
    """How many ran, passed, failed and were skipped while they ran."""
    states = [each.state for each in found]
    passed, skipped = states.count(_PASSED), states.count(_SKIPPED)
    return Totals(len(states) - skipped, passed, len(states) - skipped - passed, skipped)


def table(runs: Mapping[str, Sequence[SpecResult]]) -> str:
    """A row an area, for each run its figures side by side, as Markdown."""
    areas = sorted({each.area for found in runs.values() for each in found})
    names = ("run", "passed", "failed", "skipped")
    header = ["area", *(f"{title}: {name}" if name == "run" else name for title in runs for name in names)]
    lines = [_row(header), _row(["---"] * len(header))]
    for area in [*areas, ""]:
        cells = [f"sig-{area}" if area else "**all**"]
        for found in runs.values():
            own = totals(each for each in found if area in ("", each.area))
            cells += map(str, (own.run, own.passed, own.failed, own.skipped))
        lines.append(_row(cells))
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def differences(runs: Mapping[str, Sequence[SpecResult]]) -> list[str]:
    """A line for each spec that has not passed in some run: what each made of it, and the reason."""
    by_name: dict[tuple[str, str], dict[str, SpecResult]] = {}
    for title, found in runs.items():
        for each in found:
            by_name.setdefault((each.area, each.name), {})[title] = each
    lines = []
    for (area, name), own in sorted(by_name.items()):
        if all(each.has_passed or each.state == _SKIPPED for each in own.values()):
            continue
        states = ", ".join(f"{title} {each.state}" for title, each in own.items())
        lines.append(f"sig-{area} {name}: {states}")
        lines += [f"    {title}: {_first(each.message)}" for title, each in own.items() if each.message]
    return lines


def _first(message: str) -> str:
    return " ".join(message.split())[:400]
