# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from syncer.core.due_times import MAX_AT_ONCE, DueTimes

_ITEMS = st.sampled_from([("red", "a"), ("red", "b"), ("blue", "a")])
_TIMES = st.floats(0, 10)
_SET = st.tuples(st.just("set"), _ITEMS, _TIMES)
_FORGET = st.tuples(st.just("forget"), _ITEMS, st.just(0.0))
_TAKE = st.tuples(st.just("take"), _ITEMS, _TIMES)


@given(st.lists(st.one_of(_SET, _FORGET, _TAKE), max_size=60))
def test_what_is_due_is_taken_once(steps: list[tuple[str, tuple[str, str], float]]) -> None:
    """As a dictionary says it, of all times that were given and in any order."""
    times, latest, taken = DueTimes[tuple[str, str]](), dict[tuple[str, str], float](), set[tuple[str, str]]()
    for step, item, at_s in steps:
        match step:
            case "set":
                is_first = times.set(item, at_s)
                latest[item] = at_s
                taken.discard(item)
                assert is_first == (times.first_s == at_s)
            case "forget":
                times.forget(item)
                latest.pop(item, None)
                taken.discard(item)
            case "take":
                due = {each for each, due_s in latest.items() if due_s <= at_s}
                found = times.take(at_s)
                assert sorted(set(found)) == sorted(due - taken)
                taken |= due
                assert {each for each in latest if times.is_due(each, at_s)} == due
        waiting = [due_s for each, due_s in latest.items() if each not in taken]
        assert not waiting or (times.first_s is not None and times.first_s <= min(waiting))


def test_void_times_are_forgotten() -> None:
    times = DueTimes[tuple[str, str]]()
    for number in range(10_000):
        times.set(("red", str(number % 50)), 1_000.0 + number)
        assert len(times) <= 2 * 50 + 64
    for number in range(50):
        times.forget(("red", str(number)))
    while len(times):
        assert times.take(20_000.0) == []


def test_what_is_due_at_once_is_taken_in_pieces() -> None:
    """After a long stop the tokens of all pods are due: 10 000 took 29 ms in one step."""
    times, found = DueTimes[tuple[str, str]](), list[tuple[str, str]]()
    for number in range(1_000):
        times.set(("red", str(number)), 1.0)
    while times.first_s is not None:
        taken = times.take(2.0)
        assert len(taken) <= MAX_AT_ONCE
        found += taken
    assert len(set(found)) == len(found) == 1_000
