# SPDX-License-Identifier: Apache-2.0
"""Which sockets are looked at next: a wheel of their times.

A wheel has a slot for each of its next ticks (Varghese, Lauck 1987). Whatever the number of its members, it
takes the same time to put one in, to remove one, and to take one whose time has come. No other one is looked
at. A heap would keep members that were moved or removed until their time.
"""

import math
from typing import Generic, TypeVar

TICK_S = 0.25
# How far ahead a member can be put.
TICKS = 64

_NEVER = -math.inf
_OUT = math.inf


class WheelMember:
    """What a wheel can hold once. It is taken at `due_s`: later than all times before it is in a wheel, and
    in the past once it was removed. So a caller that compares times needs no other flag."""

    __slots__ = ("due_s",)

    def __init__(self) -> None:
        self.due_s = _NEVER


M = TypeVar("M", bound=WheelMember)


class TimingWheel(Generic[M]):
    """Members by the times at which they are taken. `now_s` is of a clock that never goes back."""

    def __init__(self, now_s: float) -> None:
        self._slots: list[set[M]] = [set() for _ in range(TICKS)]
        # Members of a slot share the object of their time.
        self._times = [0.0] * TICKS
        self._tick = int(now_s / TICK_S)
        # Slots whose time has come.
        self._due: list[set[M]] = []

    def add(self, one: M, at_s: float) -> None:
        """Put in a member that is not in the wheel, or was removed from it."""
        one.due_s = _OUT
        self.put(one, at_s)

    def put(self, one: M, at_s: float) -> None:
        """Take it at `at_s`: in the first tick that is not earlier, in the next one at the earliest, and
        TICKS later at most. Nothing happens to one that was removed."""
        if one.due_s == _NEVER:
            return
        self._discard(one)
        now = self._tick
        ahead = math.ceil(at_s / TICK_S) - now
        tick = now + (1 if ahead < 1 else TICKS if ahead > TICKS else ahead)
        slot, due_s = tick % TICKS, tick * TICK_S
        if self._times[slot] != due_s:
            self._times[slot] = due_s
        one.due_s = self._times[slot]
        self._slots[slot].add(one)

    def remove(self, one: M) -> None:
        """Take it no more."""
        self._discard(one)
        one.due_s = _NEVER

    def turn(self, now_s: float) -> None:
        """Have `pop` take what is due now."""
        tick = int(now_s / TICK_S)
        for number in range(max(self._tick + 1, tick - TICKS + 1), tick + 1):
            slot = number % TICKS
            if self._slots[slot]:
                self._due.append(self._slots[slot])
                self._slots[slot] = set()
        self._tick = max(self._tick, tick)

    def pop(self) -> M | None:
        """Take one that is due, None if there is none."""
        while self._due:
            if self._due[-1]:
                one = self._due[-1].pop()
                one.due_s = _OUT
                return one
            self._due.pop()
        return None

    def _discard(self, one: M) -> None:
        due_s = one.due_s
        if due_s != _OUT and due_s != _NEVER:
            self._slots[int(due_s / TICK_S) % TICKS].discard(one)
            for due in self._due:
                due.discard(one)
