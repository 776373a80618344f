# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from daemonkit.metrics import OVERFLOW, Registry


def sample_values(page: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Read a page with the official parser: (name, labels) -> value."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_the_page_is_rendered_in_full() -> None:
    registry = Registry()
    requests = registry.counter("vcnode_requests_total", "Requests, by tenant.", ("tenant", "code"))
    requests.labels("ten-a", "200").inc()
    requests.labels("ten-a", "200").inc(2)
    requests.labels('a"b\\c\nd', "404").inc()
    registry.counter("vcnode_errors_total", "Back\\slash and\nnew line.").inc(0.5)
    tunnels = registry.gauge("vcnode_tunnels", "Open tunnels.")
    tunnels.set(1)
    registry.gauge("vcnode_never", "Never set.")
    registry.gauge("vcnode_age_seconds", "Age.", ("source",)).labels("pods").set(math.inf)
    registry.gauge_function("vcnode_tasks", "Tasks.", lambda: 7)
    registry.gauge_function("vcnode_ages", "Ages.", lambda: {("a",): 1.5, ("b",): -math.inf}, ("of",))
    registry.counter_function("vcnode_cpu_seconds_total", "CPU.", lambda: math.nan)
    seconds = registry.histogram("vcnode_seconds", "Time.", (0.1, 1, 10))
    for value in (0.05, 0.1, 0.5, 100):
        seconds.observe(value)
    registry.histogram("vcnode_bytes", "Size.", (1,), ("way",)).labels("up").observe(1)
    assert registry.render().decode() == (
        """\
# HELP vcnode_requests_total Requests, by tenant.
# TYPE vcnode_requests_total counter
vcnode_requests_total{tenant="ten-a",code="200"} 3
vcnode_requests_total{tenant="a\\"b\\\\c\\nd",code="404"} 1
# HELP vcnode_errors_total Back\\\\slash and\\nnew line.
# TYPE vcnode_errors_total counter
vcnode_errors_total 0.5
# HELP vcnode_tunnels Open tunnels.
# TYPE vcnode_tunnels gauge
vcnode_tunnels 1
# HELP vcnode_never Never set.
# TYPE vcnode_never gauge
vcnode_never 0
# HELP vcnode_age_seconds Age.
# TYPE vcnode_age_seconds gauge
vcnode_age_seconds{source="pods"} +Inf
# HELP vcnode_tasks Tasks.
# TYPE vcnode_tasks gauge
vcnode_tasks 7
# HELP vcnode_ages Ages.
# TYPE vcnode_ages gauge
vcnode_ages{of="a"} 1.5
vcnode_ages{of="b"} -Inf
# HELP vcnode_cpu_seconds_total CPU.
# TYPE vcnode_cpu_seconds_total counter
vcnode_cpu_seconds_total NaN
# HELP vcnode_seconds Time.
# TYPE vcnode_seconds histogram
vcnode_seconds_bucket{le="0.1"} 2
vcnode_seconds_bucket{le="1"} 3
vcnode_seconds_bucket{le="10"} 3
vcnode_seconds_bucket{le="+Inf"} 4
vcnode_seconds_sum 100.65
vcnode_seconds_count 4
# HELP vcnode_bytes Size.
# TYPE vcnode_bytes histogram
vcnode_bytes_bucket{way="up",le="1"} 1
vcnode_bytes_bucket{way="up",le="+Inf"} 1
vcnode_bytes_sum{way="up"} 1
vcnode_bytes_count{way="up"} 1
"""
    )


def test_an_empty_registry_has_an_empty_page() -> None:
    assert Registry().render() == b""


@given(
    st.dictionaries(st.tuples(st.text(), st.text()), st.floats(allow_nan=False), max_size=5),
    st.text(),
)
def test_the_official_parser_reads_any_page(values: dict[tuple[str, str], float], help_: str) -> None:
    registry = Registry()
    gauge = registry.gauge("vcnode_x", help_, ("a", "b"))
    for labels, value in values.items():
        gauge.labels(*labels).set(value)
    assert sample_values(registry.render()) == {
        ("vcnode_x", (("a", a), ("b", b))): value for (a, b), value in values.items()
    }


@given(st.lists(st.floats(-1e6, 1e6)), st.sets(st.integers(-1000, 1000), min_size=1))
def test_histogram_buckets_are_cumulative(observed: list[float], bounds: set[int]) -> None:
    registry = Registry()
    histogram = registry.histogram("vcnode_x", "", sorted(bounds))
    for value in observed:
        histogram.observe(value)
    page = sample_values(registry.render())
    for bound in bounds:
        expected = sum(value <= bound for value in observed)
        assert page["vcnode_x_bucket", (("le", str(bound)),)] == expected
    assert page["vcnode_x_count", ()] == histogram.count == len(observed)
    assert page["vcnode_x_sum", ()] == pytest.approx(sum(observed))


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
    assert sample_values(registry.render()) == {
        ("x_total", (("a", "1"), ("b", "1"))): 1,
        ("x_total", (("a", "2"), ("b", "1"))): 1,
        ("x_total", (("a", OVERFLOW), ("b", OVERFLOW))): 97,
    }


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
    assert registry.render() == b"# HELP taken \n# TYPE taken gauge\ntaken 0\n"


def test_an_error_of_a_function_is_raised() -> None:
    registry = Registry()
    registry.gauge_function("x", "", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        registry.render()
