# SPDX-License-Identifier: Apache-2.0
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from daemonkit.fairness.turns import HELD_SLICES, MAX_STEP_NS, FairShare, Turns

SLICE_NS = 1_000_000


class Named(FairShare):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def served(turns: Turns[Named], costs: dict[Named, int], slices: int) -> Counter[str]:
    """Nanoseconds that members are served who always have a step to take."""
    found: Counter[str] = Counter()
    for each in costs:
        turns.wait(each)
    for _ in range(slices):
        turns.begin_slice()
        while (member := turns.first()) is not None:
            turns.take()
            found[member.name] += costs[member]
            turns.charge(member, costs[member])
            turns.stay(member)
    return found


def test_steps_begin_at_once_within_a_slice() -> None:
    turns: Turns[Named] = Turns(SLICE_NS)
    a = Named("a")
    assert not turns.charge(a, SLICE_NS - 1)
    assert turns.may_go_on(a)
    assert turns.charge(a, 1)
    assert not turns.may_go_on(a)
    turns.begin_slice()
    assert turns.may_go_on(a)


def test_none_goes_on_while_another_waits() -> None:
    turns: Turns[Named] = Turns(SLICE_NS)
    turns.wait(Named("a"))
    assert not turns.may_go_on(Named("b"))


def test_long_steps_gain_no_time() -> None:
    found = served(Turns(SLICE_NS), {Named("long"): 5_000_000, Named("short"): 50_000}, 4_000)
    assert 0.9 < found["long"] / found["short"] < 1.1


def test_time_is_shared_by_weight() -> None:
    turns: Turns[Named] = Turns(SLICE_NS)
    one, three = Named("one"), Named("three")
    turns.set_weight(three, 3)
    found = served(turns, {one: 100_000, three: 100_000}, 4_000)
    assert 2.8 < found["three"] / found["one"] < 3.2


def test_who_was_idle_is_next_and_gains_nothing() -> None:
    turns: Turns[Named] = Turns(SLICE_NS)
    busy, idle = Named("busy"), Named("idle")
    served(turns, {busy: 100_000}, 1_000)
    turns.wait(idle)
    turns.begin_slice()
    assert turns.first() is idle
    # Both wait from now on: the idle one is served its half, and not all that it left to the other before.
    found = served(turns, {busy: 100_000, idle: 100_000}, 100)
    assert 0.8 < found["idle"] / found["busy"] < 1.25


def test_use_while_nobody_else_works_is_forgotten() -> None:
    turns: Turns[Named] = Turns(SLICE_NS)
    a, b = Named("a"), Named("b")
    turns.charge(a, MAX_STEP_NS)
    turns.begin_slice()
    turns.wait(a)
    turns.wait(b)
    turns.begin_slice()
    assert turns.first() is a
    turns.take()
    turns.charge(a, 1_000)
    turns.wait(a)
    turns.begin_slice()
    # It owes its last step, and not those before.
    assert turns.first() is b


def test_who_is_ahead_leaves_slices_to_one_at_work() -> None:
    """The following slice began with the long one's next step, whatever it owed, as it alone waited."""
    turns: Turns[Named] = Turns(SLICE_NS)
    long, short = Named("long"), Named("short")
    turns.charge(short, SLICE_NS // 10)
    turns.charge(long, MAX_STEP_NS)
    turns.begin_slice()
    assert not turns.may_go_on(long)
    assert turns.may_go_on(short)
    turns.wait(long)
    for _ in range(HELD_SLICES):
        turns.begin_slice()
        assert turns.first() is None
        turns.charge(short, SLICE_NS)  # it came, and the wait for its next one begins again
    for _ in range(HELD_SLICES):
        turns.begin_slice()
        assert turns.first() is None
    turns.begin_slice()
    assert turns.first() is long


def test_who_came_too_late_is_next_and_gains_nothing() -> None:
    turns: Turns[Named] = Turns(SLICE_NS)
    long, late = Named("long"), Named("late")
    turns.charge(late, 1)
    turns.charge(long, MAX_STEP_NS)
    turns.wait(long)
    for _ in range(HELD_SLICES + 1):
        turns.begin_slice()
    assert turns.first() is long
    found = served(turns, {long: SLICE_NS, late: SLICE_NS}, 20)
    assert abs(found["long"] - found["late"]) <= SLICE_NS


def test_a_turn_that_is_left_costs_nothing() -> None:
    turns: Turns[Named] = Turns(SLICE_NS)
    a, b = Named("a"), Named("b")
    turns.wait(a)
    turns.wait(b)
    turns.begin_slice()
    turns.take()
    assert turns.first() is b
    turns.take()
    assert turns.first() is None
    assert not turns.are_any_waiting


def test_one_that_is_removed_in_a_slice_has_no_turn() -> None:
    turns: Turns[Named] = Turns(SLICE_NS)
    a, b, c = Named("a"), Named("b"), Named("c")
    for each in (a, b, c):
        turns.wait(each)
    turns.begin_slice()
    turns.take()
    turns.remove(b)
    assert turns.first() is c
    turns.take()
    turns.stay(a)
    turns.remove(a)
    assert turns.first() is None


def test_who_stays_is_behind_who_has_used_less() -> None:
    turns: Turns[Named] = Turns(SLICE_NS)
    a, b = Named("a"), Named("b")
    turns.wait(a)
    turns.wait(b)
    turns.begin_slice()
    turns.take()
    turns.charge(a, 10)
    turns.stay(a)
    assert turns.first() is b
    turns.take()
    turns.charge(b, SLICE_NS // 2)
    turns.stay(b)
    assert turns.first() is a


def test_who_is_removed_holds_nobody() -> None:
    turns: Turns[Named] = Turns(SLICE_NS)
    long, gone = Named("long"), Named("gone")
    turns.charge(gone, 1)
    turns.charge(long, MAX_STEP_NS)
    turns.wait(gone)
    turns.remove(gone)
    turns.remove(gone)
    turns.wait(long)
    turns.begin_slice()
    assert turns.first() is long


@given(st.lists(st.integers(50_000, 20_000_000), min_size=2, max_size=4), st.integers(0, 50))
def test_each_has_its_share_whatever_it_takes(costs: list[int], before: int) -> None:
    turns: Turns[Named] = Turns(SLICE_NS)
    members = {Named(str(number)): cost for number, cost in enumerate(costs)}
    served(turns, dict(list(members.items())[:1]), before)
    # Each slice has a step at least, of 20 ms at most: all have had many of their own by then.
    found = served(turns, members, 250)
    most, least = max(found.values()), min(found.values())
    assert most - least <= SLICE_NS + 2 * MAX_STEP_NS


_STEPS = st.lists(
    st.tuples(
        st.one_of(st.integers(1_000, SLICE_NS), st.integers(SLICE_NS, MAX_STEP_NS)),
        # Slices until the next step has come, and whether it tries to go on before the slice begins or after.
        st.integers(0, HELD_SLICES),
        st.booleans(),
    ),
    min_size=1,
    max_size=60,
)


@given(_STEPS, _STEPS)
def test_two_with_work_differ_by_a_slice_and_two_steps(
    first: list[tuple[int, int, bool]], second: list[tuple[int, int, bool]]
) -> None:
    """Whatever their steps take, and although each step comes a moment after the last one has ended."""
    turns: Turns[Named] = Turns(SLICE_NS)
    members = [Named("a"), Named("b")]
    steps = {members[0]: first, members[1]: second}
    most = {member: max(took for took, _, _ in steps[member]) for member in members}
    used: dict[Named, int] = dict.fromkeys(members, 0)
    done: dict[Named, int] = dict.fromkeys(members, 0)
    waits = 1_000_000
    comes_at = dict.fromkeys(members, waits)  # in which slice
    now = 0

    def step(member: Named) -> None:
        took, delay, _ = steps[member][done[member] % len(steps[member])]
        done[member] += 1
        used[member] += took
        turns.charge(member, took)
        comes_at[member] = now + delay
        assert abs(used[members[0]] - used[members[1]]) <= SLICE_NS + sum(most.values())

    def come(is_early: bool) -> None:
        for member in members:
            if comes_at[member] <= now and steps[member][done[member] % len(steps[member])][2] is is_early:
                if turns.may_go_on(member):
                    step(member)
                else:
                    comes_at[member] = waits
                    turns.wait(member)

    for member in members:
        turns.wait(member)
    while sum(done.values()) < 200:
        come(is_early=True)
        now += 1
        turns.begin_slice()
        while (next_one := turns.first()) is not None:
            turns.take()
            step(next_one)
        come(is_early=False)


def test_what_is_owed_is_bounded() -> None:
    turns: Turns[Named] = Turns(SLICE_NS)
    long, short = Named("long"), Named("short")
    for member in (long, short):
        turns.charge(member, SLICE_NS)
    turns.add_debt(long, 1_000 * MAX_STEP_NS)
    found = served(turns, {long: SLICE_NS, short: SLICE_NS}, 100)
    assert found["long"] >= (40 - 2) * SLICE_NS
