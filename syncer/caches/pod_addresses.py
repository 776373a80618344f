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

    def of(self, super_namespace: str) -> Collection[str]:
        """Those of one super namespace. Read only: they are shared."""
        return self._of.get(super_namespace, {}).keys()

    def changed(self, change: Added[CachedObject] | Modified[CachedObject] | Deleted[CachedObject]) -> None:
        """A pod came, changed or went."""
        before = () if isinstance(change, Added) else change.old.addresses
        after = () if isinstance(change, Deleted) else change.value.addresses
        if before == after:
            return
        namespace = change.key[0]
        found = self._of.get(namespace)
        if found is None:
            found = self._of[namespace] = Counter()
        for address in after:
            found[address] += 1
        for address in before:
            found[address] -= 1
            if not found[address]:
                del found[address]
        if not found:
            del self._of[namespace]
