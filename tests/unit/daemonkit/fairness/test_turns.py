# SPDX-License-Identifier: Apache-2.0
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from daemonkit.fairness.turns import MAX_STEP_NS, Turns

SLICE_NS = 1_000_000


def served(turns: Turns[str], costs: dict[str, int], slices: int) -> Counter[str]:
    """Nanoseconds that members are served who always have a step to take."""
    found: Counter[str] = Counter()
    for each in costs:
        turns.wait(each)
    for _ in range(slices):
        turns.begin_slice()
        taken = []
        while (member := turns.first()) is not None:
            taken.append((member, turns.take(stays=True)))
        for each, reserved_ns in taken:
            if not turns.must_give_back(each, reserved_ns):
                found[each] += costs[each]
                turns.charge(each, costs[each], reserved_ns)
    return found


def test_steps_begin_at_once_within_a_slice() -> None:
    turns: Turns[str] = Turns(SLICE_NS)
    turns.charge("a", SLICE_NS - 1)
    assert turns.may_go_on()
    turns.charge("a", 1)
    assert not turns.may_go_on()
    turns.begin_slice()
    assert turns.may_go_on()


def test_none_goes_on_while_another_waits() -> None:
    turns: Turns[str] = Turns(SLICE_NS)
    turns.wait("a")
    assert not turns.may_go_on()


def test_long_steps_gain_no_time() -> None:
    found = served(Turns(SLICE_NS), {"long": 5_000_000, "short": 50_000}, 4_000)
    assert 0.9 < found["long"] / found["short"] < 1.1


def test_time_is_shared_by_weight() -> None:
    turns: Turns[str] = Turns(SLICE_NS)
    turns.set_weight("three", 3)
    found = served(turns, {"one": 100_000, "three": 100_000}, 4_000)
    assert 2.8 < found["three"] / found["one"] < 3.2


def test_who_was_idle_is_next_and_gains_nothing() -> None:
    turns: Turns[str] = Turns(SLICE_NS)
    served(turns, {"busy": 100_000}, 1_000)
    turns.wait("idle")
    turns.begin_slice()
    assert turns.first() == "idle"
    # Both wait from now on: the idle one is served its half, and not all that it left to the other before.
    found = served(turns, {"busy": 100_000, "idle": 100_000}, 100)
    assert 0.8 < found["idle"] / found["busy"] < 1.25


def test_use_while_nobody_waits_is_forgotten() -> None:
    turns: Turns[str] = Turns(SLICE_NS)
    turns.charge("a", MAX_STEP_NS)
    turns.begin_slice()
    turns.wait("a")
    turns.wait("b")
    assert turns.first() == "a"
    reserved_ns = turns.take(stays=True)
    turns.charge("a", 1_000, reserved_ns)
    turns.begin_slice()
    # It owes its last step, and not those before.
    assert turns.first() == "b"


def test_a_turn_that_is_left_costs_nothing() -> None:
    turns: Turns[str] = Turns(SLICE_NS)
    turns.wait("a")
    turns.wait("b")
    turns.leave()
    assert turns.first() == "b"
    turns.leave()
    assert turns.first() is None
    assert turns.take(stays=False) == 0


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(50_000, 20_000_000), min_size=2, max_size=4),
    st.integers(0, 50),
)
def test_each_has_its_share_whatever_it_takes(costs: dict[str, int], before: int) -> None:
    turns: Turns[str] = Turns(SLICE_NS)
    served(turns, dict(list(costs.items())[:1]), before)
    # Each slice has a step at least, of 20 ms at most: all have had many of their own by then.
    found = served(turns, costs, 250)
    most, least = max(found.values()), min(found.values())
    assert most - least <= 4 * MAX_STEP_NS


def test_what_is_owed_is_bounded() -> None:
    turns: Turns[str] = Turns(SLICE_NS)
    for member in ("long", "short"):
        turns.charge(member, SLICE_NS)
    turns.add_debt("long", 1_000 * MAX_STEP_NS)
    found = served(turns, {"long": SLICE_NS, "short": SLICE_NS}, 100)
    assert found["long"] >= (40 - 2) * SLICE_NS
