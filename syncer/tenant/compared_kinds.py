# SPDX-License-Identifier: Apache-2.0
"""Which pairs a patrol finds not to be verified, without another look at what cannot have changed.

A kind whose caches are as they were when all of its pairs were compared has the same pairs that are verified.
Of such a kind only those are looked at that were not. Whether it is so is counted where the caches change,
before a plan acts on it: an event that is lost behind the caches has its pair compared by the next patrol.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from syncer.caches.cached_object import CachedObject, is_verified
from syncer.core.pair import Pair
from syncer.tenant.deletions import SyncKey

# Each so many patrols compare all pairs of all kinds, whatever has been counted: with 60 s every half hour.
ALL_EVERY = 30
# Pairs of a kind that are remembered as not verified; with more of them all of its pairs are compared.
MAX_REMEMBERED = 1_000

_Found = list[tuple[SyncKey, bool]]


class PatrolledCaches(Protocol):
    """The part of `TenantCaches` that is needed here."""

    @property
    def kinds(self) -> Iterable[str]: ...
    def state_of(self, kind: str) -> object: ...
    def pair(self, item: SyncKey) -> Pair[CachedObject]: ...
    def unverified(self, most: int, kinds: Iterable[str]) -> Iterable[_Found]: ...


class ComparedKinds:
    """What the last patrol of a tenant compared, and what it found."""

    def __init__(self, caches: PatrolledCaches) -> None:
        self._caches = caches
        self._states: dict[str, object] = {}
        self._rest: dict[str, list[SyncKey]] = {}
        self._patrols = 0

    def unverified(self, most: int) -> Iterable[_Found]:
        """The pairs that are not verified, in lists. For each list at most `most` pairs were compared.

        A list is valid until its reader awaits something.
        """
        caches = self._caches
        if self._patrols % ALL_EVERY == 0:
            self._states.clear()
        self._patrols += 1
        # Before a look at them: what changes during the patrol is compared by the next one.
        states = {kind: caches.state_of(kind) for kind in caches.kinds}
        changed = [kind for kind, state in states.items() if self._states.get(kind) != state]
        known = [item for kind, items in self._rest.items() if kind not in changed for item in items]
        rest: dict[str, list[SyncKey]] = {kind: [] for kind in changed}
        if changed:
            for found in caches.unverified(most, changed):
                for item, _ in found:
                    rest[item[0]].append(item)
                yield found
        for kind, items in rest.items():
            self._states[kind], self._rest[kind] = states[kind], items
            if len(items) > MAX_REMEMBERED:
                del self._states[kind], self._rest[kind]
        yield from self._again(known, most)

    def _again(self, items: list[SyncKey], most: int) -> Iterator[_Found]:
        """Those of some pairs that are still not verified."""
        for at in range(0, len(items), most):
            pairs = [(item, self._caches.pair(item)) for item in items[at : at + most]]
            yield [(item, pair.is_whole) for item, pair in pairs if not is_verified(pair)]
