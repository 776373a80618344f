# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kubeproxy_ext.compute.sync_rate import GAP_S, MAX_GAP_S, SyncRateLimiter


def runs(changes: list[float], run_s: float = 0.0) -> list[tuple[float, int]]:
    """When a perfect loop would run for changes at these times, and how many each run takes."""
    limiter, pending, found, left = SyncRateLimiter(), 0, [], sorted(changes)
    busy_until = 0.0
    while left or pending:
        due_at = limiter.due_at
        at = max(due_at, busy_until) if due_at is not None else left[0]
        # Changes that come before the run starts are part of it.
        while left and left[0] <= at:
            limiter, pending = limiter.changed(left.pop(0)), pending + 1
        if limiter.is_due(at):
            found.append((round(at, 6), pending))
            busy_until = at + run_s
            limiter, pending = limiter.ran(at, busy_until), 0
    return found


def test_nothing_is_due_without_a_change() -> None:
    assert SyncRateLimiter().due_at is None
    assert not SyncRateLimiter().is_due(1e9)


def test_change_after_the_gap_is_due_at_once() -> None:
    assert runs([10.0]) == [(10.0, 1)]
    assert runs([10.0, 20.0, 20.5]) == [(10.0, 1), (20.0, 1), (20.5, 1)]


def test_changes_within_the_gap_are_due_at_its_end() -> None:
    assert runs([10.0, 10.001, 10.02, 10.049]) == [(10.0, 1), (10.05, 3)]


def test_constant_changes_make_one_run_a_gap() -> None:
    every_ms = [10 + i / 1000 for i in range(300)]
    assert [count for _, count in runs(every_ms)] == [1, 50, 50, 50, 50, 50, 49]
    assert [at for at, _ in runs(every_ms)][:3] == [10.0, 10.05, 10.1]


def test_gap_is_as_long_as_the_run_up_to_a_maximum() -> None:
    limiter = SyncRateLimiter().changed(0.0).ran(0.0, 0.2).changed(0.21)
    assert limiter.due_at == 0.4
    limiter = SyncRateLimiter().changed(0.0).ran(0.0, 60.0).changed(60.0)
    assert limiter.due_at == 60.0 + MAX_GAP_S


def test_least_gap_may_be_given() -> None:
    assert SyncRateLimiter().changed(1.0).ran(1.0, 1.0, gap_s=0.25).changed(1.0).due_at == 1.25


def test_clock_set_back_makes_no_long_gap() -> None:
    limiter = SyncRateLimiter().changed(100.0).ran(100.0, 40.0).changed(40.0)
    assert limiter.due_at == 40.0 + GAP_S


@given(
    st.lists(st.floats(0, 5), min_size=1, max_size=60),
    st.floats(0, 0.3),
)
def test_no_change_waits_longer_than_a_gap_and_a_run(changes: list[float], run_s: float) -> None:
    found = runs(changes, run_s)
    assert sum(count for _, count in found) == len(changes)
    gap_s = max(GAP_S, run_s)
    for (at, _), (following, _) in pairwise(found):
        assert following - at >= run_s + gap_s - 1e-5
    for change in changes:
        taken_at = min(at for at, _ in found if at >= change - 1e-6)
        assert taken_at - change <= run_s + gap_s + 1e-5
