# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.admission.handshake_slots import HandshakeSlots, SlotStep


def begun(slots: HandshakeSlots[str], now_s: float) -> str:
    """Clients that got a slot, and clients that lost one (in capitals), in order."""
    names = []
    while True:
        step = slots.next(now_s)
        if step.ended is not None:
            names.append(step.ended.upper())
        elif step.begun is not None:
            names.append(step.begun)
        else:
            return " ".join(names)


def made(capacity: int, *names: str, stalled_s: float = 1.0) -> HandshakeSlots[str]:
    slots: HandshakeSlots[str] = HandshakeSlots(capacity, stalled_s, 3.0)
    wait(slots, *names)
    return slots


def wait(slots: HandshakeSlots[str], *names: str) -> None:
    """The first letter is the client address."""
    for name in names:
        slots.wait(name, name[0])


def test_capacity_bounds_handshakes_and_the_rest_wait_in_order() -> None:
    slots = made(2, "a1", "b1", "c1", "d1")
    assert begun(slots, 0.0) == "a1 b1"
    assert slots.next(0.25) == SlotStep(again_s=0.75)
    slots.over("a1", 0.25)
    assert begun(slots, 0.25) == "c1"
    slots.over("d1", 0.25)
    slots.over("b1", 0.25)
    assert begun(slots, 0.25) == ""
    assert len(slots) == 1


def test_an_address_without_slots_is_first() -> None:
    assert begun(made(4, "a1", "a2", "a3", "a4", "a5", "b1", "c1"), 0.0) == "a1 b1 c1 a2"


def test_an_address_that_held_a_slot_long_waits_longer() -> None:
    slots = made(1, "a1", "a2", "b1", "b2", "b3")
    assert begun(slots, 0.0) == "a1"
    order = []
    now_s = 0.9
    slots.over("a1", now_s)
    while name := begun(slots, now_s):
        order.append(name)
        now_s += 0.01
        slots.over(name, now_s)
    assert order == ["b1", "b2", "b3", "a2"]


def test_slots_are_taken_back_from_the_largest_address_on_demand() -> None:
    slots = made(3, "b1", "a1", "a2")
    assert begun(slots, 0.0) == "b1 a1 a2"
    assert begun(slots, 9.0) == ""
    wait(slots, "c1")
    assert begun(slots, 9.0) == "A1 c1"
    wait(slots, "d1")
    assert begun(slots, 9.0) == "B1 d1"


def test_a_progressing_client_keeps_its_slot_until_longest_s() -> None:
    slots = made(2, "a1", "b1")
    assert begun(slots, 0.0) == "a1 b1"
    wait(slots, "c1", "d1")
    slots.progressed("a1", 0.9)
    slots.progressed("nobody", 0.9)
    assert begun(slots, 1.0) == "B1 c1"
    for now_s in (1.5, 2.0, 2.5):
        slots.progressed("a1", now_s)
        slots.progressed("c1", now_s)
    assert begun(slots, 2.9) == ""
    assert begun(slots, 3.0) == "A1 d1"


@pytest.mark.parametrize("attackers", [64, 400, 2_000])
def test_a_newcomer_waits_only_for_sources_without_a_slot_yet(attackers: int) -> None:
    """Each attacker holds a slot in silence until it is revoked, and waits again at once."""
    capacity = 128
    slots: HandshakeSlots[int] = HandshakeSlots(capacity, 1.0, 3.0)
    for number in range(attackers):
        slots.wait(number, f"address {number}")

    def wait_of_honest(name: int, now_s: float) -> float:
        slots.wait(name, f"honest {name}")
        begin_s = now_s
        while True:
            step = slots.next(now_s)
            if step.begun == name:
                slots.over(name, now_s)
                return now_s - begin_s
            if step.ended is not None:
                slots.wait(step.ended, f"address {step.ended}")
            elif step.begun is None:
                assert step.again_s is not None
                now_s += step.again_s

    first_s = wait_of_honest(-1, 0.0)
    assert first_s == math.floor(attackers / capacity)
    # And one that arrives after each of them had a slot.
    later_s = first_s + math.ceil(attackers / capacity) + 1
    assert wait_of_honest(-2, later_s) <= 1.0


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.booleans()), max_size=80))
def test_capacity_is_kept_and_every_address_is_served(events: list[tuple[int, str, bool]]) -> None:
    slots = made(3, stalled_s=5.0)
    running: set[str] = set()
    waiting: set[str] = set()
    for now, (number, client_address, ends) in enumerate(events):
        name = f"{client_address}{number}"
        if ends:
            slots.over(name, float(now))
            running.discard(name)
            waiting.discard(name)
        elif name not in running | waiting:
            wait(slots, name)
            waiting.add(name)
        for word in begun(slots, float(now)).split():
            if word.isupper():
                running.remove(word.lower())
            else:
                waiting.remove(word)
                running.add(word)
        assert len(running) == len(slots) <= 3
        assert len(running) == 3 or not waiting
