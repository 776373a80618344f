# SPDX-License-Identifier: Apache-2.0
"""From figures to tables: ours with its goal, the Go syncer's, and those of a peer in the same run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.bounded import BoundedRow, Figure, Tables, row, value
from tests.bench.syncer.parts import SyncerFigures

GO = "Go syncer"
PEER = "peer"
_MIB = 1.048576


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, or its ratio to the figure `per` of the same run, which another machine changes as much.

    `go` is the Go syncer's, as measured once with 10 real tenants.
    """

    name: str
    label: str
    unit: str
    at_most: float | None = None
    go: float | None = None
    per: str = ""

    def of(self, figures: Mapping[str, float]) -> float | None:
        """The number; None where it was not measured."""
        found, divisor = figures.get(self.name), figures.get(self.per) if self.per else 1.0
        return None if found is None or not divisor else found / divisor


_SUPER = "of the super API server's"
_THROUGHPUT = (
    Row("throughput pods/s", "until all run in their tenants", "pods/s"),
    Row("throughput cpu", "CPU", "s/1000 pods"),
    Row("throughput cpu", "  part", _SUPER, 0.4, go=0.52, per="throughput super cpu"),
    # 1 POST and 1 GET in the super cluster, 1 binding, 1 GET and 1.0 to 1.3 PUT in the tenant.
    Row("throughput requests", "requests, by the API servers", "a pod", 4.0, go=5.15),
    Row("throughput own requests", "requests, by its own metric", "a pod", 4.0),
    Row("base rss", "RSS before", "MB"),
    Row("base pss", "PSS before", "MB"),
    Row("throughput rss", "RSS after", "MB", 100.0, go=273 * _MIB),
    Row("throughput pss", "PSS after", "MB"),
)
_GROWTH = (
    Row("growth pods/s", "until all run in their tenants", "pods/s"),
    Row("growth cpu", "CPU", "s/1000 pods"),
    Row("growth cpu", "  part", _SUPER, 0.4, per="growth super cpu"),
    Row("growth requests", "requests, by the API servers", "a pod", 4.0),
    Row("growth rss", "RSS after", "MB", 200.0, go=481 * _MIB),
    Row("growth pss", "PSS after", "MB"),
)
_LATENCY = (
    Row("steady p50", "its own, p50", "ms"),
    Row("steady p50", "  of a request", "x", per="request ms"),
    Row("steady p99", "its own, p99", "ms"),
    Row("steady p99", "  of a request", "x", per="request ms"),
    Row("hang p99 before", "without one tenant, p99", "ms"),
    Row("hang p99", "while that tenant hangs, p99", "ms"),
    Row("hang ratio", "  ratio", "x", 1.2),
)
_FAIRNESS = (
    Row("fairness run done", "modest pods all run", "s"),
    Row("fairness run done", "  of a request", "x", per="request s"),
    Row("fairness run p99 alone", "p99 until running, alone", "s"),
    Row("fairness run p99", "  behind the greedy tenant", "s"),
    Row("fairness run ratio", "  ratio", "x"),
    Row("fairness super done", "modest pods all in the super cluster", "s"),
    Row("fairness super ratio", "  ratio to alone, p99", "x"),
    Row("fairness own p99 alone", "its own share, p99, alone", "s"),
    Row("fairness own p99", "  behind the greedy tenant", "s"),
    Row("fairness own ratio", "  ratio", "x", 1.2),
)
_RESTART = (
    Row("restart through", "last tenant's new pod runs", "s"),
    Row("restart through", "  of a request", "x", per="request s"),
    Row("restart repaired", "all that was missed is repaired", "s"),
    Row("restart repaired", "  of a request", "x", per="request s"),
)
_REST = (
    Row("request ms", "a small write in the super cluster, p50", "ms"),
    Row("idle cores", "idle", "cores"),
    Row("idle cores", "  part", _SUPER, per="idle super cores"),
    Row("patrol cpu", "patrol of all tenants, CPU", "s", 1.0),
    Row("tenants rss", "an idle tenant, RSS", "MB"),
    Row("tenants 1000", "1000 idle tenants, RSS, extrapolated", "MB"),
    Row("tenants cores", "idle with the stand-ins", "cores"),
)


def mean_of(runs: Sequence[SyncerFigures]) -> SyncerFigures:
    """The mean of each figure that all runs have; how many pods there were is the same in all."""
    return SyncerFigures(
        _means([each.figures for each in runs]), _means([each.requests for each in runs]), runs[0].pods
    )


def _means(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = [name for name in runs[0] if all(name in each for each in runs)]
    return {name: sum(each[name] for each in runs) / len(runs) for name in names}


def tables(ours: SyncerFigures, peer: SyncerFigures | None) -> Tables:
    """A heading and its rows for each subject that was measured."""
    pods = ours.pods
    titles = (
        (f"throughput, {pods.get('throughput', 0)} pods", _THROUGHPUT),
        (f"growth to {pods.get('growth', 0)} pods", _GROWTH),
        ("steady load", _LATENCY),
        (
            f"backlog of {ours.figures.get('fairness tenants', 0):.0f} modest tenants behind a greedy one",
            _FAIRNESS,
        ),
        (f"restart with {pods.get('restart', 0)} pods", _RESTART),
        ("at rest", _REST),
    )
    made = [(title, _rows(chosen, ours, peer)) for title, chosen in titles]
    requests = [
        value(Figure(name, "a pod"), count, _peer_of(name, peer.requests if peer else None))
        for name, count in ours.requests.items()
    ]
    return [*((title, rows) for title, rows in made if rows), *([("requests", requests)] if requests else [])]


def _rows(chosen: Sequence[Row], ours: SyncerFigures, peer: SyncerFigures | None) -> list[BoundedRow]:
    rows = []
    for each in chosen:
        found = each.of(ours.figures)
        theirs = {GO: each.go, PEER: each.of(peer.figures) if peer else None}
        if found is not None:
            peers = {name: number for name, number in theirs.items() if number is not None}
            rows.append(value(Figure(each.label, each.unit, each.at_most), found, peers))
    return rows


def tables_of_turns(ours: Sequence[SyncerFigures], peer: Sequence[SyncerFigures]) -> Tables:
    """The same of two syncers in turn: a ratio is the median of the rounds', beside their quartiles."""
    pods = ours[0].pods
    titles = (
        (f"restart with {pods['restart']} pods", _RESTART),
        (f"throughput, {pods['throughput']} pods more", _THROUGHPUT),
    )
    rounds = f"{len(ours)} rounds in turn"
    return [
        (f"{title}, {rounds}", [row for each in chosen if (row := _row_of_turns(each, ours, peer))])
        for title, chosen in titles
    ]


def _row_of_turns(
    each: Row, ours: Sequence[SyncerFigures], peer: Sequence[SyncerFigures]
) -> BoundedRow | None:
    mine, theirs = (
        [[found] for turn in runs if (found := each.of(turn.figures)) is not None] for runs in (ours, peer)
    )
    if not mine:
        return None
    return row(Figure(each.label, each.unit), mine, {PEER: theirs})


def _peer_of(name: str, figures: Mapping[str, float] | None) -> dict[str, float]:
    return {} if figures is None or name not in figures else {PEER: figures[name]}
