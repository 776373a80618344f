# SPDX-License-Identifier: Apache-2.0
"""Which tenants have one of so many places, and which wait for one: to get other pods, or to start.

Places of tenants that get other pods are annotations of root namespaces, which a watch shows. A place that a
plan has just taken counts before that, as several are planned at once; those to start are never written.
"""

from collections.abc import Callable, Collection, Iterator

from daemonkit.kube.resources import Key
from tenant_operator.life.requests import time_of


class BoundedTenants(Collection[str]):
    """The UIDs of those with a place. `wake` has a VirtualCluster planned again."""

    def __init__(self, most: int, wake: Callable[[Key], None]) -> None:
        self._most = most
        self._wake = wake
        self._shown: dict[str, str] = {}
        self._taken: set[str] = set()
        self._waiting: dict[Key, None] = {}

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
        return dict(self._shown)

    def longest_s(self, now_s: float) -> float:
        """How long the oldest place has been taken."""
        begun = [time_of(each) or now_s for each in self._shown.values()]
        return max(now_s - min(begun, default=now_s), 0.0)

    def note(self, uid: str, since: str) -> None:
        """A watch shows that it has a place since then, or has none."""
        if since:
            self._shown[uid] = since
            self._taken.discard(uid)
        elif self._shown.pop(uid, None) is not None:
            self.offer()

    def take(self, uid: str) -> None:
        """A plan has taken a place, which is not written yet."""
        self._taken.add(uid)

    def fail(self, uid: str) -> None:
        """The place was not written: it is taken anew by a later plan."""
        if uid in self._taken:
            self._taken.discard(uid)
            self.offer()

    def forget(self, uid: str) -> None:
        """The VirtualCluster is gone."""
        self.fail(uid)
        self.note(uid, "")

    def wait(self, key: Key, *, is_waiting: bool) -> None:
        """Have it planned again when a place is free, if it waits for one; who waits longer comes first."""
        if is_waiting:
            self._waiting.setdefault(key)
        else:
            self._waiting.pop(key, None)

    def offer(self) -> None:
        """Have as many planned again as there are places."""
        for key in list(self._waiting)[: max(self._most - len(self), 0)]:
            del self._waiting[key]
            self._wake(key)

    def forget_all(self) -> None:
        """Another process takes places from now on."""
        self._taken.clear()
        self._waiting.clear()
