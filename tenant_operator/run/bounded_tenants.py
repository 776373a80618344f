# SPDX-License-Identifier: Apache-2.0
"""Which tenants have one of so many places, and which wait for one: to get other pods, or to start.

Places of tenants that get other pods are annotations of root namespaces, which a watch shows. A place that a
plan has just taken counts before that, as several are planned at once; those to start are never written.

A free place is kept for who waits longest, until that one is planned: who is planned more often than others,
as its own people can bring about, comes before no other.

After `longest_s` a place is free again. Of those that are not Ready by then, each namespace of
VirtualClusters keeps one place, and all together leave one: a change that is bad for tenants of several
owners goes on slowly, and the tenants of one owner hold it up as little as one of them.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterator

import msgspec

from daemonkit.kube.resources import Key
from tenant_operator.life.requests import time_of

# Of a free place: who does not plan by then, as a tenant that is slow to answer, comes behind the others.
KEPT_S = 30.0


class _Place(msgspec.Struct, frozen=True):
    """As its annotation has it; `namespace` is that of the VirtualCluster."""

    namespace: str
    since: str


class BoundedTenants(Collection[str]):
    """The UIDs of those with a place. `wake` has a VirtualCluster planned again, `clock` is in seconds since
    1970."""

    def __init__(
        self,
        most: int,
        wake: Callable[[Key], None],
        clock: Callable[[], float],
        longest_s: float = math.inf,
    ) -> None:
        self._most = most
        self._wake = wake
        self._clock = clock
        self._longest_s = longest_s
        self._shown: dict[str, _Place] = {}
        self._taken: set[str] = set()
        self._refused: set[str] = set()
        self._kept_for: dict[str, float] = {}
        self._waiting: dict[str, Key] = {}

    def __len__(self) -> int:
        return len(self._shown.keys() | self._taken)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shown.keys() | self._taken)

    def __contains__(self, uid: object) -> bool:
        return uid in self._shown or uid in self._taken

    @property
    def waiting(self) -> int:
        """How many VirtualClusters wait for a place."""
        return len(self._waiting)

    def shown(self) -> dict[str, str]:
        """Of each UID the time of its place."""
        return {uid: each.since for uid, each in self._shown.items()}

    def longest_s(self, now_s: float) -> float:
        """How long the oldest place has been taken."""
        begun = [time_of(each.since) or now_s for each in self._shown.values()]
        return max(now_s - min(begun, default=now_s), 0.0)

    def may_take(self, uid: str) -> bool:
        """Whether a plan that is made now may take a place, or go on with its own. One that was kept for it
        is free with this plan, if that does not take it."""
        self.offer()
        is_kept = self._kept_for.pop(uid, None) is not None
        return is_kept or self._holds(uid) or self._free > 0

    def note(self, key: Key, uid: str, since: str) -> None:
        """A watch shows that it has a place since then, or has none."""
        if since:
            self._shown[uid] = _Place(key[0], since)
            if not self._is_over(since):
                self._taken.discard(uid)
        elif self._shown.pop(uid, None) is not None:
            self.offer()

    def note_refused(self, uid: str, *, is_refused: bool) -> None:
        """Whether it makes no use of its place now: nothing can be planned for it."""
        if not is_refused:
            self._refused.discard(uid)
        elif uid not in self._refused:
            self._refused.add(uid)
            self.offer()

    def take(self, uid: str) -> None:
        """A plan has taken a place, which is not written yet."""
        self._taken.add(uid)

    def fail(self, uid: str) -> None:
        """The place was not written: it is taken anew by a later plan."""
        if uid in self._taken:
            self._taken.discard(uid)
            self.offer()

    def forget(self, key: Key, uid: str) -> None:
        """The VirtualCluster is gone."""
        self._waiting.pop(uid, None)
        self._refused.discard(uid)
        self._kept_for.pop(uid, None)
        self.fail(uid)
        self.note(key, uid, "")
        self.offer()

    def wait(self, key: Key, uid: str, *, is_waiting: bool) -> None:
        """Have it planned again when a place is free, if it waits for one; who waits longer comes first."""
        if is_waiting:
            self._waiting.setdefault(uid, key)
        else:
            self._waiting.pop(uid, None)

    def offer(self) -> None:
        """Keep each free place for who waits longest, and have that one planned again."""
        now = self._clock()
        self._kept_for = {uid: at for uid, at in self._kept_for.items() if 0.0 <= now - at < KEPT_S}
        if not self._waiting:
            return
        for uid in list(itertools.islice(self._waiting, self._free)):
            key = self._waiting.pop(uid)
            self._kept_for[uid] = now
            self._wake(key)

    def forget_all(self) -> None:
        """Another process takes places from now on."""
        self._taken.clear()
        self._refused.clear()
        self._kept_for.clear()
        self._waiting.clear()

    @property
    def _free(self) -> int:
        late = {each.namespace for uid, each in self._shown.items() if self._is_late(uid)}
        held = sum(map(self._holds, self)) + len(self._kept_for)
        return max(self._most - held - min(len(late), self._most - 1), 0)

    def _holds(self, uid: str) -> bool:
        return uid in self and uid not in self._refused and not self._is_late(uid)

    def _is_late(self, uid: str) -> bool:
        place = self._shown.get(uid)
        if place is None or uid in self._taken or uid in self._refused:
            return False
        return self._is_over(place.since)

    def _is_over(self, since: str) -> bool:
        return self._clock() - (time_of(since) or 0.0) >= self._longest_s
