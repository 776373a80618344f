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
# Of a list each page counts as at least so much: one of empty pages must have an end, too.
_MIN_PAGE_BYTES = 64 << 10
# Events add, and none subtracts. Once those of all reflectors have added this part of the limit, and all may
# take more than the limit, what is held is counted.
_COUNT_AFTER = 16


class OverBudgetError(GarbageError):
    """The objects of a server take more than its budget."""


class ByteBudget(Generic[T]):
    """`limit_bytes` for one server; `size_of` gives the bytes of an object's JSON that are kept."""

    def __init__(self, limit_bytes: int, size_of: Callable[[T], int]) -> None:
        self.limit_bytes = limit_bytes
        self._size_of = size_of
        self._parts: list[BudgetPart[T]] = []
        self._added_bytes = 0
        self.whole_list: BudgetPart[T] | None = None
        """The part whose list is under way without pages."""

    def part(self, store: Store[T]) -> "BudgetPart[T]":
        """The part of one more reflector, with what it holds."""
        added = BudgetPart(self, store)
        self._parts.append(added)
        return added

    def size_of(self, item: T | DecodeFailed | Undecodable) -> int:
        """The bytes of an object; of one that was not decoded only name and reason are kept."""
        if isinstance(item, DecodeFailed):
            return OBJECT_BYTES + len(item.reason) + len(item.uid) + sum(map(len, item.key))
        if isinstance(item, Undecodable):
            metadata = item.metadata
            texts = item.reason, metadata.uid, metadata.namespace, metadata.name
            return OBJECT_BYTES + sum(map(len, texts))
        return OBJECT_BYTES + self._size_of(item)

    def note_added(self, size_bytes: int) -> bool:
        """Add what events brought to a part; returns whether that is so much that it is to be checked."""
        self._added_bytes += size_bytes
        return self._added_bytes > self.limit_bytes // _COUNT_AFTER

    def check(self, part: "BudgetPart[T]", added_bytes: int = 0) -> None:
        """Raises OverBudgetError if a part, with so much more and beside the others, takes too much."""
        if self._total_bytes(part) + added_bytes <= self.limit_bytes:
            return
        for each in self._parts:
            each.count()
        if self._total_bytes(part) + added_bytes > self.limit_bytes:
            raise OverBudgetError(
                f"the objects of this API server take more than {self.limit_bytes >> 20} MiB"
            )
        # Not when it was too much: else others would bring a little more after each refusal.
        self._added_bytes = 0

    def _total_bytes(self, part: "BudgetPart[T]") -> int:
        others = sum(each.reserved_bytes for each in self._parts if each is not part)
        return part.next_bytes + others + sum(each.pending_bytes for each in self._parts)


class BudgetPart(Generic[T]):
    """What one reflector holds, at most, and what a list under way has brought."""

    def __init__(self, budget: ByteBudget[T], store: Store[T]) -> None:
        self._budget = budget
        self._store = store
        self._held_bytes = 0
        self._listed_bytes: int | None = None
        self.pending_bytes = 0
        """What a watch holds of a line whose end has not come."""

    @property
    def next_bytes(self) -> int:
        """What it holds once a list under way is taken over: one that is smaller must not be refused."""
        return self._held_bytes if self._listed_bytes is None else self._listed_bytes

    @property
    def reserved_bytes(self) -> int:
        """The larger of a list under way and what it replaces: both do not fit for half of the limit."""
        return max(self._held_bytes, self._listed_bytes or 0)

    def size_of(self, item: Put[T] | Undecodable) -> int:
        """The bytes that an item of a list would take."""
        return self._budget.size_of(item.value if isinstance(item, Put) else item)

    def note_listed(self, size_bytes: int) -> None:
        """Add a page of a list. Raises OverBudgetError if that is too much."""
        self._listed_bytes = (self._listed_bytes or 0) + max(size_bytes, _MIN_PAGE_BYTES)
        self._budget.check(self)

    def begin_whole_list(self) -> None:
        """Begin a list without pages, whose answer may be of any size until it was read.

        Raises OverBudgetError while another one of the server is under way.
        """
        if self._budget.whole_list not in (None, self):
            raise OverBudgetError("another list of this API server is under way as a whole")
        self._budget.whole_list = self

    def end_list(self) -> None:
        """A list was taken over, or given up."""
        self._listed_bytes = None
        if self._budget.whole_list is self:
            self._budget.whole_list = None
        self.count()

    def note_events(self, size_bytes: int) -> None:
        """Add what events brought, before they are applied. Raises OverBudgetError if that is too much."""
        if self._budget.note_added(size_bytes):
            self._budget.check(self, size_bytes)
        self._held_bytes += size_bytes

    def note_pending(self, size_bytes: int) -> None:
        """Note what a watch holds of a line. Raises OverBudgetError if that is too much."""
        more_bytes, self.pending_bytes = size_bytes - self.pending_bytes, size_bytes
        if more_bytes > 0 and self._budget.note_added(more_bytes):
            self._budget.check(self)

    def end_watch(self) -> None:
        """A watch ended, and what it held of a line is gone."""
        self.pending_bytes = 0

    def count(self) -> None:
        """Count what is held."""
        size_of = self._budget.size_of
        self._held_bytes = sum(map(size_of, self._store.objects.values()))
        self._held_bytes += sum(map(size_of, self._store.decode_failures.values()))
