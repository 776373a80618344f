# SPDX-License-Identifier: Apache-2.0
"""A registry of metrics and their page in Prometheus' text format, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format. The official
client costs 5 MB a daemon, most of it for what we do not use; names and page stay compatible.

Not for threads: a cell is changed on the event loop only, which is what makes `inc` one addition.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar, overload

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

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

    def samples(self, name: str, labels: str) -> Iterator[str]:
        yield f"{name}{_braced(labels)} {_number(self.value)}"


class Gauge:
    """One series that goes up and down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def set(self, value: float) -> None:
        self.value = value

    def samples(self, name: str, labels: str) -> Iterator[str]:
        yield f"{name}{_braced(labels)} {_number(self.value)}"


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

    def samples(self, name: str, labels: str) -> Iterator[str]:
        comma = "," if labels else ""
        running = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            running += count
            yield f'{name}_bucket{{{labels}{comma}le="{_number(bound)}"}} {running}'
        yield f"{name}_sum{_braced(labels)} {_number(self.total)}"
        yield f"{name}_count{_braced(labels)} {running}"


class _Samples(Protocol):
    def samples(self, name: str, labels: str) -> Iterator[str]: ...


Cell = TypeVar("Cell", bound=_Samples)

Reading = Callable[[], float | Mapping[tuple[str, ...], float]]


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
        self.label_names = labels
        self._header = f"# HELP {name} {_escaped_help(help_)}\n# TYPE {name} {kind}"
        self._make = make
        self._max_cells = max_cells
        self._cells: dict[tuple[str, ...], Cell] = {}
        self._pairs: dict[tuple[str, ...], str] = {}

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
        self._pairs[values] = _pairs(self.label_names, values)
        return cell

    def lines(self) -> Iterator[str]:
        yield self._header
        for values, cell in self._cells.items():
            yield from cell.samples(self.name, self._pairs[values])


class _Function:
    """A gauge or counter that is asked for its value when the page is read."""

    def __init__(
        self,
        name: str,
        help_: str,
        kind: str,
        labels: tuple[str, ...],
        read: Reading,
    ) -> None:
        self.name = name
        self._header = f"# HELP {name} {_escaped_help(help_)}\n# TYPE {name} {kind}"
        self._labels = labels
        self._read = read

    def lines(self) -> Iterator[str]:
        yield self._header
        value = self._read()
        if isinstance(value, Mapping):
            for values, each in value.items():
                yield f"{self.name}{_braced(_pairs(self._labels, values))} {_number(each)}"
        else:
            yield f"{self.name} {_number(value)}"


class Registry:
    """The metrics of one daemon. A name that is taken or malformed raises `ValueError`.

    Without labels `counter`, `gauge` and `histogram` return the one cell, with them the family.
    """

    def __init__(self, *, max_cells: int = MAX_CELLS) -> None:
        self._families: dict[str, _Lines] = {}
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
        """Add a gauge that `read` gives the value of, at each render; with labels, the values."""
        self._put(_Function(name, help_, "gauge", labels, read), labels)

    def counter_function(self, name: str, help_: str, read: Reading, labels: tuple[str, ...] = ()) -> None:
        """Add a counter that something else keeps, such as the kernel."""
        self._put(_Function(name, help_, "counter", labels, read), labels)

    def render(self) -> bytes:
        """Return the page. What a function given to `gauge_function` raises is raised here."""
        lines = [line for family in self._families.values() for line in family.lines()]
        lines.append("")
        return "\n".join(lines).encode("utf-8", "backslashreplace")

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

    def _put(self, family: "_Lines", labels: tuple[str, ...]) -> None:
        if not _METRIC_NAME.fullmatch(family.name):
            raise ValueError(f"{family.name!r} is not a metric name")
        if family.name in self._families:
            raise ValueError(f"the metric {family.name} is there already")
        for label in labels:
            if label == "le" or not _LABEL_NAME.fullmatch(label):
                raise ValueError(f"{label!r} is not a label name for {family.name}")
        self._families[family.name] = family


class _Lines(Protocol):
    name: str

    def lines(self) -> Iterator[str]: ...


def _pairs(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """The inside of the braces, made once for a cell: rendering only joins."""
    return ",".join(f'{name}="{_escaped_value(value)}"' for name, value in zip(names, values, strict=True))


def _braced(pairs: str) -> str:
    return f"{{{pairs}}}" if pairs else ""


def _escaped_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _escaped_value(text: str) -> str:
    return _escaped_help(text).replace('"', r"\"")


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    if value == float("-inf"):
        return "-Inf"
    # NaN is what differs from itself.
    return "NaN" if value != value else repr(value)
