# SPDX-License-Identifier: Apache-2.0
"""Counts what is in super namespaces, for those that own them: also what cannot be read."""

from collections.abc import Sequence

from daemonkit.kube.resources import Key
from daemonkit.kube.store import Added, Change, DecodeFailed, Deleted, Modified, UndecodableDeleted
from syncer.caches.cached_object import CachedObject, ClaimedObject
from syncer.caches.claimed_volumes import ClaimedVolumes
from syncer.caches.stored_totals import StoredTotals
from syncer.caches.super_change import EVENT
from syncer.kinds.port import KindSync, Scope

_COUNTED = frozenset({Scope.NAMESPACE, Scope.NAMESPACED, Scope.SYSTEM})


class StoredObjects:
    """Adds to `totals` with each change. Events end by themselves, and are counted by what is held of them.

    Secrets that the syncer makes for pods' tokens take space, and are none of the tenant's Secrets. A volume
    counts where its claim is. What is published is the super cluster's own, and no tenant's.
    """

    def __init__(self, totals: StoredTotals, volumes: ClaimedVolumes) -> None:
        self._totals = totals
        self._volumes = volumes
        # Of objects that cannot be read: where each counts, and its bytes.
        self._unreadable: dict[tuple[str, Key], tuple[str, int]] = {}

    def unreadable_place(self, kind: str, key: Key) -> str:
        """The super namespace in which an object that cannot be read counts; empty if it counts nowhere."""
        return self._unreadable.get((kind, key), ("", 0))[0]

    def changed(self, sync: KindSync, changes: Sequence[Change[CachedObject]]) -> None:
        """Objects of a kind changed."""
        kind, scope = sync.kind.kind, sync.scope
        if scope is Scope.CLAIMED:
            self._volumes_changed(kind, changes)
            return
        if kind == EVENT or scope not in _COUNTED:
            return
        for change in changes:
            match change:
                case Added(_, value):
                    count, more_bytes = 1, value.json_bytes
                case Modified(_, old, value):
                    count, more_bytes = 0, value.json_bytes - old.json_bytes
                case Deleted(_, value):
                    count, more_bytes = -1, -value.json_bytes
                case DecodeFailed():
                    where = change.key[1] if scope is Scope.NAMESPACE else change.key[0]
                    self._note_unreadable(kind, change.key, where, change.size_bytes)
                    continue
                case UndecodableDeleted():
                    self._end_unreadable(kind, change.key)
                    continue
            namespace, name = change.key
            if self._unreadable:
                self._end_unreadable(kind, change.key)
            if scope is Scope.NAMESPACE:
                namespace = name
            elif value.is_pod_tokens:
                count = 0
            self._totals.add(namespace, kind, count, more_bytes)

    def _volumes_changed(self, kind: str, changes: Sequence[Change[CachedObject]]) -> None:
        # Of one that cannot be read any more the end stands before that, with what it last was.
        before: Change[CachedObject] | None = None
        for change in changes:
            if isinstance(change, DecodeFailed):
                where = self._claim_namespace(kind, change, before)
                self._note_unreadable(kind, change.key, where, change.size_bytes)
                continue
            if self._unreadable:
                self._end_unreadable(kind, change.key)
            if not isinstance(change, UndecodableDeleted):
                self._volumes.changed(kind, change)
            before = change

    def _claim_namespace(self, kind: str, failed: DecodeFailed, before: Change[CachedObject] | None) -> str:
        """Where the claim is of a volume that cannot be read, as it is now or else was last known."""
        if isinstance(failed.kept, ClaimedObject):
            return failed.kept.claim_namespace
        if isinstance(before, Deleted) and before.key == failed.key:
            return before.old.claim_namespace
        return self.unreadable_place(kind, failed.key)

    def _note_unreadable(self, kind: str, key: Key, namespace: str, size_bytes: int) -> None:
        """Count an object of this super namespace that cannot be read with so many bytes."""
        self._end_unreadable(kind, key)
        if namespace and size_bytes:
            self._unreadable[kind, key] = namespace, size_bytes
            self._totals.add_unreadable(namespace, kind, 1, size_bytes)

    def _end_unreadable(self, kind: str, key: Key) -> None:
        """It can be read, or is gone."""
        if (before := self._unreadable.pop((kind, key), None)) is not None:
            namespace, size_bytes = before
            self._totals.add_unreadable(namespace, kind, -1, -size_bytes)
