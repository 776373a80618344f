# SPDX-License-Identifier: Apache-2.0
"""What is due when. Pure.

Each item has one time, the latest that it was given. What is remembered is at most twice the number of items,
and a few more.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from syncer.core.pruned_heap import PrunedHeap

T = TypeVar("T", bound=Hashable)

MAX_AT_ONCE = 200
"""So many are taken at once: all may be due after a long stop."""


class DueTimes(Generic[T]):
    """Times in seconds of one clock, which the caller has. Items have an order."""

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[T, float] = {}
        self._heap: PrunedHeap[tuple[float, T]] = PrunedHeap(lambda entry: not self._is_latest(entry))

    def __len__(self) -> int:
        """How many entries are remembered, void ones too."""
        return len(self._heap)

    @property
    def first_s(self) -> float | None:
        """When to take what is due next: at the latest then. None if nothing will be."""
        first = self._heap.first()
        return None if first is None else first[0]

    def set(self, item: T, due_s: float) -> bool:
        """Have the item due then, and not before; returns whether nothing is due before it."""
        self._due[item] = due_s
        self._heap.push((due_s, item), len(self._due))
        return self.first_s == due_s

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
            entry = self._heap.first()
            if entry is None or entry[0] > now_s:
                break
            self._heap.pop()
            if self._is_latest(entry):
                found.append(entry[1])
        self._heap.prune(len(self._due))
        return found

    def _is_latest(self, entry: tuple[float, T]) -> bool:
        due_s, item = entry
        return self._due.get(item) == due_s
