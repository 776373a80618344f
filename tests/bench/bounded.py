# SPDX-License-Identifier: Apache-2.0
"""From samples to the table: ours with its spread and bound, and the ratio to each peer."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from tests.bench.figures import laid_out, number, quartiles

Rounds = Sequence[Sequence[float]]
"""The samples of each round. Number n of ours was measured right beside number n of a peer."""

Tables = Sequence[tuple[str, Sequence["BoundedRow"]]]
"""Each with its heading."""


def p50(values: Sequence[float]) -> float:
    return statistics.median(values)


def p99(values: Sequence[float]) -> float:
    """The nearest rank: of less than a hundred values the largest."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


@dataclass(frozen=True, slots=True)
class Figure:
    """The label and unit of a row, and its upper bound."""

    label: str
    unit: str
    at_most: float | None = None


@dataclass(frozen=True, slots=True)
class PeerFigure:
    """A peer's number, and ours through it; the quartiles are of the rounds' ratios."""

    value: float
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class BoundedRow:
    """A figure with its numbers. `low` and `high` are the quartiles of our samples."""

    figure: Figure
    ours: float
    low: float
    high: float
    count: int
    peers: Mapping[str, PeerFigure] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """`OK` or `ABOVE`, with a `?` where the bound lies within the spread."""
        most = self.figure.at_most
        if most is None:
            return ""
        word = "OK" if self.ours <= most else "ABOVE"
        return f"{word}?" if self.low <= most < self.high or self.low < most <= self.high else word

    def cells(self, peers: Sequence[str]) -> tuple[str, ...]:
        most = self.figure.at_most
        cells = [
            self.figure.label,
            self.figure.unit,
            number(self.ours),
            f"{number(self.low)}-{number(self.high)}" if self.count > 1 else "",
            "" if most is None else f"<= {most:g} {self.verdict}",
        ]
        for name in peers:
            peer = self.peers.get(name)
            cells += ["", ""] if peer is None else [number(peer.value), _ratio(peer)]
        return tuple(cells)


def row(
    figure: Figure,
    ours: Rounds,
    peers: Mapping[str, Rounds] | None = None,
    statistic: Callable[[Sequence[float]], float] = p50,
) -> BoundedRow:
    """Make a row of all samples; what a peer has no sample of is left out."""
    pooled = [value for samples in ours for value in samples]
    low, high = quartiles(pooled)
    found = {name: _peer(ours, rounds, statistic) for name, rounds in (peers or {}).items() if any(rounds)}
    if statistic is not p50:
        low = high = statistic(pooled)
    return BoundedRow(figure, statistic(pooled), low, high, len(pooled) if statistic is p50 else 1, found)


def value(figure: Figure, ours: float, peers: Mapping[str, float] | None = None) -> BoundedRow:
    """A row of one number each."""
    rounds = {name: [[each]] for name, each in (peers or {}).items()}
    return row(figure, [[ours]], rounds)


def _peer(ours: Rounds, theirs: Rounds, statistic: Callable[[Sequence[float]], float]) -> PeerFigure:
    pooled = statistic([value for samples in theirs for value in samples])
    if len(ours) == len(theirs):
        ratios = [
            statistic(mine) / statistic(other)
            for mine, other in zip(ours, theirs, strict=True)
            if mine and other and statistic(other) > 0
        ]
    else:
        all_ours = [value for samples in ours for value in samples]
        ratios = [statistic(all_ours) / pooled] if pooled > 0 else []
    ratios = ratios or [float("nan")]
    return PeerFigure(pooled, statistics.median(ratios), *quartiles(ratios))


def table(rows: Sequence[BoundedRow], peers: Sequence[str]) -> str:
    """Lay the rows out in columns: words to the left, numbers to the right; two columns for each peer."""
    headings = (
        "",
        "unit",
        "ours",
        "quartiles",
        "bound",
        *(word for name in peers for word in (name, "ours/it")),
    )
    return laid_out([headings, *(row.cells(peers) for row in rows)], (0, 1, 4))


def document(tables: Tables) -> list[dict[str, object]]:
    """The same for a program that compares runs."""
    made: list[dict[str, object]] = []
    for title, rows in tables:
        label = ""
        for each in rows:
            label = each.figure.label.strip() or label
            made.append(
                {
                    "table": title,
                    "label": label,
                    "unit": each.figure.unit,
                    "ours": each.ours,
                    "quartiles": [each.low, each.high],
                    "atMost": each.figure.at_most,
                    "verdict": each.verdict,
                    "peers": {name: asdict(peer) for name, peer in each.peers.items()},
                }
            )
    return made


def _ratio(peer: PeerFigure) -> str:
    if peer.ratio != peer.ratio:  # NaN
        return "?"
    if peer.high - peer.low < 0.005:
        return f"{peer.ratio:.2g}"
    return f"{peer.ratio:.2g} ({peer.low:.2g}-{peer.high:.2g})"
