# SPDX-License-Identifier: Apache-2.0
"""Which VirtualClusters are at work in their tenants, and which wait for that.

A tenant's API server is as slow as the tenant likes, and one owner may have many tenants. So slots are given
in the order in which they were asked for, and VirtualClusters of one namespace have some of them at most.
"""

from collections.abc import Callable

from daemonkit.kube.resources import Key


class TenantSlots:
    """`wake` has a VirtualCluster planned that has got a slot since it asked."""

    def __init__(self, most: int, most_of_namespace: int, wake: Callable[[Key], None]) -> None:
        self._most = most
        self._most_of_namespace = most_of_namespace
        self._wake = wake
        self._taken: set[Key] = set()
        self._waiting: dict[Key, None] = {}

    def take(self, key: Key) -> bool:
        """Whether it has a slot from now on, until `give_back`. Else it waits: who asks again keeps its
        turn."""
        if key not in self._taken:
            self._waiting.setdefault(key)
            self._give(key)
        return key in self._taken

    def give_back(self, key: Key) -> None:
        """It needs no slot, and waits for none."""
        self._waiting.pop(key, None)
        if key in self._taken:
            self._taken.discard(key)
            self._give()

    def forget_all(self) -> None:
        """Another process works in tenants from now on."""
        self._taken.clear()
        self._waiting.clear()

    def _give(self, asking: Key | None = None) -> None:
        for key in list(self._waiting):
            if len(self._taken) >= self._most:
                return
            if sum(each[0] == key[0] for each in self._taken) < self._most_of_namespace:
                del self._waiting[key]
                self._taken.add(key)
                if key != asking:
                    self._wake(key)
