# SPDX-License-Identifier: Apache-2.0
import math
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric, ProcessCollector
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from daemonkit.metrics import Registry
from daemonkit.status import exposition


def registry() -> Registry:
    made = Registry()
    requests = made.counter("vcnode_requests_total", "Requests, by tenant.", ("tenant", "code"))
    requests.labels("ten-a", "200").inc(3)
    requests.labels('a"b\\c\nd', "404").inc()
    made.counter("vcnode_errors_total", "Back\\slash and\nnew line.").inc(0.5)
    made.gauge("vcnode_age_seconds", "Age.", ("source",)).labels("pods").set(math.inf)
    made.gauge_function("vcnode_ages", "Ages.", lambda: {("a",): 1.5, ("b",): -math.inf}, ("of",))
    made.counter_function("vcnode_cpu_seconds_total", "CPU.", lambda: math.nan)
    seconds = made.histogram("vcnode_seconds", "Time.", (0.1, 1, 10))
    for value in (0.05, 0.1, 0.5, 100):
        seconds.observe(value)
    made.histogram("vcnode_bytes", "Size.", (1,), ("way",)).labels("up").observe(1)
    return made


def test_the_text_page_is_rendered_in_full() -> None:
    assert exposition.render(registry().snapshot()).decode() == (
        """\
# HELP vcnode_requests_total Requests, by tenant.
# TYPE vcnode_requests_total counter
vcnode_requests_total{code="200",tenant="ten-a"} 3.0
vcnode_requests_total{code="404",tenant="a\\"b\\\\c\\nd"} 1.0
# HELP vcnode_errors_total Back\\\\slash and\\nnew line.
# TYPE vcnode_errors_total counter
vcnode_errors_total 0.5
# HELP vcnode_age_seconds Age.
# TYPE vcnode_age_seconds gauge
vcnode_age_seconds{source="pods"} +Inf
# HELP vcnode_ages Ages.
# TYPE vcnode_ages gauge
vcnode_ages{of="a"} 1.5
vcnode_ages{of="b"} -Inf
# HELP vcnode_cpu_seconds_total CPU.
# TYPE vcnode_cpu_seconds_total counter
vcnode_cpu_seconds_total NaN
# HELP vcnode_seconds Time.
# TYPE vcnode_seconds histogram
vcnode_seconds_bucket{le="0.1"} 2.0
vcnode_seconds_bucket{le="1.0"} 3.0
vcnode_seconds_bucket{le="10.0"} 3.0
vcnode_seconds_bucket{le="+Inf"} 4.0
vcnode_seconds_count 4.0
vcnode_seconds_sum 100.65
# HELP vcnode_bytes Size.
# TYPE vcnode_bytes histogram
vcnode_bytes_bucket{le="1.0",way="up"} 1.0
vcnode_bytes_bucket{le="+Inf",way="up"} 1.0
vcnode_bytes_count{way="up"} 1.0
vcnode_bytes_sum{way="up"} 1.0
"""
    )


def test_openmetrics_names_counters_without_total() -> None:
    lines = exposition.render(registry().snapshot(), is_openmetrics=True).decode().splitlines()
    assert lines[1:3] == [
        "# TYPE vcnode_requests counter",
        'vcnode_requests_total{code="200",tenant="ten-a"} 3.0',
    ]
    assert lines[-1] == "# EOF"


def test_no_series_has_its_time_of_creation() -> None:
    for is_openmetrics in (False, True):
        page = exposition.page(registry().snapshot(), is_openmetrics=is_openmetrics)
        assert b"_created" not in page


def test_the_page_has_the_process_and_the_platform() -> None:
    page = exposition.page((), is_openmetrics=False).decode()
    names = {family.name for family in text_string_to_metric_families(page)}
    assert names == {
        "process_cpu_seconds",
        "process_max_fds",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "process_virtual_memory_bytes",
        "python_info",
    }


def test_the_process_is_served_without_proc_stat(tmp_path: Path) -> None:
    """As under systemd's `ProcSubset=pid`."""
    (tmp_path / "self").symlink_to(f"/proc/{os.getpid()}")
    found = {each.name: each for each in exposition.ProcessFacts(proc=str(tmp_path), registry=None).collect()}
    (here,) = found["process_start_time_seconds"].samples
    library = {each.name: each for each in ProcessCollector(registry=None).collect()}
    (there,) = library["process_start_time_seconds"].samples
    assert here.value == pytest.approx(there.value, abs=2)


@given(
    st.dictionaries(st.tuples(st.text(), st.text()), st.floats(allow_nan=False), max_size=5),
    st.text(),
)
def test_the_library_reads_any_page(values: dict[tuple[str, str], float], help_: str) -> None:
    made = Registry()
    gauge = made.gauge("vcnode_x", help_, ("a", "b"))
    for labels, value in values.items():
        gauge.labels(*labels).set(value)
    expected = {(a, b): value for (a, b), value in values.items()}
    text = exposition.render(made.snapshot()).decode()
    assert _values(text_string_to_metric_families(text)) == expected


def _values(families: Iterable[Metric]) -> dict[tuple[str, str], float]:
    return {
        (each.labels["a"], each.labels["b"]): each.value for family in families for each in family.samples
    }


def test_openmetrics_page_is_read_by_the_library() -> None:
    # It refuses counters that are not a number.
    snapshots = [each for each in registry().snapshot() if each.name != "vcnode_cpu_seconds_total"]
    page = exposition.page(snapshots, is_openmetrics=True).decode()
    families = {family.name for family in openmetrics_families(page)}  # type: ignore[no-untyped-call]
    assert {"vcnode_requests", "vcnode_seconds", "process_cpu_seconds"} <= families


def test_label_values_that_utf8_cannot_encode_are_escaped() -> None:
    made = Registry()
    made.counter("vcnode_x_total", "X.", ("a",)).labels("\udcff").inc()
    made.counter("vcnode_y_total", "Y.", ("a",)).labels("é").inc()
    lines = exposition.render(made.snapshot()).decode().splitlines()
    assert lines[2] == r'vcnode_x_total{a="\\udcff"} 1.0'
    assert lines[5] == 'vcnode_y_total{a="é"} 1.0'
