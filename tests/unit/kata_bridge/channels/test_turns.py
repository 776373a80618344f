# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from kata_bridge.channels.turns import Step, Turns


def begun(turns: Turns[str], now_s: float) -> str:
    """Who has a turn now that had none, and who lost one (in capitals), in order."""
    said = []
    while True:
        step = turns.next(now_s)
        if step.ended is not None:
            said.append(step.ended.upper())
        elif step.begun is not None:
            said.append(step.begun)
        else:
            return " ".join(said)


def waiting(turns: Turns[str], *names: str) -> None:
    """The first letter is the origin."""
    for name in names:
        turns.wait(name, name[0])


def test_so_many_go_at_once_and_the_others_in_order() -> None:
    turns: Turns[str] = Turns(2, 3.0)
    waiting(turns, "a1", "b1", "c1", "d1")
    assert begun(turns, 0.0) == "a1 b1"
    assert turns.next(1.0) == Step(again_s=2.0)
    turns.over("a1")
    assert begun(turns, 1.0) == "c1"
    turns.over("d1")
    turns.over("b1")
    assert begun(turns, 1.0) == ""
    assert len(turns) == 1


def test_who_has_no_turn_goes_before_who_has_many() -> None:
    turns: Turns[str] = Turns(4, 3.0)
    waiting(turns, "a1", "a2", "a3", "a4", "a5", "b1", "c1")
    assert begun(turns, 0.0) == "a1 b1 c1 a2"


def test_a_turn_is_taken_back_only_where_another_waits_and_from_who_has_most() -> None:
    turns: Turns[str] = Turns(3, 3.0)
    waiting(turns, "b1", "a1", "a2")
    assert begun(turns, 0.0) == "b1 a1 a2"
    assert begun(turns, 9.0) == ""
    waiting(turns, "c1")
    assert begun(turns, 9.0) == "A1 c1"
    waiting(turns, "d1")
    assert begun(turns, 9.0) == "B1 d1"
    waiting(turns, "e1")
    assert begun(turns, 11.0) == "A2 e1"
    waiting(turns, "f1")
    assert turns.next(11.0) == Step(again_s=1.0)


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.booleans()), max_size=80))
def test_never_more_than_so_many_and_nobody_is_forgotten(events: list[tuple[int, str, bool]]) -> None:
    turns: Turns[str] = Turns(3, 5.0)
    held: set[str] = set()
    wants: set[str] = set()
    for now, (number, origin, ends) in enumerate(events):
        name = f"{origin}{number}"
        if ends:
            turns.over(name)
            held.discard(name)
            wants.discard(name)
        elif name not in held:
            turns.wait(name, origin)
            wants.add(name)
        for word in begun(turns, float(now)).split():
            if word.isupper():
                held.remove(word.lower())
            else:
                wants.remove(word)
                held.add(word)
        assert len(held) == len(turns) <= 3
        assert not wants or len(held) == 3
