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
from dataclasses import dataclass
from typing import NamedTuple

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


@dataclass(frozen=True, slots=True)
class Removal:
    """The unconfirmed removal of one object.

    `contents` counts, by kind, the super objects that the deletion of a Namespace takes along.
    """

    key: ObjectKey
    contents: tuple[tuple[str, int], ...] = ()


class HoldReason(enum.StrEnum):
    FIRST_PATROL = "FirstPatrol"
    TENANT_EMPTY = "TenantEmpty"
    TOO_MANY_REMOVALS = "TooManyRemovals"


class KindCount(NamedTuple):
    """How many super objects of a kind the tenant lacks, of how many."""

    kind: str
    missing: int
    known: int


@dataclass(frozen=True, slots=True)
class Hold:
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


@dataclass(frozen=True, slots=True)
class Allow:
    """What `may_delete` answers for the removals that are proposed now: yes."""

    was_released: bool = False


@dataclass(slots=True)
class _Window:
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
        self._allowed: set[ObjectKey] = set()
        self._released: set[ObjectKey] = set()
        self._window: _Window | None = None
        self._restored_token = restored_token
        self.hold: Hold | None = None

    def propose(self, removed: Iterable[Removal]) -> None:
        """A relist or a patrol lacks these objects, and no event reported their deletion."""
        for removal in removed:
            self._proposed[removal.key] = removal

    def withdraw(self, key: ObjectKey) -> None:
        """The object is there again, its deletion was confirmed, or its super object is gone."""
        self._proposed.pop(key, None)
        self._allowed.discard(key)
        self._released.discard(key)

    def may_delete(self, key: ObjectKey) -> bool:
        """Whether the unconfirmed removal of this object may be carried out now."""
        return key in self._allowed

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
    ) -> Allow | Hold:
        """Judge all proposed removals.

        `known` counts the tenant's super objects by kind, those of the proposed removals among them.
        `new_token` names a hold that begins now: no two holds may have one token. `release` is the value of
        the VirtualCluster's annotation `keys.RELEASE_HELD`.
        """
        window = self._opened(known, now_s)
        found = self._judge(window, known, now_s, new_token)
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

    def _judge(self, window: _Window, known: Mapping[str, int], now_s: float, new_token: str) -> Hold | None:
        counts = self._counts(window, known)
        missing, total = sum(each.missing for each in counts), sum(each.known for each in counts)
        if 0 < missing == total:
            reason = HoldReason.TENANT_EMPTY
        elif _is_too_many(missing, total) or any(_is_too_many(each.missing, each.known) for each in counts):
            reason = HoldReason.TOO_MANY_REMOVALS
        else:
            return None
        if not self._unreleased():
            return None  # all that remains was released
        before = self.hold
        token = before.token if before is not None else self._restored_token or new_token
        since_s = before.since_s if before is not None else now_s
        return Hold(reason, missing, total, tuple(each for each in counts if each.missing), token, since_s)

    def _held_by_start(self, window: _Window, known: Mapping[str, int]) -> Allow | Hold:
        counts = self._counts(window, known)
        missing, total = sum(each.missing for each in counts), sum(each.known for each in counts)
        if not missing:
            return Allow()
        return Hold(HoldReason.FIRST_PATROL, missing, total, tuple(each for each in counts if each.missing))

    def _release(self, known: Mapping[str, int], now_s: float) -> None:
        self._released = set(self._proposed)
        self._allowed = set(self._proposed)
        self.hold = None
        self._restored_token = ""
        gone = _missing(self._proposed.values())
        left = {kind: max(0, count - gone[kind]) for kind, count in known.items()}
        self._window = _Window(now_s, left, Counter())

    def _unreleased(self) -> list[Removal]:
        return [each for key, each in self._proposed.items() if key not in self._released]

    def _counts(self, window: _Window, known: Mapping[str, int]) -> list[KindCount]:
        """What was deleted in this window and what is to be, of what there was; by kind, in order."""
        pending = _missing(self._unreleased())
        released = _missing(each for key, each in self._proposed.items() if key in self._released)
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


def _missing(removed: Iterable[Removal]) -> Counter[str]:
    """How many objects of each kind go: none twice that is removed by itself and with its Namespace."""
    own: dict[str, Counter[str]] = {}
    found: Counter[str] = Counter()
    contents: dict[str, Counter[str]] = {}
    for removal in removed:
        kind, namespace, name = removal.key
        if kind == NAMESPACE:
            found[kind] += 1
            contents[name] = Counter(dict(removal.contents))
        else:
            own.setdefault(namespace, Counter())[kind] += 1
    for namespace in own.keys() | contents.keys():
        found.update(own.get(namespace, Counter()) | contents.get(namespace, Counter()))
    return found
