# SPDX-License-Identifier: Apache-2.0
"""Which deletions of a tenant's super objects wait for a person. Pure: the time comes in.

A watch event reports that the tenant deleted an object. A relist or a patrol only lacks it. So does a tenant
that was restored from an old backup, or that started empty. The super cluster then holds the last copy that
runs. So:

- A removal is *confirmed* if a watch of this process saw the DELETED event. It is never held: `kubectl
  delete namespace`, a scale to zero and the tenant's garbage collector all show as events. Whatever reason
  they had, the tenant's objects are gone.
- Any other removal is *unconfirmed*. So is the replacement of an object whose UID changed without an event:
  a wiped tenant makes its default objects anew. Few of them are what a watch missed. Many are *held*: none of
  the tenant's unconfirmed removals is carried out, of whatever kind.
- The first patrol after a start deletes nothing: caches and watches are new. The next one may.

- A tenant that goes back to a backup lacks what was made since, however little: vc-operator names that in its
  VirtualCluster (`keys.HOLD_DELETIONS`), and all unconfirmed removals are held until its token is released.

What is many is the rule of `tenancy.removals.is_distrusted`: more than half. It is asked of each kind, which
has a list of its own, and of all kinds together. `MINIMUM` keeps it from small numbers. A tenant that
lacks every object is always held: a live control plane has at least its own namespaces.

A hold ends when so many objects are back that the rest is plausible, or when a person releases it by its
token. It survives relists. It survives a restart too: what is missing then is judged again, under the token
that the VirtualCluster's condition still has.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from daemonkit.fairness.emptying import Holder
from tenancy import keys, removals

MINIMUM = 5
"""Fewer unconfirmed removals are carried out: a watch misses as many when one Deployment is deleted."""

WINDOW_S = 3600.0
"""Unconfirmed removals within it are judged together, so that many small losses are one large loss.

The relists of all kinds follow a restored backup within minutes, with their backoff.
"""

NAMESPACE = "Namespace"


class ObjectKey(NamedTuple):
    """An object of the tenant: of kind Namespace, `namespace` is empty."""

    kind: str
    namespace: str
    name: str


class Removal(msgspec.Struct, frozen=True):
    """The unconfirmed removal of one object.

    `contents` counts, by kind, the super objects that the deletion of a Namespace takes along.
    """

    key: ObjectKey
    contents: tuple[tuple[str, int], ...] = ()


class HoldReason(enum.StrEnum):
    FIRST_PATROL = "FirstPatrol"
    TENANT_EMPTY = "TenantEmpty"
    TOO_MANY_REMOVALS = "TooManyRemovals"
    TENANT_RESTORED = "TenantRestored"


class KindCount(NamedTuple):
    """How many super objects of a kind the tenant lacks, of how many."""

    kind: str
    missing: int
    known: int


class Hold(msgspec.Struct, frozen=True):
    """No unconfirmed removal is carried out. Without a `token` the next patrol decides again."""

    reason: HoldReason
    missing: int
    known: int
    counts: tuple[KindCount, ...]
    token: str = ""
    since_s: float = 0.0

    @property
    def message(self) -> str:
        """For the VirtualCluster's condition."""
        kinds = ", ".join(f"{each.kind} {each.missing} of {each.known}" for each in self.counts)
        found = f"the tenant lacks {self.missing} of {self.known} objects without a deletion event ({kinds})"
        if self.reason is HoldReason.FIRST_PATROL:
            return f"{found}; the first patrol after a start deletes nothing"
        return f"{found}; they stay in the super cluster. To delete them: {keys.RELEASE_HELD}={self.token}"


class Allow(msgspec.Struct, frozen=True):
    """What `may_delete` answers for the removals that are proposed now: yes."""

    was_released: bool = False


class _Window(msgspec.Struct):
    """Since when removals are judged together, and how many objects of each kind there were.

    Objects that come later do not make the loss of old ones plausible.
    """

    since_s: float
    baseline: Mapping[str, int]
    spent: Counter[str]


class DeletionGuard:
    """One tenant's unconfirmed removals. Times are of one monotonic clock.

    Propose all that a relist or a patrol lacks, then `evaluate` once. Ask `may_delete` before each deletion,
    and report it with `note_deleted`.
    """

    def __init__(self, restored_token: str = "") -> None:
        """`restored_token` is that of the hold which the VirtualCluster's condition has, if any."""
        self._proposed: dict[ObjectKey, Removal] = {}
        # What of it was released, and what was not.
        self._released_counts, self._unreleased_counts = RemovedCounts(), RemovedCounts()
        self._allowed: set[ObjectKey] = set()
        self._released: set[ObjectKey] = set()
        self._window: _Window | None = None
        self._restored_token = restored_token
        self.hold: Hold | None = None

    def take_all(self) -> tuple[Holder, ...]:
        """What holds all that is proposed, to be emptied in steps; nothing is any more."""
        held: tuple[Holder, ...] = self._proposed, self._allowed, self._released
        self._proposed, self._allowed, self._released = {}, set(), set()
        self._released_counts, self._unreleased_counts = RemovedCounts(), RemovedCounts()
        return held

    def propose(self, removed: Iterable[Removal]) -> None:
        """A relist or a patrol lacks these objects, and no event reported their deletion."""
        for removal in removed:
            counts = self._counts_of(removal.key)
            if (before := self._proposed.get(removal.key)) is not None:
                counts.remove(before)
            self._proposed[removal.key] = removal
            counts.add(removal)

    def _counts_of(self, key: ObjectKey) -> "RemovedCounts":
        return self._released_counts if key in self._released else self._unreleased_counts

    def withdraw(self, key: ObjectKey) -> None:
        """The object is there again, its deletion was confirmed, or its super object is gone."""
        if (removal := self._proposed.pop(key, None)) is not None:
            self._counts_of(key).remove(removal)
        self._allowed.discard(key)
        self._released.discard(key)

    def may_delete(self, key: ObjectKey) -> bool:
        """Whether the unconfirmed removal of this object may be carried out now."""
        return key in self._allowed

    @property
    def may_delete_any(self) -> bool:
        """Whether any unconfirmed removal may be carried out now."""
        return bool(self._allowed)

    def note_deleted(self, key: ObjectKey) -> None:
        """An allowed removal was carried out."""
        removal = self._proposed.get(key)
        if removal is not None and key not in self._released and self._window is not None:
            self._window.spent.update(_weight(removal))
        self.withdraw(key)

    def evaluate(
        self,
        known: Mapping[str, int],
        now_s: float,
        *,
        new_token: str,
        is_first_patrol: bool = False,
        release: str = "",
        restored: str = "",
    ) -> Allow | Hold:
        """Judge all proposed removals at once: how many they are was counted with each of them.

        `known` counts the tenant's super objects by kind, those of the proposed removals among them.
        `new_token` names a hold that begins now: no two holds may have one token. `release` is the value of
        the VirtualCluster's annotation `keys.RELEASE_HELD`, `restored` that of `keys.HOLD_DELETIONS`.
        """
        window = self._opened(known, now_s)
        # Released once, it holds nothing that is missing later.
        found = self._judge(window, known, now_s, new_token, "" if restored == release else restored)
        if isinstance(found, Hold) and found.token == release and not is_first_patrol:
            self._release(known, now_s)
            return Allow(was_released=True)
        if isinstance(found, Hold):
            self.hold = found
            # A release is of what was missing then. It goes on.
            self._allowed &= self._released
            return found
        self.hold = None
        if is_first_patrol:
            self._allowed.clear()
            return self._held_by_start(window, known)
        self._restored_token = ""
        self._allowed = set(self._proposed)
        return Allow()

    def _opened(self, known: Mapping[str, int], now_s: float) -> _Window:
        """The window that is open now. While removals are held it does not end."""
        window = self._window
        if window is None or (self.hold is None and now_s - window.since_s >= WINDOW_S):
            window = self._window = _Window(now_s, dict(known), Counter())
        return window

    def _judge(
        self, window: _Window, known: Mapping[str, int], now_s: float, new_token: str, restored: str
    ) -> Hold | None:
        counts = self._counts(window, known)
        missing, total = sum(each.missing for each in counts), sum(each.known for each in counts)
        if missing and restored:
            reason = HoldReason.TENANT_RESTORED
        elif 0 < missing == total:
            reason = HoldReason.TENANT_EMPTY
        elif _is_too_many(missing, total) or any(_is_too_many(each.missing, each.known) for each in counts):
            reason = HoldReason.TOO_MANY_REMOVALS
        else:
            return None
        if len(self._released) == len(self._proposed):
            return None  # all that remains was released
        before = self.hold
        token = restored or (before.token if before is not None else self._restored_token or new_token)
        since_s = before.since_s if before is not None else now_s
        return Hold(reason, missing, total, tuple(each for each in counts if each.missing), token, since_s)

    def _held_by_start(self, window: _Window, known: Mapping[str, int]) -> Allow | Hold:
        counts = self._counts(window, known)
        missing, total = sum(each.missing for each in counts), sum(each.known for each in counts)
        if not missing:
            return Allow()
        return Hold(HoldReason.FIRST_PATROL, missing, total, tuple(each for each in counts if each.missing))

    def _release(self, known: Mapping[str, int], now_s: float) -> None:
        # The fewer are added to the more: most often none was released before.
        many, added = self._unreleased_counts, self._released
        if 2 * len(added) > len(self._proposed):
            many, added = self._released_counts, self._proposed.keys() - added
        for key in added:
            many.add(self._proposed[key])
        self._released_counts, self._unreleased_counts = many, RemovedCounts()
        self._released = set(self._proposed)
        self._allowed = set(self._proposed)
        self.hold = None
        self._restored_token = ""
        left = {kind: max(0, count - many.counts[kind]) for kind, count in known.items()}
        self._window = _Window(now_s, left, Counter())

    def _counts(self, window: _Window, known: Mapping[str, int]) -> list[KindCount]:
        """What was deleted in this window and what is to be, of what there was; by kind, in order."""
        pending, released = self._unreleased_counts.counts, self._released_counts.counts
        counts = []
        for kind in sorted(window.baseline.keys() | pending.keys() | window.spent.keys()):
            missing = pending[kind] + window.spent[kind]
            there = known.get(kind, 0) - released[kind] + window.spent[kind]
            # What came since the window began does not count; what was deleted by events does.
            base = min(window.baseline.get(kind, 0), there)
            counts.append(KindCount(kind, missing, max(base, missing)))
        return counts


def _is_too_many(missing: int, known: int) -> bool:
    return missing >= MINIMUM and removals.is_distrusted(known, missing)


def _weight(removal: Removal) -> Counter[str]:
    found = Counter(dict(removal.contents))
    found[removal.key.kind] += 1
    return found


class RemovedCounts:
    """How many objects of each kind go with removals: none twice that is removed by itself and with its
    Namespace. Counted with each removal, so that asking takes as long for one as for ten thousand."""

    __slots__ = ("_contents", "_own", "counts")

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        # By namespace: removed by themselves, and with their Namespace.
        self._own: dict[str, Counter[str]] = {}
        self._contents: dict[str, Mapping[str, int]] = {}

    def add(self, removal: Removal) -> None:
        kind, namespace, name = removal.key
        if kind != NAMESPACE:
            self._change(namespace, kind, 1)
            return
        self.counts[kind] += 1
        contents = self._contents[name] = dict(removal.contents)
        self._change_contents(name, contents, 1)

    def remove(self, removal: Removal) -> None:
        """Take back what was added."""
        kind, namespace, name = removal.key
        if kind != NAMESPACE:
            self._change(namespace, kind, -1)
            return
        self.counts[kind] -= 1
        self._change_contents(name, self._contents.pop(name), -1)

    def _change(self, namespace: str, kind: str, count: int) -> None:
        own = self._own.setdefault(namespace, Counter())
        with_namespace = self._contents.get(namespace, {}).get(kind, 0)
        before = own[kind]
        after = own[kind] = before + count
        self.counts[kind] += max(after, with_namespace) - max(before, with_namespace)
        if not after:
            del own[kind]
            if not own:
                del self._own[namespace]

    def _change_contents(self, namespace: str, contents: Mapping[str, int], sign: int) -> None:
        own: Mapping[str, int] = self._own.get(namespace, {})
        for kind, count in contents.items():
            self.counts[kind] += sign * max(0, count - own.get(kind, 0))
