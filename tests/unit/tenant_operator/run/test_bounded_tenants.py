# SPDX-License-Identifier: Apache-2.0
"""Places are counted before a watch shows them, and who waits comes in its turn."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.kube.resources import Key
from tenant_operator.life.requests import text_of
from tenant_operator.run.bounded_tenants import KEPT_S, BoundedTenants
from tests.unit.fake_clock import FakeClock

A, B, C = ("n", "a"), ("n", "b"), ("n", "c")


SINCE = "2027-01-15T08:00:00Z"
NOW, LONGEST_S = 1_800_000_000.0, 600.0


class RollingFixture:
    def __init__(self, most: int) -> None:
        self.woken: list[Key] = []
        self.clock = FakeClock(NOW)
        self.rolling = BoundedTenants(most, self.woken.append, self.clock, LONGEST_S)

    def wait(self, *waiting: Key) -> None:
        for key in waiting:
            self.rolling.wait(key, key[1], is_waiting=True)

    def fill(self, count: int, namespace: str, since: str = SINCE) -> None:
        for number in range(count):
            uid = f"{namespace}-{number}"
            self.rolling.note((namespace, uid), uid, since)


def test_place_counts_from_the_plan_on() -> None:
    place = RollingFixture(2)
    place.rolling.take("a")
    assert (len(place.rolling), list(place.rolling), "a" in place.rolling) == (1, ["a"], True)
    place.rolling.note(A, "a", SINCE)
    assert (len(place.rolling), place.rolling.shown()) == (1, {"a": SINCE})
    place.rolling.note(A, "a", "")
    assert len(place.rolling) == 0


@pytest.mark.parametrize("end", ["note", "fail", "forget", "refused", "late"])
def test_free_place_goes_to_who_waits_longest(end: str) -> None:
    place = RollingFixture(1)
    place.rolling.take("a")
    if end != "fail":
        place.rolling.note(A, "a", SINCE)
    place.wait(B, C, B)
    place.rolling.offer()
    assert place.woken == []
    match end:
        case "note":
            place.rolling.note(A, "a", "")
        case "fail":
            place.rolling.fail("a")
        case "refused":
            place.rolling.note_refused("a", is_refused=True)
        case "late":
            place.clock.now += LONGEST_S
            place.rolling.offer()
        case _:
            place.rolling.forget(A, "a")
    assert (place.woken, place.rolling.waiting) == ([B], 1)


def test_place_that_is_not_taken_goes_to_the_next() -> None:
    place = RollingFixture(1)
    place.wait(A, B)
    place.rolling.offer()
    assert place.rolling.may_take("a")
    place.rolling.offer()
    assert place.woken == [A, B]


def test_free_place_is_kept_for_who_waits_longest() -> None:
    """Whoever has its VirtualCluster planned all the time comes behind; who is not planned, too."""
    place = RollingFixture(1)
    place.wait(A, B)
    assert not place.rolling.may_take("c")
    assert place.woken == [A]
    place.clock.now += KEPT_S - 1
    assert not place.rolling.may_take("c")
    place.clock.now += 1
    assert not place.rolling.may_take("c")
    assert place.woken == [A, B]
    assert [place.rolling.may_take(uid) for uid in ("a", "b")] == [False, True]


def test_late_tenants_of_one_namespace_keep_one_place() -> None:
    place = RollingFixture(5)
    place.fill(5, "evil")
    assert not place.rolling.may_take("a")
    place.clock.now += LONGEST_S
    for uid in "abcd":
        assert place.rolling.may_take(uid)
        place.rolling.take(uid)
    assert not place.rolling.may_take("e")
    # Also those that were late take places as others do.
    assert not place.rolling.may_take("evil-0")


@pytest.mark.parametrize("most", [1, 2, 5])
def test_late_tenants_of_all_leave_one_place(most: int) -> None:
    """A change that is bad for all goes on slowly."""
    place = RollingFixture(most)
    for number in range(9):
        place.fill(1, f"n{number}")
    place.clock.now += LONGEST_S
    assert place.rolling.may_take("a")
    place.rolling.take("a")
    assert not place.rolling.may_take("b")


def test_who_is_refused_has_no_place() -> None:
    place = RollingFixture(1)
    place.rolling.note(A, "a", SINCE)
    place.rolling.note_refused("a", is_refused=True)
    assert place.rolling.may_take("b")
    place.rolling.take("b")
    # It comes in its turn when it can be planned again.
    assert not place.rolling.may_take("a")
    place.rolling.note_refused("a", is_refused=False)
    assert place.rolling.may_take("a")


def test_late_place_is_taken_anew_before_it_shows() -> None:
    place = RollingFixture(1)
    place.rolling.note(A, "a", SINCE)
    place.clock.now += LONGEST_S
    assert place.rolling.may_take("a")
    place.rolling.take("a")
    place.rolling.note(A, "a", SINCE)
    assert not place.rolling.may_take("b")
    place.rolling.note(A, "a", "2027-01-15T08:10:00Z")
    assert not place.rolling.may_take("b")


def test_oldest_place_is_measured() -> None:
    rolling = RollingFixture(2).rolling
    assert rolling.longest_s(1_800_000_000.0) == 0.0
    rolling.note(A, "a", "2027-01-15T08:00:00Z")
    rolling.note(B, "b", "2027-01-15T07:00:00Z")
    assert rolling.longest_s(1_800_000_060.0) == 3660.0


def test_another_leader_starts_from_what_is_written() -> None:
    place = RollingFixture(1)
    place.rolling.take("a")
    place.wait(B)
    place.rolling.note(C, "c", SINCE)
    place.rolling.forget_all()
    assert (list(place.rolling), place.rolling.waiting) == (["c"], 0)


@pytest.mark.parametrize(
    ("most", "broken", "seed"),
    [(most, broken, 8 * most + broken) for most in (1, 2, 5) for broken in (1, 5, 12)],
)
def test_tenants_that_stay_broken_starve_nobody(most: int, broken: int, seed: int) -> None:
    """Those of one owner are planned all the time, take each place that they get, and never end by
    themselves. All others get their turn, each once for a minute, and there are never more than allowed."""
    chance = random.Random(seed)  # noqa: S311 - an order of events, which a seed repeats
    due: list[Key] = []
    clock = FakeClock(NOW)
    rolling = BoundedTenants(most, due.append, clock, LONGEST_S)
    healthy: dict[str, Key] = {f"h{number}": (f"n{number}", f"h{number}") for number in range(10)}
    evil: dict[str, Key] = {f"e{number}": ("evil", f"e{number}") for number in range(broken)}
    begun: dict[str, float] = {}
    done: set[str] = set()

    def plan(key: Key) -> None:
        uid = key[1]
        is_new = begun.get(uid, -LONGEST_S) + LONGEST_S <= clock.now
        may_take, wants = rolling.may_take(uid), uid not in done and is_new
        rolling.wait(key, uid, is_waiting=wants and not may_take)
        if wants and may_take:
            rolling.take(uid)
            begun[uid] = clock.now
            rolling.note(key, uid, text_of(clock.now))

    due += [*evil.values(), *healthy.values()]
    for _ in range(int((broken + 2) * LONGEST_S + len(healthy) * 90) // 15):
        clock.now += 15.0
        planned, due[:] = list(due), []
        for key in [*planned, *chance.sample(list(evil.values()), broken)]:
            plan(key)
            fresh = [uid for uid in rolling if clock.now - begun[uid] < LONGEST_S]
            assert len(fresh) <= most
        for uid in healthy.keys() & begun.keys() - done:
            if clock.now - begun[uid] >= 60.0:
                done.add(uid)
                rolling.note(healthy[uid], uid, "")
        if len(done) == len(healthy):
            break
    assert done == set(healthy)


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=60))
def test_all_get_their_turn(most: int, orders: list[tuple[int, bool]]) -> None:
    """In any order of plans and ends there are never more, and in the end nobody waits."""
    due: list[Key] = [("n", str(each)) for each in range(10)]
    rolling = BoundedTenants(most, due.append, FakeClock(NOW))
    done: set[str] = set()

    def plan(key: Key) -> None:
        uid = key[1]
        may_take, wants = rolling.may_take(uid), uid not in done and uid not in rolling
        rolling.wait(key, uid, is_waiting=wants and not may_take)
        if wants and may_take:
            rolling.take(uid)
            rolling.note(key, uid, SINCE)
        rolling.offer()
        assert len(rolling) <= most

    for number, is_end in orders:
        if due and not is_end:
            plan(due.pop(number % len(due)))
        elif found := sorted(rolling):
            done.add(found[number % len(found)])
            rolling.note(A, found[number % len(found)], "")
    while due or len(rolling):
        if due:
            plan(due.pop(0))
        else:
            done.add(next(iter(rolling)))
            rolling.note(A, next(iter(rolling)), "")
    assert (len(done), rolling.waiting) == (10, 0)
