# SPDX-License-Identifier: Apache-2.0
import pytest

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
        self.observed: list[float] = []
        self.latency = ProgrammingLatency(lambda: self.wall, self.observed.append)

    def change(self, *digests: str, at: str = "2026-01-01T00:00:00Z") -> None:
        """Change a slice of tenant a for the guest g, which gets these rulesets one after the other."""
        for digest in digests:
            self.latency.changed("a", changed(at))
            self.latency.computed("a", {"g": digest})

    def applied(self, digest: str, *, is_desired: bool = False) -> list[float]:
        """The latencies that end as the guest has this ruleset."""
        self.observed.clear()
        self.latency.applied("g", digest, is_desired=is_desired)
        return list(self.observed)


def test_latency_is_from_change_to_results() -> None:
    it = Measured()
    it.latency.changed("a", changed("2026-01-01T00:00:00Z"))
    it.latency.changed("a", changed(None))
    it.latency.computed("a", {"g": "d1", "h": "d2"})
    it.wall += 3.0
    assert it.applied("d1") == [3.0]
    assert it.applied("d1") == []
    it.latency.applied("h", "d2", is_desired=True)
    assert it.observed == [3.0]


def test_later_ruleset_ends_the_measurement_of_earlier_ones() -> None:
    it = Measured()
    it.change("d1", "d2", "d3")
    it.wall += 2.0
    assert it.applied("d0") == []
    assert it.applied("d2") == [2.0, 2.0]
    assert it.applied("d3", is_desired=True) == [2.0]


def test_superseded_rulesets_do_not_stop_measurements() -> None:
    it = Measured()
    it.change(*(f"d{number}" for number in range(1000)))
    it.wall += 60.0
    assert it.applied("d999", is_desired=True) == [60.0] * MAX_TRIGGERS
    it.change("next")
    assert it.applied("next", is_desired=True) == [60.0]


def test_change_without_new_ruleset_is_not_measured() -> None:
    it = Measured()
    it.latency.changed("a", changed("2026-01-01T00:00:00Z"))
    it.latency.computed("a", {})
    it.latency.computed("a", {"g": "d1"})
    assert it.applied("d1", is_desired=True) == []
    it.latency.changed("a", changed("2026-01-01T00:00:00Z"))
    it.latency.forget("a")
    it.latency.computed("a", {"g": "d2"})
    assert it.applied("d2", is_desired=True) == []
    it.change("d3")
    it.latency.forget_guest("g")
    assert it.applied("d3", is_desired=True) == []


def test_later_ruleset_without_a_change_ends_the_measurement() -> None:
    it = Measured()
    it.change("d1")
    it.latency.computed("a", {"g": "d2"})  # only a Service changed
    it.wall += 3.0
    assert it.applied("d2") == [3.0]


def test_change_before_start_is_not_measured() -> None:
    it = Measured()
    it.change("d1", at="2025-12-31T23:59:59Z")
    assert it.applied("d1") == []


def test_slow_clock_counts_zero_and_floods_are_limited() -> None:
    it = Measured()
    for _ in range(MAX_TRIGGERS * 2):
        it.latency.changed("a", changed("2027-01-01T00:00:00Z"))
    it.latency.computed("a", {"g": "d1"})
    assert it.applied("d1") == [0.0] * MAX_TRIGGERS
