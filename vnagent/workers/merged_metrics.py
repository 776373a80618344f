# SPDX-License-Identifier: Apache-2.0
"""The metrics of all processes as one page: sums, to which workers that have ended still contribute."""

from collections.abc import Collection, Iterable

from daemonkit.metrics import Distribution, Registry, Snapshot
from tenancy.names import is_dns_label

_Series = dict[tuple[str, ...], float | Distribution]


class MergedRegistry(Registry):
    """The main process' metrics, each with what the workers have reported of the same name added.

    A worker's metrics that the main process does not have are left out: both register the same ones.
    """

    def __init__(self, kept: Collection[str] = ()) -> None:
        """`kept` are names of metrics whose series of removed tenants stay."""
        super().__init__()
        self._kept = frozenset(kept)
        self._reports: dict[int, tuple[Snapshot, ...]] = {}
        self._ended: tuple[Snapshot, ...] = ()
        self._tenants: frozenset[str] | None = None

    def report(self, worker: int, metrics: tuple[Snapshot, ...]) -> None:
        """What the worker with this index counts by now."""
        self._reports[worker] = metrics

    def end(self, worker: int) -> None:
        """The worker has ended. Its counters and histograms stay in the sums, or those would fall."""
        last = self._reports.pop(worker, ())
        kept = [each for each in last if each.kind != "gauge"]
        self._ended = _merge((*self._ended, *kept))

    def keep_tenants(self, tenants: Collection[str]) -> None:
        """Leave out what workers have counted for tenants that are not registered any more, also in reports
        from before a worker knows that."""
        self._tenants = frozenset(tenants)
        self._ended = tuple(self._of_tenants(each, self._tenants) for each in self._ended)

    def snapshot(self) -> tuple[Snapshot, ...]:
        own = super().snapshot()
        names = {each.name for each in own}
        of_workers = [each for report in self._reports.values() for each in report]
        if self._tenants is not None:
            of_workers = [self._of_tenants(each, self._tenants) for each in of_workers]
        return _merge(each for each in (*own, *self._ended, *of_workers) if each.name in names)

    def _of_tenants(self, snapshot: Snapshot, tenants: Collection[str]) -> Snapshot:
        if "tenant" not in snapshot.label_names or snapshot.name in self._kept:
            return snapshot
        place = snapshot.label_names.index("tenant")
        # A name that no tenant can have, such as `_overflow`, stays.
        series = [
            each for each in snapshot.series if each[0][place] in tenants or not is_dns_label(each[0][place])
        ]
        return snapshot._replace(series=tuple(series))


def _merge(snapshots: Iterable[Snapshot]) -> tuple[Snapshot, ...]:
    """One for each name, in the order in which the names come first."""
    first: dict[str, Snapshot] = {}
    series: dict[str, _Series] = {}
    for each in snapshots:
        first.setdefault(each.name, each)
        of_name = series.setdefault(each.name, {})
        for labels, value in each.series:
            before = of_name.get(labels)
            of_name[labels] = value if before is None else _add(before, value)
    return tuple(each._replace(series=tuple(series[name].items())) for name, each in first.items())


def _add(one: float | Distribution, other: float | Distribution) -> float | Distribution:
    if isinstance(one, Distribution) and isinstance(other, Distribution):
        pairs = zip(one.buckets, other.buckets, strict=True)
        buckets = tuple((bound, count + more) for (bound, count), (_, more) in pairs)
        return Distribution(buckets, one.total + other.total)
    if isinstance(one, Distribution) or isinstance(other, Distribution):
        raise TypeError("a distribution and a number of one name")
    return one + other
