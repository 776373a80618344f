# SPDX-License-Identifier: Apache-2.0
"""Slots come in turn, and one namespace never has all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from daemonkit.kube.resources import Key
from tenant_operator.run.tenant_slots import TenantSlots

KEYS: list[Key] = [(namespace, name) for namespace in "abc" for name in ("v", "w", "x", "y", "z")]


class SlotsFixture:
    def __init__(self) -> None:
        self.woken: list[Key] = []
        self.slots = TenantSlots(4, 2, self.woken.append)


def test_one_namespace_has_some_of_all() -> None:
    place = SlotsFixture()
    assert [place.slots.take(key) for key in KEYS] == [*[True] * 2, *[False] * 3, *[True] * 2, *[False] * 8]
    assert place.woken == []


def test_who_waits_longest_gets_the_next_one() -> None:
    place = SlotsFixture()
    for key in KEYS:
        place.slots.take(key)
    for _ in range(3):
        place.slots.take(("a", "x"))  # whoever asks again keeps its turn
    place.slots.give_back(("b", "v"))
    assert place.woken == [("b", "x")]
    place.slots.give_back(("b", "y"))
    place.slots.give_back(("b", "w"))
    place.slots.give_back(("b", "x"))
    assert place.woken == [("b", "x"), ("b", "z"), ("c", "v")]
    assert place.slots.take(("c", "v"))
    place.slots.forget_all()
    assert place.slots.take(("a", "z"))


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(KEYS))))
def test_any_history_leaves_nobody_out(history: list[tuple[bool, Key]]) -> None:
    """Bounds hold at each step, no slot is free that somebody may have, and in the end all had one."""
    place = SlotsFixture()
    taken: set[Key] = set()
    waiting: list[Key] = []
    for takes, key in [*history, *((True, each) for each in KEYS), *((False, each) for each in KEYS * 5)]:
        woken = len(place.woken)
        if takes:
            has_slot = place.slots.take(key)
            assert has_slot or key not in taken
            if has_slot:
                taken.add(key)
            elif key not in waiting:
                waiting.append(key)
        else:
            if key in taken:  # who waits goes on to do so
                place.slots.give_back(key)
                taken.discard(key)
        for each in place.woken[woken:]:
            waiting.remove(each)
            taken.add(each)
        counts = [sum(each[0] == namespace for each in taken) for namespace in "abc"]
        assert (len(taken) <= 4, max(counts) <= 2) == (True, True)
        free = 4 - len(taken)
        assert not [each for each in waiting if free and counts["abc".index(each[0])] < 2]
    assert waiting == []
