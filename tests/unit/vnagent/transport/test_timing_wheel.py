# SPDX-License-Identifier: Apache-2.0
"""The wheel takes each member at its time, however often that was moved."""

import math
import random

import pytest

from vnagent.transport.timing_wheel import TICK_S, TICKS, TimingWheel, WheelMember

NOW_S = 1_000.0
HORIZON_S = TICKS * TICK_S


class Timed(WheelMember):
    __slots__ = ()


def wheel_with(*ats_s: float) -> tuple[TimingWheel[Timed], list[Timed]]:
    wheel: TimingWheel[Timed] = TimingWheel(NOW_S)
    members = [Timed() for _ in ats_s]
    for member, at_s in zip(members, ats_s, strict=True):
        wheel.add(member, at_s)
    return wheel, members


def taken(wheel: TimingWheel[Timed], now_s: float) -> set[Timed]:
    wheel.turn(now_s)
    found = set[Timed]()
    while (one := wheel.pop()) is not None:
        found.add(one)
    return found


@pytest.mark.parametrize(
    ("at_s", "due_s"),
    [
        (NOW_S + 1.0, NOW_S + 1.0),
        (NOW_S + 1.01, NOW_S + 1.25),  # never early
        (NOW_S, NOW_S + TICK_S),  # the tick of now is over
        (NOW_S - 50.0, NOW_S + TICK_S),
        (NOW_S + HORIZON_S, NOW_S + HORIZON_S),
        (NOW_S + 3_600.0, NOW_S + HORIZON_S),  # as far as the wheel goes
    ],
)
def test_when_a_member_is_taken(at_s: float, due_s: float) -> None:
    wheel, (member,) = wheel_with(at_s)
    assert member.due_s == due_s
    assert taken(wheel, due_s - 0.001) == set()
    assert taken(wheel, due_s) == {member}
    assert taken(wheel, due_s + 2 * HORIZON_S) == set()


def test_a_member_that_was_moved_is_taken_once() -> None:
    wheel, (sooner, later, past) = wheel_with(NOW_S + 9, NOW_S + 2, NOW_S + 5)
    wheel.put(sooner, NOW_S + 1)
    wheel.put(later, NOW_S + 9)
    wheel.put(past, NOW_S - 1)
    assert taken(wheel, NOW_S + TICK_S) == {past}
    assert taken(wheel, NOW_S + 1) == {sooner}
    assert taken(wheel, NOW_S + 8.9) == set()
    assert taken(wheel, NOW_S + 9) == {later}


@pytest.mark.parametrize("is_due", [False, True])
def test_a_removed_member_is_never_taken(*, is_due: bool) -> None:
    """Also not where its slot's time has come, and not put in again by who still has it."""
    wheel, (removed, other) = wheel_with(NOW_S + 1, NOW_S + 1)
    if is_due:
        wheel.turn(NOW_S + 1)
    wheel.remove(removed)
    wheel.remove(removed)
    wheel.put(removed, NOW_S + 2)
    assert removed.due_s == -math.inf
    assert taken(wheel, NOW_S + 1) == {other}
    assert taken(wheel, NOW_S + HORIZON_S) == set()


def test_a_taken_member_can_be_put_in_again() -> None:
    wheel, (member,) = wheel_with(NOW_S + 1)
    assert taken(wheel, NOW_S + 1) == {member}
    assert member.due_s == math.inf  # earlier than this is each time
    wheel.put(member, NOW_S + 2)
    assert taken(wheel, NOW_S + 2) == {member}


@pytest.mark.parametrize("pause_s", [1.0, HORIZON_S, 10 * HORIZON_S])
def test_nothing_is_lost_in_a_pause(pause_s: float) -> None:
    """The process, or the machine, was stopped for so long."""
    ats_s = [NOW_S + 0.1 * number for number in range(200)]
    wheel, members = wheel_with(*ats_s)
    due = {member for member in members if member.due_s <= NOW_S + pause_s}
    assert taken(wheel, NOW_S + pause_s) == due
    assert taken(wheel, NOW_S + pause_s + HORIZON_S) == set(members) - due


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_calls_takes_each_at_its_time(seed: int) -> None:
    """Beside a dictionary of times, in which all are looked at."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    wheel, now_s = TimingWheel[Timed](NOW_S), NOW_S
    due: dict[Timed, float] = {}
    for _ in range(3_000):
        now_s += chance.choice([0.0, 0.05, TICK_S, 1.0])
        at_s = now_s + chance.choice([-1.0, 0.0, 0.3, 5.0, 60.0])
        tick = min(math.ceil(at_s / TICK_S), int(now_s / TICK_S) + TICKS)
        due_s = max(tick, int(now_s / TICK_S) + 1) * TICK_S
        match chance.randrange(4):
            case 0:
                wheel.turn(now_s)
                member = Timed()
                wheel.add(member, at_s)
                due[member] = due_s
            case 1 if due:
                assert taken(wheel, now_s) == {one for one, at in due.items() if at <= now_s}
                due = {one: at for one, at in due.items() if at > now_s}
            case 2 if due:
                wheel.turn(now_s)
                member = chance.choice(list(due))
                wheel.put(member, at_s)
                due[member] = due_s
            case 3 if due:
                member = chance.choice(list(due))
                wheel.remove(member)
                del due[member]
    assert {one: one.due_s for one in due} == due
