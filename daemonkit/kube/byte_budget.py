# SPDX-License-Identifier: Apache-2.0
"""How many bytes of one API server's objects are held, by all of its reflectors together. Pure.

A tenant decides what its API server answers: lists without an end, and objects without number. What they take
is bounded for each server, so that one cannot use up the memory of all.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from daemonkit.kube.resources import KubeObject
from daemonkit.kube.store import DecodeFailed, Store
from daemonkit.kube.watch import GarbageError, Put, Undecodable

T = TypeVar("T", bound=KubeObject)

# What an object takes beside its JSON: its entry in dictionaries, and its parsed metadata.
OBJECT_BYTES = 1 << 10
# Events add, and none subtracts. What is held is counted once they have added this part of the limit.
_COUNT_AFTER = 16


class OverBudgetError(GarbageError):
    """The objects of a server take more than its budget."""


class ByteBudget(Generic[T]):
    """`limit_bytes` for one server; `size_of` gives the bytes of an object's JSON that are kept."""

    def __init__(self, limit_bytes: int, size_of: Callable[[T], int]) -> None:
        self.limit_bytes = limit_bytes
        self._size_of = size_of
        self._parts: list[BudgetPart[T]] = []

    def part(self, store: Store[T]) -> "BudgetPart[T]":
        """The part of one more reflector, with what it holds."""
        added = BudgetPart(self, store)
        self._parts.append(added)
        return added

    def size_of(self, item: T | DecodeFailed | Undecodable) -> int:
        """The bytes of an object; of one that was not decoded only name and reason are kept."""
        if isinstance(item, DecodeFailed):
            return OBJECT_BYTES + len(item.reason) + sum(map(len, item.key))
        if isinstance(item, Undecodable):
            return OBJECT_BYTES + len(item.reason) + len(item.metadata.namespace) + len(item.metadata.name)
        return OBJECT_BYTES + self._size_of(item)

    def check(self, part: "BudgetPart[T]", held_bytes: int) -> None:
        """Raises OverBudgetError if this much, beside what the other reflectors hold, is too much."""
        others = [each for each in self._parts if each is not part]
        if held_bytes + sum(each.held_bytes for each in others) <= self.limit_bytes:
            return
        for each in others:
            each.count()
        if held_bytes + sum(each.held_bytes for each in others) > self.limit_bytes:
            raise OverBudgetError(
                f"the objects of this API server take more than {self.limit_bytes >> 20} MiB"
            )


class BudgetPart(Generic[T]):
    """What one reflector holds, at most."""

    def __init__(self, budget: ByteBudget[T], store: Store[T]) -> None:
        self._budget = budget
        self._store = store
        self._counted_bytes = 0
        self.held_bytes = 0

    def size_of(self, item: Put[T] | Undecodable) -> int:
        """The bytes that an item of a list would take."""
        return self._budget.size_of(item.value if isinstance(item, Put) else item)

    def check_listed(self, listed_bytes: int) -> None:
        """Raises OverBudgetError if so much of a list is too much."""
        self._budget.check(self, listed_bytes)

    def note_events(self, size_bytes: int) -> None:
        """Add what events brought, before they are applied. Raises OverBudgetError if that is too much."""
        self.held_bytes += size_bytes
        if self.held_bytes - self._counted_bytes > self._budget.limit_bytes // _COUNT_AFTER:
            self.count()
            self._budget.check(self, self.held_bytes + size_bytes)

    def count(self) -> None:
        """Count what is held."""
        size_of = self._budget.size_of
        self.held_bytes = sum(map(size_of, self._store.objects.values()))
        self.held_bytes += sum(map(size_of, self._store.decode_failures.values()))
        self._counted_bytes = self.held_bytes
