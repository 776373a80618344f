# SPDX-License-Identifier: Apache-2.0
"""Places are counted before a watch shows them, and who waits comes in its turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.kube.resources import Key
from tenant_operator.run.bounded_tenants import BoundedTenants

A, B, C = ("n", "a"), ("n", "b"), ("n", "c")


class RollingFixture:
    def __init__(self, most: int) -> None:
        self.woken: list[Key] = []
        self.rolling = BoundedTenants(most, self.woken.append)


def test_place_counts_from_the_plan_on() -> None:
    place = RollingFixture(2)
    place.rolling.take("a")
    assert (len(place.rolling), list(place.rolling), "a" in place.rolling) == (1, ["a"], True)
    place.rolling.note("a", "2027-01-15T08:00:00Z")
    assert (len(place.rolling), place.rolling.shown()) == (1, {"a": "2027-01-15T08:00:00Z"})
    place.rolling.note("a", "")
    assert len(place.rolling) == 0


@pytest.mark.parametrize("end", ["note", "fail", "forget"])
def test_free_place_goes_to_who_waits_longest(end: str) -> None:
    place = RollingFixture(1)
    place.rolling.take("a")
    if end != "fail":
        place.rolling.note("a", "now")
    for key in (B, C, B):
        place.rolling.wait(key, is_waiting=True)
    place.rolling.offer()
    assert place.woken == []
    match end:
        case "note":
            place.rolling.note("a", "")
        case "fail":
            place.rolling.fail("a")
        case _:
            place.rolling.forget("a")
    assert (place.woken, place.rolling.waiting) == ([B], 1)


def test_place_that_is_not_taken_goes_to_the_next() -> None:
    place = RollingFixture(1)
    for key in (A, B):
        place.rolling.wait(key, is_waiting=True)
    place.rolling.offer()
    place.rolling.wait(A, is_waiting=False)
    place.rolling.offer()
    assert place.woken == [A, B]


def test_oldest_place_is_measured() -> None:
    rolling = RollingFixture(2).rolling
    assert rolling.longest_s(1_800_000_000.0) == 0.0
    rolling.note("a", "2027-01-15T08:00:00Z")
    rolling.note("b", "2027-01-15T07:00:00Z")
    assert rolling.longest_s(1_800_000_060.0) == 3660.0


def test_another_leader_starts_from_what_is_written() -> None:
    place = RollingFixture(1)
    place.rolling.take("a")
    place.rolling.wait(B, is_waiting=True)
    place.rolling.note("c", "now")
    place.rolling.forget_all()
    assert (list(place.rolling), place.rolling.waiting) == (["c"], 0)


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=60))
def test_all_get_their_turn(most: int, orders: list[tuple[int, bool]]) -> None:
    """In any order of plans and ends there are never more, and in the end nobody waits."""
    due: list[Key] = [("n", str(each)) for each in range(10)]
    rolling = BoundedTenants(most, due.append)
    done: set[str] = set()

    def plan(key: Key) -> None:
        uid = key[1]
        if uid in done or uid in rolling:
            rolling.wait(key, is_waiting=False)
        elif len(rolling) < most:
            rolling.wait(key, is_waiting=False)
            rolling.take(uid)
            rolling.note(uid, "now")
        else:
            rolling.wait(key, is_waiting=True)
        rolling.offer()
        assert len(rolling) <= most

    for number, is_end in orders:
        if due and not is_end:
            plan(due.pop(number % len(due)))
        elif found := sorted(rolling):
            done.add(found[number % len(found)])
            rolling.note(found[number % len(found)], "")
    while due or len(rolling):
        if due:
            plan(due.pop(0))
        else:
            done.add(next(iter(rolling)))
            rolling.note(next(iter(rolling)), "")
    assert (len(done), rolling.waiting) == (10, 0)
