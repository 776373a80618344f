# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is: weighted round robin between those that have something ready. Pure.

Stride scheduling (Waldspurger, Weihl 1995): each turn moves a member's place by its stride, which is the
inverse of its weight. The lowest place is next. This spreads turns evenly: beside a member of weight 100,
one of weight 50 waits for two turns at a time. In LVS' interleaved round robin it waits for 50 in a row.

A turn costs O(log members that wait), whatever the number of those that are paused or have left.
"""

import heapq
import math
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

MAX_WEIGHT = 100

# Divisible by each weight: places are whole numbers, and shares are exact over a full rotation.
_ROTATION = math.lcm(*range(1, MAX_WEIGHT + 1))


class WeightedRoundRobin(Generic[T]):
    """Members take turns: `first` names the next one, `take_turn` ends its turn.

    A member has a weight, 1 unless it was set. It waits for turns, or it is paused and keeps its place.
    """

    __slots__ = ("_count", "_entries", "_paused", "_place", "_strides", "_waiting")

    def __init__(self) -> None:
        self._strides: dict[T, int] = {}
        self._paused: dict[T, int] = {}  # their places
        self._waiting: set[T] = set()
        # A heap of places. Equal ones are served in the order of their entry.
        self._entries: list[tuple[int, int, T]] = []
        self._place = 0  # of the last turn
        self._count = 0

    def __len__(self) -> int:
        """How many members wait for a turn."""
        return len(self._entries)

    def set_weight(self, member: T, weight: int) -> None:
        """Counts from the end of its next turn. Weights below 1 are 1, those above MAX_WEIGHT are that."""
        stride = _ROTATION // min(max(weight, 1), MAX_WEIGHT)
        if stride == _ROTATION:
            self._strides.pop(member, None)
        else:
            self._strides[member] = stride

    def add(self, member: T) -> None:
        """Let a member wait for turns; nothing happens if it does already.

        A new member waits for its first turn as long as for any other. If it began in front, one that comes
        and leaves for each item would always be first. A paused member has its old place, or that of the
        last turn if this is later: it is next, but time away earns no further turns.
        """
        if member in self._waiting:
            return
        place = self._paused.pop(member, None)
        if place is None:
            place = self._place + self._strides.get(member, _ROTATION)
        elif place < self._place:
            place = self._place
        self._waiting.add(member)
        self._count += 1
        heapq.heappush(self._entries, (place, self._count, member))

    def first(self) -> T | None:
        """The member whose turn it is; None if none waits."""
        return self._entries[0][2] if self._entries else None

    def take_turn(self, stays: bool = True) -> None:
        """End the turn of the first member. Unless it stays, it is paused until it is added again."""
        self._place, _, member = self._entries[0]
        place = self._place + self._strides.get(member, _ROTATION)
        if stays:
            self._count += 1
            heapq.heapreplace(self._entries, (place, self._count, member))
        else:
            heapq.heappop(self._entries)
            self._waiting.remove(member)
            self._paused[member] = place

    def forget_place(self, member: T) -> None:
        """A paused member is as a new one when it is added again. Its weight stays."""
        self._paused.pop(member, None)

    def remove(self, member: T) -> None:
        """Forget a member, with its weight; nothing happens if it is none."""
        self._strides.pop(member, None)
        self._paused.pop(member, None)
        if member in self._waiting:
            self._waiting.remove(member)
            self._entries = [entry for entry in self._entries if entry[2] != member]
            heapq.heapify(self._entries)
