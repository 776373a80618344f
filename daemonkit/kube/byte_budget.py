# SPDX-License-Identifier: Apache-2.0
"""How many bytes of one API server's objects are held, by all of its reflectors together. Pure.

A tenant decides what its API server answers: lists without an end, and objects without number. What they take
is bounded for each server, so that one cannot use up the memory of all.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from daemonkit.kube.resources import KubeObject
from daemonkit.kube.shared_budget import MIN_SHARE_BYTES, SharedBudget
from daemonkit.kube.store import DecodeFailed, Store
from daemonkit.kube.watch import GarbageError, Put, Undecodable

T = TypeVar("T", bound=KubeObject)

# What an object takes beside its JSON: its entry in dictionaries, and its parsed metadata.
OBJECT_BYTES = 1 << 10
# Of a list each page counts as at least so much: one of empty pages must have an end, too.
_MIN_PAGE_BYTES = 64 << 10
# Once events of all reflectors have brought this part of the limit, what is held is compared with it.
_CHECK_AFTER = 16


class OverBudgetError(GarbageError):
    """The objects of a server take more than its budget."""


class ByteBudget(Generic[T]):
    """`limit_bytes` for one server; `size_of` gives the bytes of an object's JSON that are kept.

    `shared` is the budget of the process. For it counts also what is held elsewhere for this server, which
    `elsewhere` gives. `ended` is called when another server has a claim to what is held here, `refused` with
    the reason when there is no more for this one, by either limit.
    """

    def __init__(
        self,
        limit_bytes: int,
        size_of: Callable[[T], int],
        *,
        shared: SharedBudget | None = None,
        elsewhere: Callable[[], int] = lambda: 0,
        ended: Callable[[], None] = lambda: None,
        refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.limit_bytes = limit_bytes
        self._size_of = size_of
        self._shared = shared
        self._elsewhere = elsewhere
        self._ended = ended
        self._refused = refused
        self._parts: list[BudgetPart[T]] = []
        self._added_bytes = 0
        self._held_bytes = 0
        self.whole_list: BudgetPart[T] | None = None
        """The part whose list is under way without pages."""
        if shared is not None:
            shared.join(self)

    def close(self) -> None:
        """Leave the budget of the process."""
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.leave(self)

    @property
    def counted_bytes(self) -> int:
        """What is held here and elsewhere for this server, at most."""
        return self._held_bytes + self._elsewhere()

    @property
    def held_bytes(self) -> int:
        """What is held here, at most."""
        return self._held_bytes

    def end(self) -> None:
        """Have what is held here given back."""
        self._ended()

    @property
    def is_short(self) -> bool:
        """Whether little is left of the process' memory: what is received is to be read before more comes."""
        return self._shared is not None and self._shared.is_short

    def note_waiting(self, size_bytes: int) -> None:
        """Count bytes that connections have received and that are still unread; below 0 they were read."""
        self.held_changed(size_bytes)

    def note_received(self, size_bytes: int) -> None:
        """Note what an answer under way holds; less than nothing once it was read or given up.

        Raises OverBudgetError if that is too much.
        """
        self.held_changed(size_bytes)
        if size_bytes > 0:
            self.ask()

    def held_changed(self, more_bytes: int) -> None:
        """So much more is held, or less."""
        self._held_bytes += more_bytes
        if self._shared is not None:
            self._shared.held_changed(more_bytes)

    def ask(self, *, is_second_list: bool = False) -> None:
        """Ask the budget of the process whether what is held is too much. Raises OverBudgetError then.

        `is_second_list`: it is a list beside the objects that it replaces. These are given back: as a whole,
        since to remove single ones would tell their deletion.
        """
        if self._shared is None or not (refusal := self._shared.refusal(self)):
            return
        self._refused(refusal)
        if is_second_list:
            self._ended()
        raise OverBudgetError(refusal)

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
        return self._added_bytes > self.limit_bytes // _CHECK_AFTER

    def check(self, part: "BudgetPart[T]", added_bytes: int = 0) -> None:
        """Raises OverBudgetError if a part, with so much more and beside the others, takes too much."""
        if self._total_bytes(part) + added_bytes > self.limit_bytes:
            refusal = f"the objects of this API server take more than {self.limit_bytes >> 20} MiB"
            self._refused(refusal)
            raise OverBudgetError(refusal)
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
        self._listed_bytes: int | None = None
        self._page_bytes = 0
        self._counted_bytes = 0
        self._latest_bytes = 0  # of events that may still have to be applied
        self.pending_bytes = 0
        """What a watch holds of a line whose end has not come."""

    @property
    def _held_bytes(self) -> int:
        return self._store.held_bytes + self._latest_bytes

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

    def note_page(self, size_bytes: int) -> None:
        """Note what the answer takes whose items are being read, with what it is cut into. None: it is gone.

        Raises OverBudgetError if that is too much.
        """
        is_more, self._page_bytes = size_bytes > self._page_bytes, size_bytes
        self._note()
        if is_more:
            self._budget.ask(is_second_list=self._is_second)

    def note_listed(self, size_bytes: int) -> None:
        """Add items of a list. Raises OverBudgetError if that is too much."""
        self._listed_bytes = (self._listed_bytes or 0) + size_bytes
        self._note()
        self._budget.check(self)
        self._budget.ask(is_second_list=self._is_second)

    def end_page(self, size_bytes: int) -> None:
        """A page with so much in it was read: of pages of nothing there is a bound too."""
        self.note_page(0)
        self.note_listed(max(0, _MIN_PAGE_BYTES - size_bytes))

    @property
    def _is_second(self) -> bool:
        """Whether a list under way stands beside objects that it may replace."""
        return self._held_bytes > MIN_SHARE_BYTES

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
        self._page_bytes = self._latest_bytes = 0
        if self._budget.whole_list is self:
            self._budget.whole_list = None
        self._note()

    def note_events(self, size_bytes: int) -> None:
        """Add what events brought, before they are applied. Raises OverBudgetError if that is too much."""
        self._latest_bytes = 0
        if self._budget.note_added(size_bytes):
            self._budget.check(self, size_bytes)
        self._latest_bytes = size_bytes
        self._note()
        self._budget.ask()

    def end_events(self) -> None:
        """What events brought has been applied."""
        self._latest_bytes = 0
        self._note()

    def note_compressed(self) -> None:
        """Something of what is held takes less than it did."""
        self._note()

    def note_pending(self, size_bytes: int) -> None:
        """Note what a watch holds of a line. Raises OverBudgetError if that is too much."""
        more_bytes, self.pending_bytes = size_bytes - self.pending_bytes, size_bytes
        if more_bytes:  # most pieces end with a line
            self._note()
        if more_bytes <= 0:
            return
        if self._budget.note_added(more_bytes):
            self._budget.check(self)
        self._budget.ask()

    def end_watch(self) -> None:
        """A watch ended, and what it held of a line is gone."""
        self.pending_bytes = self._latest_bytes = 0
        self._note()

    def _note(self) -> None:
        """Have the budget know what is held: a list and what it replaces are both there."""
        now = self._held_bytes + (self._listed_bytes or 0) + self._page_bytes + self.pending_bytes
        self._budget.held_changed(now - self._counted_bytes)
        self._counted_bytes = now
