# SPDX-License-Identifier: Apache-2.0
"""The page of a daemon's metrics, written by prometheus-client.

Imported at the first scrape: the library takes 3 MB and 70 ms (docs/decisions/0031). What is here runs in a
thread, on a snapshot. The library's own registry is not served: any library may add metrics there.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import cast

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics

from daemonkit.metrics import Distribution, Snapshot

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = openmetrics.CONTENT_TYPE_LATEST


def page(snapshots: Iterable[Snapshot], *, is_openmetrics: bool) -> bytes:
    """Return the page of these metrics, of the process and of the platform."""
    return render(snapshots, platform(), is_openmetrics=is_openmetrics)


def render(snapshots: Iterable[Snapshot], *others: CollectorRegistry, is_openmetrics: bool = False) -> bytes:
    """Return the page of these metrics, and of others that the library collects."""
    generate = openmetrics.generate_latest if is_openmetrics else generate_latest
    # It takes all that has its registry's `collect`.
    return cast("bytes", generate(_Collectors(snapshots, others)))


class ProcessFacts(ProcessCollector):
    """The library's collector of the process, where /proc/stat is hidden too.

    The library reads there when the machine started. Units with `ProcSubset=pid` hide it, and the library
    then serves no `process_*` at all.
    """

    def _boot_time(self) -> float:
        return time.clock_gettime(time.CLOCK_REALTIME) - time.clock_gettime(time.CLOCK_BOOTTIME)


@cache
def platform() -> CollectorRegistry:
    """The metrics `process_*` and `python_info`, which the library reads."""
    registry = CollectorRegistry()
    PlatformCollector(registry=registry)
    ProcessFacts(registry=registry)
    return registry


class _Collectors:
    """In the form that the library renders: what it needs of its registry."""

    def __init__(self, snapshots: Iterable[Snapshot], others: Iterable[CollectorRegistry]) -> None:
        self._snapshots = snapshots
        self._others = others

    def collect(self) -> Iterator[Metric]:
        yield from map(_metric, self._snapshots)
        for each in self._others:
            yield from each.collect()


def _metric(read: Snapshot) -> Metric:
    if read.kind == "histogram":
        histogram = HistogramMetricFamily(read.name, read.help, labels=read.label_names)
        for values, value in read.series:
            if isinstance(value, Distribution):
                buckets = [(_bound(bound), count) for bound, count in value.buckets]
                histogram.add_metric(_encodable(values), buckets, value.total)
        return histogram
    make: Callable[..., CounterMetricFamily | GaugeMetricFamily] = (
        CounterMetricFamily if read.kind == "counter" else GaugeMetricFamily
    )
    single = make(read.name, read.help, labels=read.label_names)
    for values, value in read.series:
        if not isinstance(value, Distribution):
            single.add_metric(_encodable(values), value)
    return single


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(float(bound))


def _encodable(values: tuple[str, ...]) -> tuple[str, ...]:
    """Label values that UTF-8 can encode: for one that it cannot, the library would fail the whole page."""
    return tuple(
        each if each.isascii() else each.encode("utf-8", "backslashreplace").decode("utf-8")
        for each in values
    )
