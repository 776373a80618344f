# SPDX-License-Identifier: Apache-2.0
"""What is due when. Pure.

Each item has one time, the latest that it was given. What is remembered is at most twice the number of items,
and a few more.
"""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

# Void entries are looked for when there are more of them than of items, by this number: it takes 16 ms for
# 6 000 entries, and where none is void it is not done.
_FEW_ENTRIES = 64

MAX_AT_ONCE = 200
"""So many are taken at once: all may be due after a long stop."""


class DueTimes(Generic[T]):
    """Times in seconds of one clock, which the caller has. Items have an order."""

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[T, float] = {}
        self._heap: list[tuple[float, T]] = []

    def __len__(self) -> int:
        """How many entries are remembered, void ones too."""
        return len(self._heap)

    @property
    def first_s(self) -> float | None:
        """When to take what is due next: at the latest then. None if nothing will be."""
        return self._heap[0][0] if self._heap else None

    def set(self, item: T, due_s: float) -> bool:
        """Have the item due then, and not before; returns whether nothing is due before it."""
        self._due[item] = due_s
        if len(self._heap) >= 2 * len(self._due) + _FEW_ENTRIES:
            self._heap = [entry for entry in self._heap if self._is_latest(entry)]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (due_s, item))
        return self._heap[0][0] == due_s

    def forget(self, item: T) -> None:
        """Have it never due."""
        self._due.pop(item, None)

    def is_due(self, item: T, now_s: float) -> bool:
        """Whether its time has come, also after it was taken."""
        due_s = self._due.get(item)
        return due_s is not None and due_s <= now_s

    def take(self, now_s: float) -> list[T]:
        """Some of what is due now and was not taken since it was set; `first_s` is past if there is more."""
        found = []
        for _ in range(MAX_AT_ONCE):
            if not self._heap or self._heap[0][0] > now_s:
                break
            entry = heapq.heappop(self._heap)
            if self._is_latest(entry):
                found.append(entry[1])
        return found

    def _is_latest(self, entry: tuple[float, T]) -> bool:
        due_s, item = entry
        return self._due.get(item) == due_s
