# SPDX-License-Identifier: Apache-2.0
"""From measurements to rows, with the bound: pods start at most 100 ms later."""

from collections.abc import Callable, Mapping, Sequence

from tests.bench.bounded import BoundedRow, Figure, Rounds, p50, p99, row, value
from tests.bench.figures import quartiles
from tests.bench.pods.rounds import POLICIES, WITHOUT, Results, RoundMeasurement, total

PEERS = (WITHOUT,)
ADDED_MS = 100.0


def tables(results: Results) -> list[tuple[str, list[BoundedRow]]]:
    """A heading and its rows, for one pod at a time, for many at once, for CPU, and for the gate."""
    at_once = results.amounts.at_once
    titles: list[tuple[str, Callable[[RoundMeasurement], Sequence[float]]]] = [
        (
            "one pod at a time: from its creation to its container's start",
            lambda measured: measured.single_ms,
        ),
        (f"{at_once} pods at once: from each one's creation to its container's start", lambda t: t.burst_ms),
    ]
    made = [(title, _started(results, take)) for title, take in titles]
    made.append(("CPU of each daemon, a pod", _cpu(results)))
    return [*made, (f"start gate, {results.pods} pods of each policy", _gate(results))]


def _started(results: Results, take: Callable[[RoundMeasurement], Sequence[float]]) -> list[BoundedRow]:
    theirs = [take(measured) for measured in results.measurements[WITHOUT]]
    rows = []
    for name in (*POLICIES, *sorted(results.measurements.keys() - {*POLICIES, WITHOUT})):
        ours = [take(measured) for measured in results.measurements[name]]
        bound = ADDED_MS if name in POLICIES else None
        rows += [
            row(Figure(name, "p50 ms"), ours, {WITHOUT: theirs}),
            row(Figure("", "p99 ms"), ours, {WITHOUT: theirs}, p99),
            _added(Figure("  added", "p50 ms", bound), ours, theirs, p50),
            _added(Figure("", "p25 ms"), ours, theirs, _p25),
        ]
    return rows


def _added(
    figure: Figure, ours: Rounds, theirs: Rounds, statistic: Callable[[Sequence[float]], float]
) -> BoundedRow:
    """The difference of all pods' figures; its quartiles are of the rounds' differences."""
    differences = [statistic(mine) - statistic(other) for mine, other in zip(ours, theirs, strict=True)]
    low, high = quartiles(differences)
    added = statistic([ms for each in ours for ms in each]) - statistic(
        [ms for each in theirs for ms in each]
    )
    return BoundedRow(figure, added, low, high, len(differences))


def _p25(values: Sequence[float]) -> float:
    """The figure that a disturbed machine distorts last."""
    return quartiles(values)[0]


def _cpu(results: Results) -> list[BoundedRow]:
    theirs = results.measurements[WITHOUT]
    rows = []
    for name in POLICIES:
        measurements = results.measurements[name]
        for part in measurements[0].cpu_ms:
            peers = (
                {WITHOUT: [[measured.cpu_ms[part]] for measured in theirs]}
                if part in theirs[0].cpu_ms
                else {}
            )
            rows.append(
                row(
                    Figure(f"{name}: {part}", "ms"),
                    [[measured.cpu_ms[part]] for measured in measurements],
                    peers,
                )
            )
        all_theirs = {WITHOUT: [[sum(measured.cpu_ms.values())] for measured in theirs]}
        rows.append(
            row(
                Figure("  all of these", "ms"),
                [[sum(measured.cpu_ms.values())] for measured in measurements],
                all_theirs,
            )
        )
    return rows


def _gate(results: Results) -> list[BoundedRow]:
    rows = []
    for name in POLICIES:
        measurements = results.measurements[name]
        rows.append(value(Figure(f"{name}: blocked at first", "pods"), float(results.blocked[name])))
        rows.append(value(Figure("  started with missing needs", "pods"), float(results.warned[name])))
        nudges = total([measured.nudges for measured in measurements])
        rows.append(value(Figure("  nudged", "pods"), float(nudges["done"])))
        if others := nudges.total() - nudges["done"]:
            rows.append(value(Figure("  nudges that failed", "count"), float(others)))
        opened = _sum([measured.opened for measured in measurements])
        if opened and opened[max(opened)]:
            rows += [
                value(Figure("  sandbox to open gate", "p50 ms"), 1e3 * quantile(opened, 0.5)),
                value(Figure("", "p99 ms"), 1e3 * quantile(opened, 0.99)),
            ]
    return rows


def _sum(parts: Sequence[Mapping[float, float]]) -> dict[float, float]:
    return {limit: sum(part[limit] for part in parts) for limit in parts[0]}


def quantile(counts: Mapping[float, float], share: float) -> float:
    """The quantile of a histogram's cumulative counts, with even distribution between two limits.

    Above the last limit it is that limit.
    """
    limits = sorted(counts)
    rank = share * counts[limits[-1]]
    below_limit = below_count = 0.0
    for limit in limits:
        if counts[limit] >= rank:
            if limit == float("inf") or counts[limit] == below_count:
                return below_limit
            return below_limit + (limit - below_limit) * (rank - below_count) / (counts[limit] - below_count)
        below_limit, below_count = limit, counts[limit]
    return below_limit
