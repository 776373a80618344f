# SPDX-License-Identifier: Apache-2.0
"""The metrics of a daemon: cells that are counted in, and families that a scrape reads.

prometheus-client writes the page (`daemonkit.status.exposition`). It is loaded at the first scrape, and
counting does without it: `inc` is one addition here, and takes 5 times as long there (decision 31).

Not for threads: a cell is changed on the event loop only, which is what makes `inc` one addition.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import accumulate
from typing import Generic, NamedTuple, Protocol, TypeVar, overload

# Label values come from closed sets and tenant keys; a label that grows past this is a mistake or an attack,
# and must not grow the memory and the page of each scrape.
MAX_CELLS = 2_000
OVERFLOW = "_overflow"

_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


class Counter:
    """One series that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, n: float = 1) -> None:
        """Add `n`, which must not be negative (unchecked: this is on every request's path)."""
        self.value += n

    def read(self) -> float:
        return self.value


class Gauge:
    """One series that goes up and down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def set(self, value: float) -> None:
        self.value = value

    def read(self) -> float:
        return self.value


class Histogram:
    """One distribution: how many observations fell at or below each of `bounds`, and their sum."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total: float = 0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def read(self) -> "Distribution":
        buckets = zip((*self._bounds, float("inf")), accumulate(self._counts), strict=True)
        return Distribution(tuple(buckets), self.total)


class _Cell(Protocol):
    def read(self) -> "float | Distribution": ...


Cell = TypeVar("Cell", bound=_Cell)

Reading = Callable[[], float | Mapping[tuple[str, ...], float]]


class Distribution(NamedTuple):
    """Upper bounds, the last one infinite, with the observations at or below each; the sum of all."""

    buckets: tuple[tuple[float, int], ...]
    total: float


class Snapshot(NamedTuple):
    """All series of one name at one moment, by label values. `kind` is counter, gauge or histogram."""

    name: str
    help: str
    kind: str
    label_names: tuple[str, ...]
    series: tuple[tuple[tuple[str, ...], float | Distribution], ...]


class Family(Generic[Cell]):
    """The series of one name, one cell for each combination of label values."""

    def __init__(
        self,
        name: str,
        help_: str,
        kind: str,
        labels: tuple[str, ...],
        make: Callable[[], Cell],
        max_cells: int,
    ) -> None:
        self.name = name
        self._help = help_
        self._kind = kind
        self.label_names = labels
        self._make = make
        self._max_cells = max_cells
        self._cells: dict[tuple[str, ...], Cell] = {}

    def labels(self, *values: str) -> Cell:
        """Return the cell of these label values, in the order of the names; keep it where you can.

        Beyond the bound on cells all new combinations share one whose values are all `_overflow`.
        Raises `ValueError` when the number of values is not that of the names.
        """
        cell = self._cells.get(values)
        return cell if cell is not None else self._add(values)

    def _add(self, values: tuple[str, ...]) -> Cell:
        if len(values) != len(self.label_names):
            raise ValueError(f"{self.name} has labels {self.label_names}, got {len(values)} values")
        if len(self._cells) >= self._max_cells:
            values = (OVERFLOW,) * len(values)
            if (cell := self._cells.get(values)) is not None:
                return cell
        cell = self._cells[values] = self._make()
        return cell

    def drop(self, label: str, gone: Collection[str]) -> None:
        """Forget the series with these values of a label: what they name is gone. Raises `ValueError` for
        another label."""
        place = self.label_names.index(label)
        for values in [each for each in self._cells if each[place] in gone]:
            del self._cells[values]

    def snapshot(self) -> Snapshot:
        series = tuple((values, cell.read()) for values, cell in self._cells.items())
        return Snapshot(self.name, self._help, self._kind, self.label_names, series)


class _Function:
    """A gauge or counter that is asked for its value at a scrape."""

    def __init__(
        self,
        name: str,
        help_: str,
        kind: str,
        labels: tuple[str, ...],
        read: Reading,
    ) -> None:
        self.name = name
        self._help = help_
        self._kind = kind
        self._label_names = labels
        self._read = read

    def snapshot(self) -> Snapshot:
        """Raises what the function raises, and ValueError when labels do not fit the names."""
        value = self._read()
        series = tuple(value.items()) if isinstance(value, Mapping) else (((), value),)
        for values, _ in series:
            if len(values) != len(self._label_names):
                raise ValueError(f"{self.name} has labels {self._label_names}, got {len(values)} values")
        return Snapshot(self.name, self._help, self._kind, self._label_names, series)


class Registry:
    """The metrics of one daemon. A name that is taken or malformed raises `ValueError`.

    Without labels `counter`, `gauge` and `histogram` return the one cell, with them the family.
    """

    def __init__(self, *, max_cells: int = MAX_CELLS) -> None:
        self._families: dict[str, _Readable] = {}
        self._max_cells = max_cells

    @overload
    def counter(self, name: str, help_: str) -> Counter: ...

    @overload
    def counter(self, name: str, help_: str, labels: tuple[str, ...]) -> Family[Counter]: ...

    def counter(self, name: str, help_: str, labels: tuple[str, ...] = ()) -> Counter | Family[Counter]:
        """Add a counter; its name must end in `_total`."""
        if not name.endswith("_total"):
            raise ValueError(f"the counter {name} must end in _total")
        family = self._family(name, help_, "counter", labels, Counter)
        return family if labels else family.labels()

    @overload
    def gauge(self, name: str, help_: str) -> Gauge: ...

    @overload
    def gauge(self, name: str, help_: str, labels: tuple[str, ...]) -> Family[Gauge]: ...

    def gauge(self, name: str, help_: str, labels: tuple[str, ...] = ()) -> Gauge | Family[Gauge]:
        family = self._family(name, help_, "gauge", labels, Gauge)
        return family if labels else family.labels()

    @overload
    def histogram(self, name: str, help_: str, buckets: Iterable[float]) -> Histogram: ...

    @overload
    def histogram(
        self, name: str, help_: str, buckets: Iterable[float], labels: tuple[str, ...]
    ) -> Family[Histogram]: ...

    def histogram(
        self, name: str, help_: str, buckets: Iterable[float], labels: tuple[str, ...] = ()
    ) -> Histogram | Family[Histogram]:
        """Add a histogram; `buckets` are upper bounds in rising order, without infinity."""
        bounds = tuple(buckets)
        if not bounds or list(bounds) != sorted(set(bounds)) or float("inf") in bounds:
            raise ValueError(f"the buckets of {name} must be finite and rise")
        family = self._family(name, help_, "histogram", labels, lambda: Histogram(bounds))
        return family if labels else family.labels()

    def gauge_function(self, name: str, help_: str, read: Reading, labels: tuple[str, ...] = ()) -> None:
        """Add a gauge that `read` gives the value of, at each scrape; with labels, the values."""
        self._put(_Function(name, help_, "gauge", labels, read), labels)

    def counter_function(self, name: str, help_: str, read: Reading, labels: tuple[str, ...] = ()) -> None:
        """Add a counter that something else keeps, such as the kernel."""
        self._put(_Function(name, help_, "counter", labels, read), labels)

    def snapshot(self) -> tuple[Snapshot, ...]:
        """Read all metrics, as they were added. What a function raises is raised here."""
        return tuple(family.snapshot() for family in self._families.values())

    def _family(
        self,
        name: str,
        help_: str,
        kind: str,
        labels: tuple[str, ...],
        make: Callable[[], Cell],
    ) -> Family[Cell]:
        family = Family(name, help_, kind, labels, make, self._max_cells)
        self._put(family, labels)
        return family

    def _put(self, family: "_Readable", labels: tuple[str, ...]) -> None:
        if not _METRIC_NAME.fullmatch(family.name):
            raise ValueError(f"{family.name!r} is not a metric name")
        if family.name in self._families:
            raise ValueError(f"the metric {family.name} is there already")
        for label in labels:
            if label == "le" or not _LABEL_NAME.fullmatch(label):
                raise ValueError(f"{label!r} is not a label name for {family.name}")
        self._families[family.name] = family


class _Readable(Protocol):
    @property
    def name(self) -> str: ...

    def snapshot(self) -> Snapshot: ...
