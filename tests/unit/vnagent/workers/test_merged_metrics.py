# SPDX-License-Identifier: Apache-2.0
"""Metrics of several processes on one page."""

import pytest

from daemonkit.metrics import Distribution, Registry
from vnagent.workers.merged_metrics import MergedRegistry


class CountingProcess:
    """The metrics of one process."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.requests = registry.counter("requests_total", "Requests.", ("tenant",))
        self.open = registry.gauge("open", "Open.")
        self.durations = registry.histogram("seconds", "Durations.", (0.1, 1.0))


def values(registry: Registry) -> dict[str, dict[tuple[str, ...], float | Distribution]]:
    return {each.name: dict(each.series) for each in registry.snapshot()}


@pytest.fixture
def main() -> MergedRegistry:
    return MergedRegistry()


def test_values_of_all_processes_are_summed(main: MergedRegistry) -> None:
    own, one, other = CountingProcess(main), CountingProcess(Registry()), CountingProcess(Registry())
    own.open.set(1)
    for process, tenant in ((one, "a"), (one, "b"), (other, "b")):
        process.requests.labels(tenant).inc()
        process.open.set(5)
        process.durations.observe(0.5)
    main.report(0, one.registry.snapshot())
    main.report(1, other.registry.snapshot())
    found = values(main)
    assert found["requests_total"] == {("a",): 1, ("b",): 2}
    assert found["open"] == {(): 11}
    assert found["seconds"] == {(): Distribution(((0.1, 0), (1.0, 3), (float("inf"), 3)), 1.5)}


def test_counters_do_not_fall_when_a_worker_ends(main: MergedRegistry) -> None:
    CountingProcess(main)
    for _ in range(3):
        worker = CountingProcess(Registry())
        worker.requests.labels("a").inc(10)
        worker.open.set(4)
        worker.durations.observe(2.0)
        main.report(0, worker.registry.snapshot())
        main.end(0)
    found = values(main)
    assert found["requests_total"] == {("a",): 30}
    assert found["open"] == {(): 0}
    assert found["seconds"] == {(): Distribution(((0.1, 0), (1.0, 0), (float("inf"), 3)), 6.0)}
    main.end(0)  # one that has reported nothing
    assert values(main) == found


def test_removed_tenants_leave_the_sums(main: MergedRegistry) -> None:
    CountingProcess(main)
    worker = CountingProcess(Registry())
    for tenant in ("a", "b", "_overflow", ""):
        worker.requests.labels(tenant).inc()
    main.report(0, worker.registry.snapshot())
    main.end(0)
    main.report(1, worker.registry.snapshot())  # of a worker that does not know yet
    main.keep_tenants({"b"})
    assert values(main)["requests_total"] == {("b",): 2, ("_overflow",): 2, ("",): 2}
    assert values(main)["open"] == {(): 0}


def test_lasting_series_of_removed_tenants_stay() -> None:
    main = MergedRegistry({"requests_total"})
    CountingProcess(main)
    worker = CountingProcess(Registry())
    worker.requests.labels("a").inc()
    main.report(0, worker.registry.snapshot())
    main.end(0)
    main.keep_tenants({"b"})
    assert values(main)["requests_total"] == {("a",): 1}


def test_a_name_that_the_main_process_lacks_is_left_out(main: MergedRegistry) -> None:
    other = Registry()
    other.gauge("unknown", "Unknown.")
    main.report(0, other.snapshot())
    assert main.snapshot() == ()
