# SPDX-License-Identifier: Apache-2.0
"""The addresses that the pods of each super namespace hold. Two pods in their node's network share one."""

from collections import Counter
from collections.abc import Collection

from daemonkit.kube.store import Added, Deleted, Modified
from syncer.caches.cached_object import CachedObject


class PodAddresses:
    """Kept with each change of a pod."""

    def __init__(self) -> None:
        self._of: dict[str, Counter[str]] = {}
        # Nearly always it is one.
        self._holders: dict[str, tuple[str, ...]] = {}

    def of(self, super_namespace: str) -> Collection[str]:
        """Those of one super namespace. Read only: they are shared."""
        return self._of.get(super_namespace, {}).keys()

    def holders(self, address: str) -> tuple[str, ...]:
        """The super namespaces whose pods have an address."""
        return self._holders.get(address, ())

    def changed(
        self, change: Added[CachedObject] | Modified[CachedObject] | Deleted[CachedObject]
    ) -> Collection[str]:
        """A pod came, changed or went. Returns the addresses that its super namespace gained or lost."""
        before = () if isinstance(change, Added) else change.old.addresses
        after = () if isinstance(change, Deleted) else change.value.addresses
        if before == after:
            return ()
        moved: list[str] = []
        namespace = change.key[0]
        found = self._of.get(namespace)
        if found is None:
            found = self._of[namespace] = Counter()
        for address in after:
            found[address] += 1
            if found[address] == 1:
                self._holders[address] = (*self.holders(address), namespace)
                moved.append(address)
        for address in before:
            found[address] -= 1
            if not found[address]:
                del found[address]
                self._end(address, namespace)
                moved.append(address)
        if not found:
            del self._of[namespace]
        return moved

    def _end(self, address: str, namespace: str) -> None:
        left = tuple(each for each in self._holders[address] if each != namespace)
        if left:
            self._holders[address] = left
        else:
            del self._holders[address]
