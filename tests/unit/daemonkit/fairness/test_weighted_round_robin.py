# SPDX-License-Identifier: Apache-2.0
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.fairness.weighted_round_robin import MAX_WEIGHT, WeightedRoundRobin


def round_robin(**weights: int) -> WeightedRoundRobin[str]:
    made: WeightedRoundRobin[str] = WeightedRoundRobin()
    for member, weight in weights.items():
        made.set_weight(member, weight)
        made.add(member)
    return made


def take_turns(turns: WeightedRoundRobin[str], count: int) -> list[str]:
    """Members in the order of their turns, until none waits."""
    taken: list[str] = []
    while len(taken) < count and (member := turns.first()) is not None:
        taken.append(member)
        turns.take_turn()
    return taken


def shares(turns: WeightedRoundRobin[str], count: int) -> dict[str, int]:
    return dict(Counter(take_turns(turns, count)))


@pytest.mark.parametrize(
    ("weights", "count", "expected"),
    [
        pytest.param(
            {"n1": 1, "n2": 1, "n3": 1}, 666, {"n1": 222, "n2": 222, "n3": 222}, id="equal weights: thirds"
        ),
        pytest.param(
            {"n1": 1, "n2": 2, "n3": 3, "n4": 4},
            1_000,
            {"n1": 100, "n2": 200, "n3": 300, "n4": 400},
            id="weights 1 to 4",
        ),
        pytest.param({"n1": 7}, 10, {"n1": 10}, id="one member"),
        pytest.param({"n1": 1, "n2": MAX_WEIGHT}, 101, {"n1": 1, "n2": 100}, id="the bounds"),
        pytest.param({"n1": 0, "n2": -3, "n3": 101}, 102, {"n1": 1, "n2": 1, "n3": 100}, id="beyond them"),
        pytest.param({}, 10, {}, id="no member"),
    ],
)
def test_shares_are_in_proportion_to_weights(
    weights: dict[str, int], count: int, expected: dict[str, int]
) -> None:
    """Upstream: `Test_RR_Next`."""
    assert shares(round_robin(**weights), count) == expected


def test_removals_leave_the_shares_of_the_others() -> None:
    """Upstream: `Test_RR_Next`, after removals, one of them twice, until none is left."""
    turns = round_robin(n1=1, n2=2, n3=3, n4=4)
    assert shares(turns, 1_000) == {"n1": 100, "n2": 200, "n3": 300, "n4": 400}
    turns.remove("n2")
    turns.remove("n3")
    turns.remove("n3")
    assert shares(turns, 1_000) == {"n1": 200, "n4": 800}
    turns.remove("n1")
    assert shares(turns, 10) == {"n4": 10}
    turns.remove("n4")
    turns.remove("never there")
    assert (turns.first(), len(turns)) == (None, 0)
    turns.add("n4")
    turns.add("n1")
    assert shares(turns, 10) == {"n1": 5, "n4": 5}, "a removed weight is forgotten"


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({"a": 1, "b": 1, "c": 1}, "abcabc"),
        ({"a": 1, "b": 2}, "babbab"),
        ({"a": 1, "b": 3, "c": 2}, "bcbacb" + "bcbacb"),
        ({"a": 50, "b": 100}, "babbabbab"),
    ],
)
def test_turns_are_spread_over_the_rotation(weights: dict[str, int], expected: str) -> None:
    assert "".join(take_turns(round_robin(**weights), len(expected))) == expected


def test_a_second_add_changes_nothing() -> None:
    turns = round_robin(a=1, b=1)
    turns.add("a")
    assert len(turns) == 2
    assert "".join(take_turns(turns, 4)) == "abab"


def test_a_weight_counts_from_the_next_turn() -> None:
    turns = round_robin(a=1, b=1)
    turns.set_weight("b", 3)
    assert "".join(take_turns(turns, 9)) == "abbbabbba"
    turns.set_weight("b", 1)
    assert shares(turns, 100) == {"a": 50, "b": 50}


def test_a_paused_member_is_next_when_it_returns() -> None:
    turns = round_robin(a=1, b=1, c=1)
    turns.take_turn(stays=False)
    assert "".join(take_turns(turns, 7)) == "bcbcbcb"
    turns.add("a")
    assert "".join(take_turns(turns, 6)) == "cabcab", "its turn, but none for the time away"


def test_a_member_that_returns_early_keeps_its_place() -> None:
    turns = round_robin(a=1, b=1, c=1)
    turns.take_turn(stays=False)
    turns.add("a")
    assert "".join(take_turns(turns, 6)) == "bcabca"


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_to_come_and_go_for_each_item_gains_nothing(is_forgotten: bool) -> None:
    turns = round_robin(a=1, b=1)
    taken = ""
    for _ in range(100):
        turns.add("a")
        member = turns.first()
        assert member is not None
        taken += member
        turns.take_turn(stays=member != "a")
        if member == "a" and is_forgotten:
            turns.forget_place("a")
    assert Counter(taken) == {"a": 50, "b": 50}


@given(st.lists(st.integers(1, MAX_WEIGHT), min_size=1, max_size=8), st.integers(1, 5))
def test_shares_over_full_rotations_are_exact(weights: list[int], rotations: int) -> None:
    expected = {f"n{number}": weight * rotations for number, weight in enumerate(weights)}
    turns = round_robin(**{f"n{number}": weight for number, weight in enumerate(weights)})
    assert shares(turns, sum(weights) * rotations) == expected


@given(st.lists(st.integers(1, MAX_WEIGHT), min_size=2, max_size=8), st.integers(0, 500))
def test_no_member_waits_longer_than_weights_say(weights: list[int], before: int) -> None:
    """Between two turns of one, another has no more turns than the ratio of weights, and one."""
    turns = round_robin(**{str(number): weight for number, weight in enumerate(weights)})
    take_turns(turns, before)
    taken = take_turns(turns, 300)
    for number, weight in enumerate(weights):
        for wait in "".join(chr(int(each)) for each in taken).split(chr(number)):
            for other, turns_of_other in Counter(wait).items():
                assert turns_of_other <= weights[ord(other)] // weight + 1
