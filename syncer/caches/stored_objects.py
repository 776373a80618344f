# SPDX-License-Identifier: Apache-2.0
"""Counts what is in super namespaces, for those that own them: also what cannot be read."""

from collections.abc import Sequence

from daemonkit.kube.resources import Key
from daemonkit.kube.store import Added, Change, DecodeFailed, Deleted, Modified, UndecodableDeleted
from syncer.caches.cached_object import CachedObject
from syncer.caches.claimed_volumes import ClaimedVolumes
from syncer.caches.stored_totals import StoredTotals
from syncer.caches.super_change import EVENT
from syncer.kinds.port import KindSync, Scope

_COUNTED = frozenset({Scope.NAMESPACE, Scope.NAMESPACED, Scope.SYSTEM})


class StoredObjects:
    """Adds to `totals` with each change. Events end by themselves, and are counted by what is held of them.

    Secrets that the syncer makes for pods' tokens take space, and are none of the tenant's Secrets.
    """

    def __init__(self, totals: StoredTotals, volumes: ClaimedVolumes) -> None:
        self._totals = totals
        self._volumes = volumes
        # The bytes of objects that cannot be read.
        self._unreadable: dict[tuple[str, Key], int] = {}

    def changed(self, sync: KindSync, changes: Sequence[Change[CachedObject]]) -> None:
        """Objects of a kind changed."""
        kind, scope = sync.kind.kind, sync.scope
        if scope is Scope.CLAIMED:
            for each in changes:
                if isinstance(each, Added | Modified | Deleted):
                    self._volumes.changed(kind, each)
        if kind == EVENT or scope not in _COUNTED:
            return
        for change in changes:
            before, after = 0, 0
            match change:
                case Added():
                    after = change.value.json_bytes
                case Modified():
                    before, after = change.old.json_bytes, change.value.json_bytes
                case Deleted():
                    before = change.old.json_bytes
                case DecodeFailed():
                    self._note_unreadable(sync, change.key, change.size_bytes)
                    continue
                case UndecodableDeleted():
                    self._note_unreadable(sync, change.key, 0)
                    continue
            namespace, name = change.key
            self._note_unreadable(sync, change.key, 0)
            count = isinstance(change, Added) - isinstance(change, Deleted)
            if scope is Scope.NAMESPACE:
                namespace = name
            elif (change.old if isinstance(change, Deleted) else change.value).is_pod_tokens:
                count = 0
            self._totals.add(namespace, kind, count, after - before)

    def _note_unreadable(self, sync: KindSync, key: Key, size_bytes: int) -> None:
        """Count an object that cannot be read with so many bytes; none where it can be, or is gone."""
        kind = sync.kind.kind
        before = self._unreadable.pop((kind, key), 0)
        if size_bytes:
            self._unreadable[kind, key] = size_bytes
        if before != size_bytes:
            namespace = key[1] if sync.scope is Scope.NAMESPACE else key[0]
            count = bool(size_bytes) - bool(before)
            self._totals.add_unreadable(namespace, kind, count, size_bytes - before)
