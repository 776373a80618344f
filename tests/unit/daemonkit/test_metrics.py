# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.metrics import OVERFLOW, Distribution, Registry, Snapshot


def snapshots_of(registry: Registry) -> dict[str, Snapshot]:
    return {each.name: each for each in registry.snapshot()}


def test_a_snapshot_has_all_series() -> None:
    registry = Registry()
    requests = registry.counter("vcnode_requests_total", "Requests.", ("tenant", "code"))
    requests.labels("ten-a", "200").inc()
    requests.labels("ten-a", "200").inc(2)
    requests.labels("ten-b", "404").inc()
    registry.gauge("vcnode_tunnels", "Open tunnels.").set(1)
    registry.gauge("vcnode_never", "Never set.")
    registry.gauge_function("vcnode_ages", "Ages.", lambda: {("a",): 1.5}, ("of",))
    registry.counter_function("vcnode_cpu_seconds_total", "CPU.", lambda: 7)
    seconds = registry.histogram("vcnode_seconds", "Time.", (0.1, 1, 10))
    for value in (0.05, 0.1, 0.5, 100):
        seconds.observe(value)
    buckets = ((0.1, 2), (1, 3), (10, 3), (math.inf, 4))
    assert registry.snapshot() == (
        Snapshot(
            "vcnode_requests_total",
            "Requests.",
            "counter",
            ("tenant", "code"),
            ((("ten-a", "200"), 3), (("ten-b", "404"), 1)),
        ),
        Snapshot("vcnode_tunnels", "Open tunnels.", "gauge", (), (((), 1),)),
        Snapshot("vcnode_never", "Never set.", "gauge", (), (((), 0),)),
        Snapshot("vcnode_ages", "Ages.", "gauge", ("of",), ((("a",), 1.5),)),
        Snapshot("vcnode_cpu_seconds_total", "CPU.", "counter", (), (((), 7),)),
        Snapshot("vcnode_seconds", "Time.", "histogram", (), (((), Distribution(buckets, 100.65)),)),
    )


def test_a_snapshot_does_not_change() -> None:
    registry = Registry()
    seconds = registry.histogram("vcnode_seconds", "Time.", (1,))
    before = registry.snapshot()
    seconds.observe(0.5)
    assert before[0].series == (((), Distribution(((1, 0), (math.inf, 0)), 0)),)


@given(st.lists(st.floats(-1e6, 1e6)), st.sets(st.integers(-1000, 1000), min_size=1))
def test_histogram_buckets_are_cumulative(observed: list[float], bounds: set[int]) -> None:
    registry = Registry()
    histogram = registry.histogram("vcnode_x", "", sorted(bounds))
    for value in observed:
        histogram.observe(value)
    buckets, total = histogram.read()
    expected = [(bound, sum(value <= bound for value in observed)) for bound in sorted(bounds)]
    assert buckets == (*expected, (math.inf, len(observed)))
    assert histogram.count == len(observed)
    assert total == pytest.approx(sum(observed))


def test_equal_labels_give_the_same_cell() -> None:
    family = Registry().counter("x_total", "", ("a",))
    assert family.labels("1") is family.labels("1")
    assert family.labels("1") is not family.labels("2")


def test_more_cells_than_the_bound_share_one() -> None:
    registry = Registry(max_cells=2)
    family = registry.counter("x_total", "", ("a", "b"))
    first = family.labels("1", "1")
    for index in range(1, 100):
        family.labels(str(index), "1").inc()
    assert family.labels("1", "1") is first
    assert snapshots_of(registry)["x_total"].series == (
        (("1", "1"), 1),
        (("2", "1"), 1),
        ((OVERFLOW, OVERFLOW), 97),
    )


def test_the_number_of_label_values_is_checked() -> None:
    family = Registry().counter("x_total", "", ("a",))
    for values in ((), ("1", "2")):
        with pytest.raises(ValueError, match="x_total has labels"):
            family.labels(*values)


def test_names_are_checked() -> None:
    registry = Registry()
    registry.gauge("taken", "")
    with pytest.raises(ValueError, match="there already"):
        registry.gauge("taken", "")
    with pytest.raises(ValueError, match="must end in _total"):
        registry.counter("requests", "")
    with pytest.raises(ValueError, match="not a metric name"):
        registry.gauge("a-b", "")
    for label in ("le", "__name__", "a-b", ""):
        with pytest.raises(ValueError, match="not a label name"):
            registry.gauge("x", "", (label,))
    for buckets in ((), (1, 1), (2, 1), (1, math.inf)):
        with pytest.raises(ValueError, match="finite and rise"):
            registry.histogram("y", "", buckets)
    assert list(snapshots_of(registry)) == ["taken"]


def test_an_error_of_a_function_is_raised() -> None:
    registry = Registry()
    registry.gauge_function("x", "", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        registry.snapshot()


def test_the_number_of_a_functions_labels_is_checked() -> None:
    registry = Registry()
    registry.gauge_function("x", "", lambda: {("1", "2"): 1.0}, ("a",))
    with pytest.raises(ValueError, match=r"x has labels \('a',\), got 2 values"):
        registry.snapshot()


def test_series_with_a_value_are_dropped() -> None:
    family = Registry().counter("dropped_total", "help", ("tenant", "code"))
    for values in (("a", "200"), ("a", "404"), ("b", "200"), ("200", "a")):
        family.labels(*values).inc()
    family.drop("tenant", {"a"})
    assert [values for values, _ in family.snapshot().series] == [("b", "200"), ("200", "a")]
    with pytest.raises(ValueError, match="not in"):
        family.drop("color", {"a"})
