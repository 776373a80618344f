# SPDX-License-Identifier: Apache-2.0
"""A heap some of whose entries are void by now: those are dropped in pieces. Pure.

To look through all entries at once takes 16 ms for 6 000 of them. The last one of a heap can be taken away
without any other being moved: so a heap with many void entries is set aside, and what of it still counts goes
into another one, some with each operation.
"""

import heapq
from collections.abc import Callable
from typing import Any, Generic, TypeVar

E = TypeVar("E", bound=tuple[Any, ...])

AT_ONCE = 32
"""Entries that one operation looks at, and again as many: 1 us each."""
# Void entries are looked for when they are more than half, but not below this.
_FEW_ENTRIES = 64


class PrunedHeap(Generic[E]):
    """`is_void` says of an entry whether it counts no more: it stays so then."""

    __slots__ = ("_aside", "_entries", "_is_void")

    def __init__(self, is_void: Callable[[E], bool]) -> None:
        self._is_void = is_void
        self._entries: list[E] = []
        self._aside: list[E] = []

    def __len__(self) -> int:
        """How many entries are held, void ones too."""
        return len(self._entries) + len(self._aside)

    def push(self, entry: E, live_count: int) -> None:
        """Add an entry; `live_count` is how many count, with it."""
        heapq.heappush(self._entries, entry)
        self.prune(live_count)

    def prune(self, live_count: int) -> None:
        """Drop some of the entries that count no more, if they are many: all but so many."""
        if not self._aside and len(self._entries) > 2 * live_count + _FEW_ENTRIES:
            self._entries, self._aside = self._aside, self._entries
        aside = self._aside
        for _ in range(min(len(aside), AT_ONCE)):
            entry = aside.pop()
            if not self._is_void(entry):
                heapq.heappush(self._entries, entry)

    def first(self) -> E | None:
        """The first entry. It may be void, where many of the first ones are."""
        found = self._first_heap()
        for _ in range(AT_ONCE):
            if not found or not self._is_void(found[0]):
                break
            heapq.heappop(found)
            found = self._first_heap()
        return found[0] if found else None

    def pop(self) -> E:
        """Take away the first entry, which must be there."""
        return heapq.heappop(self._first_heap())

    def take_all(self) -> tuple[list[E], list[E]]:
        """All entries, in no order; none is left."""
        found = self._entries, self._aside
        self._entries, self._aside = [], []
        return found

    def _first_heap(self) -> list[E]:
        entries, aside = self._entries, self._aside
        return aside if aside and (not entries or aside[0] < entries[0]) else entries
