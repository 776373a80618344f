# SPDX-License-Identifier: Apache-2.0
import pytest

from daemonkit.metrics import Histogram
from kubeproxy_ext.compute.objects import LAST_CHANGE_TRIGGER_TIME, EndpointSliceObject, Meta
from kubeproxy_ext.delivery.latency import MAX_TRIGGERS, ProgrammingLatency, trigger_time

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def changed(text: str | None) -> EndpointSliceObject:
    return EndpointSliceObject(
        Meta(name="x", annotations={} if text is None else {LAST_CHANGE_TRIGGER_TIME: text})
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T00:00:00Z", NOW),
        ("2026-01-01T01:00:00.5+01:00", NOW + 0.5),
        ("2026-01-01T00:00:00.123456789Z", NOW + 0.123456),
        (None, None),
        ("", None),
        ("yesterday", None),
        ("2026-01-01T00:00:00", None),
    ],
)
def test_trigger_time_of_a_slice(text: str | None, expected: float | None) -> None:
    found = trigger_time(changed(text))
    assert found == (pytest.approx(expected) if expected is not None else None)


class Measured:
    def __init__(self) -> None:
        self.wall = NOW
        self.histogram = Histogram((1.0,))
        self.latency = ProgrammingLatency(lambda: self.wall, self.histogram.observe)


def test_latency_is_from_change_to_results() -> None:
    it = Measured()
    it.latency.changed("a", changed("2026-01-01T00:00:00Z"))
    it.latency.changed("a", changed(None))
    it.latency.computed("a", {"d1", "d2"})
    it.wall += 3.0
    it.latency.done("d1")
    it.latency.done("d1")
    assert (it.histogram.count, it.histogram.total) == (1, 3.0)
    it.latency.done("d2")
    assert it.histogram.count == 2


def test_change_without_new_ruleset_is_not_measured() -> None:
    it = Measured()
    it.latency.computed("a", {"d1"})
    it.latency.changed("a", changed("2026-01-01T00:00:00Z"))
    it.latency.computed("a", {"d1"})
    it.latency.done("d1")
    it.latency.changed("b", changed("2026-01-01T00:00:00Z"))
    it.latency.forget("b")
    it.latency.computed("b", {"d2"})
    it.latency.done("d2")
    assert it.histogram.count == 0


def test_change_before_start_is_not_measured() -> None:
    it = Measured()
    it.latency.changed("a", changed("2025-12-31T23:59:59Z"))
    it.latency.computed("a", {"d1"})
    it.latency.done("d1")
    assert it.histogram.count == 0


def test_slow_clock_counts_zero_and_floods_are_limited() -> None:
    it = Measured()
    for _ in range(MAX_TRIGGERS * 2):
        it.latency.changed("a", changed("2027-01-01T00:00:00Z"))
    it.latency.computed("a", {"d1"})
    it.latency.done("d1")
    assert (it.histogram.count, it.histogram.total) == (MAX_TRIGGERS, 0.0)
