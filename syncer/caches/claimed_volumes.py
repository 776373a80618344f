# SPDX-License-Identifier: Apache-2.0
"""The volumes of the claims in each super namespace: found without looking at those of all others."""

from collections.abc import Collection

from daemonkit.kube.store import Added, Deleted, Modified
from syncer.caches.cached_object import CachedObject
from syncer.caches.stored_totals import StoredTotals


class ClaimedVolumes:
    """Kept, and counted in `stored`, with each change of a cluster-scoped object that names a claim.

    They are where their claims are, or were: a retained volume outlives its claim.
    """

    def __init__(self, stored: StoredTotals) -> None:
        self._stored = stored
        self._names: dict[tuple[str, str], dict[str, None]] = {}

    def names_of(self, kind: str, super_namespace: str) -> Collection[str]:
        """A kind's objects with claims in a super namespace. Take a copy before the next await."""
        return self._names.get((kind, super_namespace), {}).keys()

    def changed(
        self, kind: str, change: Added[CachedObject] | Modified[CachedObject] | Deleted[CachedObject]
    ) -> None:
        """One came, changed, or went."""
        name = change.key[1]
        if not isinstance(change, Added) and (namespace := change.old.claim_namespace):
            self._stored.add(namespace, kind, -1, -change.old.json_bytes)
            found = self._names.get((kind, namespace), {})
            found.pop(name, None)
            if not found:
                self._names.pop((kind, namespace), None)
        if not isinstance(change, Deleted) and (namespace := change.value.claim_namespace):
            self._stored.add(namespace, kind, 1, change.value.json_bytes)
            self._names.setdefault((kind, namespace), {})[name] = None
