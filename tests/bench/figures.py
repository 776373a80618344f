# SPDX-License-Identifier: Apache-2.0
"""From samples to the table: medians, paired ratios and the verdict on each. No I/O here."""

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Bound:
    """A value to reach: of the ratio ours/Go, or of our own figure (`is_absolute`)."""

    value: float
    is_floor: bool
    is_absolute: bool = False

    def verdict(self, row: "RatioRow") -> str:
        """`ok`, `BELOW` or `ABOVE`; with a `?` where the bound lies within the ratio's spread."""
        got = row.ours if self.is_absolute else row.ratio
        if math.isnan(got):
            return "?"
        is_kept = got >= self.value if self.is_floor else got <= self.value
        word = "ok" if is_kept else "BELOW" if self.is_floor else "ABOVE"
        is_close = not self.is_absolute and row.low <= self.value <= row.high
        return f"{word}?" if is_close else word

    def __str__(self) -> str:
        sign = ">=" if self.is_floor else "<="
        return f"{sign} {self.value:g}" + ("" if self.is_absolute else "x")


@dataclass(frozen=True, slots=True)
class Figure:
    """The label and unit of a row, and the bounds that it must meet now, and later ("target")."""

    label: str
    unit: str
    now: Bound | None = None
    target: Bound | None = None


@dataclass(frozen=True, slots=True)
class RatioRow:
    """A figure with its numbers: medians over the rounds, and the quartiles of the ratio.

    `beside` is the second peer's median, and `beside_ratio` ours/that; both are NaN without one.
    """

    figure: Figure
    ours: float
    peer: float
    ratio: float
    low: float
    high: float
    beside: float = math.nan
    beside_ratio: float = math.nan

    def cells(self) -> tuple[str, ...]:
        figure = self.figure
        return (
            figure.label,
            figure.unit,
            number(self.ours),
            number(self.peer),
            _ratio(self.ratio),
            f"{_ratio(self.low)}-{_ratio(self.high)}",
            self._against(figure.now),
            self._against(figure.target),
            *((number(self.beside), _ratio(self.beside_ratio)) if not math.isnan(self.beside) else ()),
        )

    def _against(self, bound: Bound | None) -> str:
        return f"{bound} {bound.verdict(self)}" if bound else ""


HEADINGS = ("", "unit", "ours", "go", "ours/go", "quartiles", "now at least", "target")
BESIDE_HEADINGS = ("nginx", "ours/nginx")


def row(
    figure: Figure, ours: Sequence[float], peer: Sequence[float], beside: Sequence[float] = ()
) -> RatioRow:
    """Pair the rounds: number n of ours was measured right beside number n of the peer's.

    The ratio is the median of the rounds' ratios, not the ratio of the medians: a disturbance of a
    round affects both halves of it. A round in which the peer has nothing (a latency "added" that
    drowned in noise) makes no ratio.
    """
    ratios = _ratios(ours, peer)
    low, high = quartiles(ratios)
    made = RatioRow(
        figure,
        statistics.median(ours),
        statistics.median(peer),
        statistics.median(ratios),
        low,
        high,
    )
    if not beside:
        return made
    ratio = statistics.median(_ratios(ours, beside))
    return replace(made, beside=statistics.median(beside), beside_ratio=ratio)


def _ratios(ours: Sequence[float], peer: Sequence[float]) -> list[float]:
    ratios = [mine / theirs for mine, theirs in zip(ours, peer, strict=True) if theirs > 0]
    return ratios or [math.nan]


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """First and third quartile; of one value, itself twice."""
    if len(values) < 2:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def table(rows: Sequence[RatioRow]) -> str:
    """Lay the rows out in columns: words to the left, numbers to the right."""
    has_second = any(not math.isnan(row.beside) for row in rows)
    headings = (*HEADINGS, *BESIDE_HEADINGS) if has_second else HEADINGS
    lines = [row.cells() for row in rows]
    padded = [(*line, *[""] * (len(headings) - len(line))) for line in lines]
    return laid_out([headings, *padded], (0, 1, 6, 7))


def laid_out(lines: Sequence[Sequence[str]], left: Collection[int]) -> str:
    """Cells in columns under the first line's; those numbered in `left` are words, the others numbers."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = []
    for line in lines:
        cells = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
    text.insert(1, "-" * max(len(line) for line in text))
    return "\n".join(text)


def _ratio(value: float) -> str:
    return "?" if math.isnan(value) else f"{value:.2f}"


def number(value: float) -> str:
    """Three significant digits."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
