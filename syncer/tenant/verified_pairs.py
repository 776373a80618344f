# SPDX-License-Identifier: Apache-2.0
"""Which pairs of versions were planned with nothing left to do: these are not planned again.

It is noted on the cached objects themselves (`CachedObject.verified_with`). What was written may still be on
its way into the caches: until its event comes it is assumed.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from daemonkit.fairness.emptying import Holder
from syncer.caches.cached_object import CachedObject, last_observed
from syncer.caches.super_change import EVENT
from syncer.core.pair import Pair
from syncer.tenant.caches import NOT_WATCHED
from syncer.tenant.deletions import SyncKey

# Most of what is cached. Other kinds are smaller, or read with each pod.
_COMPRESSED = frozenset({"Pod"})
# Events between two turns of the loop: a millisecond.
_BATCH = 500


class CachedPairs(Protocol):
    """The part of `TenantCaches` that is needed here."""

    def note_compressed(self, kind: str, cached: CachedObject, less_bytes: int) -> None: ...
    def of_tenant(self, item: SyncKey) -> CachedObject | None: ...
    def pair(self, item: SyncKey) -> Pair[CachedObject]: ...
    def note_unverified(self, kind: str) -> None: ...
    def super_objects(self, kind: str) -> Iterable[tuple[SyncKey, CachedObject] | None]: ...


class VerifiedPairs:
    """`note` what agrees, and say what changes; whatever is not known to agree is planned.

    `event_copied` gets each Event that is not read again.
    """

    def __init__(self, caches: CachedPairs, event_copied: Callable[[CachedObject], None]) -> None:
        self._caches = caches
        self._event_copied = event_copied
        self._assumed: dict[SyncKey, tuple[str, str]] = {}

    def __len__(self) -> int:
        """How many of those that were noted have not come into the caches yet."""
        return len(self._assumed)

    def note(self, item: SyncKey, tenant_version: str, super_version: str, there: Pair[CachedObject]) -> None:
        """Note that these two versions agree; either may still be on its way into the caches.

        `there` is what they have now.
        """
        cached, found = there
        if item[0] in NOT_WATCHED:
            if found is not None and found.version == super_version:
                self._event_copied(found)
            return
        if found is not None and found.version == super_version:
            _compress(item[0], found)
        else:
            found = None
        if cached is not None and cached.version == tenant_version:
            cached.verified_with = super_version
            self._note_rest(item[0], cached)
            if found is None:
                self._caches.note_unverified(item[0])
        elif tenant_version:
            self._assumed[item] = (tenant_version, super_version)
        elif found is not None and cached is None:
            found.verified_with = ""

    def tenant_changed(self, item: SyncKey, value: CachedObject | None, *, is_relisting: bool) -> None:
        """The tenant's object is another one; None if it is gone or cannot be read."""
        assumed = self._assumed.pop(item, None)
        if assumed is not None and value is not None and assumed[0] == value.version and not is_relisting:
            value.verified_with = assumed[1]
            self._note_rest(item[0], value)

    def super_changed(self, item: SyncKey, version: str, *, is_relisting: bool) -> None:
        """The super object became this version; empty if it is gone or cannot be read.

        A patch's answer was noted as verified, and it has what others wrote before the patch. Each event
        before that of the answer is such a write, also in one piece with it, and a new list may have left it
        out. Of a tenant's own objects the first event that is not the answer's ends what was noted.
        """
        if item[0] in NOT_WATCHED:
            return
        # Not the version that is cached: it is the last one of several that came together.
        assumed = self._assumed.get(item)
        if assumed is not None and (is_relisting or version != assumed[1]):
            del self._assumed[item]
        cached = self._caches.of_tenant(item)
        if cached is not None and (is_relisting or version != cached.verified_with):
            cached.verified_with = None
            self._caches.note_unverified(item[0])

    def end(self, item: SyncKey) -> None:
        """Something that the plan looked at has changed: what it found holds no more."""
        self._assumed.pop(item, None)
        self._caches.note_unverified(item[0])
        for found in self._caches.pair(item):
            if found is not None:
                found.verified_with = None

    def take_all(self) -> tuple[Holder, ...]:
        """What holds all that was noted, to be emptied in steps; nothing is assumed any more."""
        held, self._assumed = self._assumed, {}
        return (held,)

    def forget(self, item: SyncKey) -> None:
        """Neither side has the object any more."""
        self._assumed.pop(item, None)

    def _note_rest(self, kind: str, cached: CachedObject) -> None:
        """Both sides agree, so the tenant's object is seldom read from now on."""
        if less_bytes := _compress(kind, cached):
            self._caches.note_compressed(kind, cached, less_bytes)

    async def skip_events(self, before: str) -> None:
        """Count Events as copied that last occurred before a time, as `last_observed` has it.

        They were copied by an earlier run, or are of no use any more: a tenant's API server would be asked
        about each one at every start.
        """
        for count, each in enumerate(self._caches.super_objects(EVENT), 1):
            if count % _BATCH == 0:
                await asyncio.sleep(0)
            found = None if each is None else each[1]
            if found is not None and found.body and last_observed(found) < before:
                self._event_copied(found)


def _compress(kind: str, cached: CachedObject) -> int:
    return cached.compress() if kind in _COMPRESSED else 0
