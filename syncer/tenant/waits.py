# SPDX-License-Identifier: Apache-2.0
"""What each of one tenant's objects looked at when it was planned, and who looked at what.

Whatever of it changes has the object planned again, whether it waits or both its sides agree: a plan holds no
longer than what it was made of. Memory is bounded by the number of a tenant's objects, whatever they name: an
object that looks at much is planned again at any change of that kind in that namespace.
"""

from collections import Counter
from collections.abc import Iterable

from daemonkit.fairness.emptying import Holder
from syncer.core.plan import Side
from syncer.tenant.deletions import SyncKey

Lookup = tuple[Side, str, str, str]
"""(side, kind, namespace, name) that a plan looked up; the name `*` is any of the namespace, and `*` of both
is any at all."""

ANY = "*"
# Of one kind in one namespace, for one object: some 300 bytes each.
MAX_NAMES = 64
# Of one object at all, which has reasons to look into its own namespace and a few more.
MAX_NAMESPACES = 64
# Of one change, at once: a step of a watch applies 32 changes, and each object that is woken takes 6 us. More
# are returned by `take_pending`, for steps of their own.
MAX_WOKEN = 32
# Of one tenant. Beyond it objects that are planned are planned again at changes of whole kinds in namespaces.
MAX_LOOKUPS = 200_000

_NOTHING: frozenset[Lookup] = frozenset()
_NONE_WOKEN: frozenset[SyncKey] = frozenset()


class Waits:
    """`note` what a plan looked at; `wake` returns who looked at what has changed, and if they are many,
    `take_pending` does."""

    __slots__ = ("_looked", "_most", "_most_woken", "_pending", "_total", "_waiters", "_woken")

    def __init__(self, *, most: int = MAX_LOOKUPS, most_woken: int = MAX_WOKEN) -> None:
        self._most = most
        self._most_woken = most_woken
        self._total = 0
        self._looked: dict[SyncKey, frozenset[Lookup]] = {}
        self._waiters: dict[Lookup, set[SyncKey]] = {}
        self._woken: set[SyncKey] = set()
        # Those of one lookup each that are woken, and that `take_pending` has not returned.
        self._pending: list[set[SyncKey]] = []

    def __len__(self) -> int:
        """How many objects look at something."""
        return len(self._looked)

    @property
    def lookups(self) -> int:
        """How much is looked at, by all of them."""
        return self._total

    def note(self, item: SyncKey, looked: Iterable[Lookup]) -> None:
        """An object was planned, with these; nothing that was noted before counts any more."""
        found = frozenset(looked)
        is_same = found == self._looked.get(item, _NOTHING)
        if is_same and not self._pending and item not in self._woken:
            return
        self._end_wake(item)
        before = self._looked.pop(item, _NOTHING)
        self._total -= len(before)
        found = _bounded(found, 0 if self._total + len(found) > self._most else MAX_NAMES)
        if self._pending:
            self._remove(item, before)
            before = _NOTHING  # of some of it the waiters are being woken
        else:
            # Most plans of an object look at what its last one did, and a little more.
            self._remove(item, before - found)
        if not found:
            return
        self._looked[item] = found
        self._total += len(found)
        waiters = self._waiters
        for each in found - before:
            waiting = waiters.get(each)
            if waiting is None:
                waiters[each] = {item}
            else:
                waiting.add(item)

    def wake(self, side: Side, item: SyncKey) -> frozenset[SyncKey]:
        """An object changed on this side. Returns who is to be planned again: `is_woken` until it is.

        Of a lookup that many share `take_pending` returns them.
        """
        kind, namespace, name = item
        found: set[SyncKey] = set()
        for lookup in (
            (side, kind, namespace, name),
            (side, kind, namespace, ANY),
            (side, kind, ANY, ANY),
        ):
            waiters = self._waiters.get(lookup)
            if waiters is None:
                continue
            if len(waiters) > self._most_woken:
                self._pending.append(self._waiters.pop(lookup))
            else:
                found |= waiters
        if not found:
            return _NONE_WOKEN
        for each in found:
            self.forget(each)
        self._woken |= found
        return frozenset(found)

    @property
    def has_pending(self) -> bool:
        """Whether `take_pending` has some to return."""
        return bool(self._pending)

    def take_pending(self, most: int) -> list[SyncKey]:
        """Some of those to be planned again that `wake` has not returned, at most so many."""
        found = list[SyncKey]()
        while self._pending and len(found) < most:
            if not self._pending[-1]:
                self._pending.pop()
                continue
            item = self._pending[-1].pop()
            self.forget(item)
            self._woken.add(item)
            found.append(item)
        return found

    def take_all(self) -> tuple[Holder, ...]:
        """What holds all of it, to be emptied in steps; nothing is noted any more."""
        held: tuple[Holder, ...] = self._looked, self._waiters, self._woken, *self._pending
        self._looked, self._waiters, self._woken, self._pending, self._total = {}, {}, set(), [], 0
        return held

    def is_woken(self, item: SyncKey) -> bool:
        """Whether something that its last plan looked at has changed since."""
        return item in self._woken or any(item in each for each in self._pending)

    def forget(self, item: SyncKey) -> None:
        """Nothing is known of the object any more."""
        self._end_wake(item)
        found = self._looked.pop(item, _NOTHING)
        self._total -= len(found)
        self._remove(item, found)

    def _end_wake(self, item: SyncKey) -> None:
        self._woken.discard(item)
        for pending in self._pending:
            pending.discard(item)

    def _remove(self, item: SyncKey, looked: Iterable[Lookup]) -> None:
        for each in looked:
            waiters = self._waiters.get(each)
            if waiters is None:
                continue  # they are being woken
            waiters.discard(item)
            if not waiters:
                del self._waiters[each]


def _bounded(looked: frozenset[Lookup], most: int) -> frozenset[Lookup]:
    """The same or more, with at most `most` names of each kind in a namespace, beside `*`.

    Of cluster-scoped kinds one name stays in any case: many objects share it, so it takes no more than `*`.
    """
    if len(looked) <= min(most, MAX_NAMESPACES):
        return looked
    names = Counter(each[:3] for each in looked)
    found = {
        each if names[each[:3]] <= (most if each[2] else max(most, 1)) else (*each[:3], ANY)
        for each in looked
    }
    namespaces = Counter(each[:2] for each in {each[:3] for each in found})
    return frozenset(
        each if namespaces[each[:2]] <= MAX_NAMESPACES else (*each[:2], ANY, ANY) for each in found
    )
