# SPDX-License-Identifier: Apache-2.0
"""Caches Events of the super cluster within a bound: a tenant can cause any number of them."""

from collections.abc import Callable

from daemonkit.kube.byte_budget import OBJECT_BYTES
from daemonkit.kube.resources import Key
from daemonkit.kube.store import Added, Deleted, Modified
from syncer.caches.cached_object import CachedObject
from syncer.caches.stored_totals import StoredTotals

# Of one tenant: some 8 000 that have not been copied to it yet. Of those that have, as much is counted.
MAX_EVENT_BYTES = 16 << 20


class HeldEvents:
    """Counts them in `stored`, and keeps no body of those that do not go to a tenant.

    `key_of` gives the tenant of a super namespace, and `cached` the Event that the caches have.
    """

    def __init__(
        self,
        stored: StoredTotals,
        key_of: Callable[[str], str | None],
        cached: Callable[[Key], CachedObject | None],
    ) -> None:
        self._stored = stored
        self._key_of = key_of
        self._cached = cached
        self._bytes: dict[Key, int] = {}
        self._copied_bytes: dict[Key, int] = {}

    def changed(self, change: Added[CachedObject] | Modified[CachedObject] | Deleted[CachedObject]) -> bool:
        """Count an Event that changed; returns whether it is held for a tenant.

        Most Events are of the super cluster itself, and of no use here. Those of a tenant beyond
        MAX_EVENT_BYTES do not come up.
        """
        before, after = self._bytes.pop(change.key, 0), 0
        copied = self._copied_bytes.pop(change.key, 0)
        if not isinstance(change, Deleted):
            after = OBJECT_BYTES + change.value.size_bytes
            key = self._key_of(change.key[0])
            if key is None or self._stored.of(key).event_bytes - before + after > MAX_EVENT_BYTES:
                _give_up_body(change.value)
                after = 0
            else:
                self._bytes[change.key] = after
        self._stored.add_events(change.key[0], after - before, -copied)
        return after > 0

    def copied(self, event: CachedObject) -> None:
        """An Event has been copied, or is of no use: nothing is held but that it is there."""
        _give_up_body(event)
        where = event.metadata.namespace, event.metadata.name
        before = self._bytes.get(where)
        if before is None or self._cached(where) is not event:
            return
        del self._bytes[where]
        after = OBJECT_BYTES + event.size_bytes
        # Beyond this bound a copied Event counts as little as one of the super cluster's own.
        if self._stored.of(self._key_of(where[0]) or "").copied_event_bytes + after > MAX_EVENT_BYTES:
            after = 0
        else:
            self._copied_bytes[where] = after
        self._stored.add_events(where[0], -before, after)


def _give_up_body(event: CachedObject) -> None:
    event.verified_with, event.body = "", b""
