# SPDX-License-Identifier: Apache-2.0
"""From figures to tables: ours with its goal, the Go syncer's, and those of a peer in the same run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.bounded import BoundedRow, Figure, Tables, value
from tests.bench.syncer.parts import SyncerFigures

GO = "Go syncer"
PEER = "peer"
_MIB = 1.048576


@dataclass(frozen=True, slots=True)
class Row:
    """One figure; `go` is the Go syncer's, as measured once on 2 cores with 10 real tenants."""

    name: str
    label: str
    unit: str
    at_most: float | None = None
    go: float | None = None


_THROUGHPUT = (
    Row("throughput pods/s", "until all run in their tenants", "pods/s", go=75.7),
    Row("throughput cpu", "CPU", "s/1000 pods", 3.3, go=3.3),
    Row("throughput super cpu", "CPU of the super API server", "s/1000 pods", go=7.3),
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
    Row("growth cpu", "CPU", "s/1000 pods", 3.3),
    Row("growth super cpu", "CPU of the super API server", "s/1000 pods"),
    Row("growth requests", "requests, by the API servers", "a pod", 4.0),
    Row("growth rss", "RSS after", "MB", 200.0, go=481 * _MIB),
    Row("growth pss", "PSS after", "MB"),
)
_LATENCY = (
    Row("steady p50", "its own, p50", "ms", go=14.0),
    Row("steady p99", "its own, p99", "ms", 100.0, go=119.0),
    Row("hang p99 before", "without one tenant, p99", "ms"),
    Row("hang p99", "while that tenant hangs, p99", "ms"),
    Row("hang ratio", "ratio", "", 1.2),
)
_FAIRNESS = (
    Row("fairness run done", "modest pods all run", "s", 2.5, go=2.5),
    Row("fairness run p99 alone", "p99 until running, alone", "s"),
    Row("fairness run p99", "  behind the greedy tenant", "s"),
    Row("fairness run ratio", "  ratio", ""),
    Row("fairness super done", "modest pods all in the super cluster", "s"),
    Row("fairness super ratio", "  ratio to alone, p99", ""),
    Row("fairness own p99 alone", "its own share, p99, alone", "s"),
    Row("fairness own p99", "  behind the greedy tenant", "s"),
    Row("fairness own ratio", "  ratio", "", 1.2),
)
_RESTART = (
    Row("restart through", "last tenant's new pod runs", "s", 2.0, go=2.4),
    Row("restart repaired", "all that was missed is repaired", "s", 5.0, go=60.0),
)
_REST = (
    Row("idle cores", "idle", "cores", 0.01, go=0.011),
    Row("patrol cpu", "patrol of all tenants, CPU", "s", 1.0),
    Row("tenants rss", "an idle tenant, RSS", "MB"),
    Row("tenants 1000", "1000 idle tenants, RSS, extrapolated", "MB"),
    Row("tenants cores", "idle with the stand-ins", "cores"),
)


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
    return [
        value(
            Figure(each.label, each.unit, each.at_most),
            ours.figures[each.name],
            ({} if each.go is None else {GO: each.go}) | _peer_of(each.name, peer.figures if peer else None),
        )
        for each in chosen
        if each.name in ours.figures
    ]


def _peer_of(name: str, figures: Mapping[str, float] | None) -> dict[str, float]:
    return {} if figures is None or name not in figures else {PEER: figures[name]}
