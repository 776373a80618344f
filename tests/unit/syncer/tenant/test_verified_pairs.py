# SPDX-License-Identifier: Apache-2.0
"""What is known to agree while events of the same writes are still on their way."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Iterable

from syncer.caches.cached_object import CachedMetadata, CachedObject, is_verified
from syncer.core.pair import Pair
from syncer.tenant.deletions import SyncKey
from syncer.tenant.verified_pairs import VerifiedPairs

ITEM: SyncKey = ("ConfigMap", "web", "c")


def _cached(version: str, body: bytes = b"{}") -> CachedObject:
    return CachedObject(CachedMetadata(resource_version=version), body)


def _copied(event: CachedObject) -> None:
    event.verified_with, event.body = "", b""


class _Caches:
    def __init__(self, tenant: CachedObject | None = None, found: CachedObject | None = None) -> None:
        self.tenant = tenant
        self.found = found
        self.events: list[tuple[SyncKey, CachedObject]] = []
        self.notes = 0

    def note_unverified(self, _: str) -> None:
        self.notes += 1

    def note_compressed(self, kind: str, cached: CachedObject, less_bytes: int) -> None:
        """Nothing is counted here."""

    def of_tenant(self, _: SyncKey) -> CachedObject | None:
        return self.tenant

    def pair(self, item: SyncKey) -> Pair[CachedObject]:
        return Pair(self.tenant, dict(self.events).get(item, self.found))

    def super_objects(self, _: str) -> Iterable[tuple[SyncKey, CachedObject]]:
        return self.events


def test_what_agrees_is_verified_until_a_side_changes() -> None:
    caches = _Caches(_cached("1"), _cached("11"))
    pairs = VerifiedPairs(caches, _copied)
    assert not is_verified(caches.pair(ITEM))
    pairs.note(ITEM, "1", "11", caches.pair(ITEM))
    assert is_verified(caches.pair(ITEM))
    caches.found = _cached("12")
    pairs.super_changed(ITEM, "12", is_relisting=False)
    assert not is_verified(caches.pair(ITEM))


def test_what_was_written_is_assumed_until_its_event_comes() -> None:
    caches = _Caches(_cached("1"))
    pairs = VerifiedPairs(caches, _copied)
    pairs.note(ITEM, "1", "11", caches.pair(ITEM))  # created in the super cluster
    assert not is_verified(caches.pair(ITEM))
    caches.found = _cached("11")
    pairs.super_changed(ITEM, "11", is_relisting=False)
    assert is_verified(caches.pair(ITEM))
    pairs.note(ITEM, "2", "11", caches.pair(ITEM))  # patched in the tenant
    assert len(pairs) == 1
    caches.tenant = _cached("2")
    pairs.tenant_changed(ITEM, caches.tenant, is_relisting=False)
    assert (is_verified(caches.pair(ITEM)), len(pairs)) == (True, 0)


def test_an_edit_on_the_way_ends_what_was_assumed() -> None:
    for value, is_relisting in ((_cached("2"), False), (_cached("3"), True), (None, False)):
        caches = _Caches(_cached("1"), _cached("11"))
        pairs = VerifiedPairs(caches, _copied)
        pairs.note(ITEM, "3", "11", caches.pair(ITEM))
        caches.tenant = value
        pairs.tenant_changed(ITEM, value, is_relisting=is_relisting)
        assert (is_verified(caches.pair(ITEM)), len(pairs)) == (False, 0)


def test_a_write_of_others_before_a_patch_ends_what_was_noted() -> None:
    caches = _Caches(_cached("1"), _cached("11"))
    pairs = VerifiedPairs(caches, _copied)
    pairs.note(ITEM, "1", "13", caches.pair(ITEM))
    for version, is_relisting in (("12", False), ("13", True)):
        caches.found = _cached(version)
        pairs.super_changed(ITEM, version, is_relisting=is_relisting)
        assert not is_verified(caches.pair(ITEM))


def test_a_foreign_write_in_one_piece_with_a_patch_is_seen() -> None:
    """The caches have the patch's version already when the event before it is reported."""
    for first, is_relisting in (("12", False), ("", False), ("13", True)):
        caches = _Caches(_cached("1"), _cached("11"))
        pairs = VerifiedPairs(caches, _copied)
        pairs.note(ITEM, "1", "13", caches.pair(ITEM))
        caches.found = _cached("13")
        pairs.super_changed(ITEM, first, is_relisting=is_relisting)
        pairs.super_changed(ITEM, "13", is_relisting=False)
        assert not is_verified(caches.pair(ITEM))


def test_a_foreign_write_before_a_patch_ends_what_is_assumed() -> None:
    """The tenant's object was written too, and its event comes last."""
    for first, is_relisting in (("12", False), ("", False), ("13", True)):
        caches = _Caches(_cached("1"), _cached("11"))
        pairs = VerifiedPairs(caches, _copied)
        pairs.note(ITEM, "2", "13", caches.pair(ITEM))
        caches.found = _cached("13")
        pairs.super_changed(ITEM, first, is_relisting=is_relisting)
        pairs.super_changed(ITEM, "13", is_relisting=False)
        caches.tenant = _cached("2")
        pairs.tenant_changed(ITEM, caches.tenant, is_relisting=False)
        assert not is_verified(caches.pair(ITEM))


def test_what_looked_at_a_change_is_verified_no_more() -> None:
    caches = _Caches(_cached("1"), _cached("11"))
    pairs = VerifiedPairs(caches, _copied)
    pairs.note(ITEM, "1", "11", caches.pair(ITEM))
    pairs.end(ITEM)
    assert not is_verified(caches.pair(ITEM))
    alone = _Caches(None, _cached("11"))
    pairs = VerifiedPairs(alone, _copied)
    pairs.note(ITEM, "", "11", alone.pair(ITEM))
    assert is_verified(alone.pair(ITEM))
    pairs.end(ITEM)
    assert not is_verified(alone.pair(ITEM))


def test_an_event_is_copied_once_and_an_old_one_never() -> None:
    new, old = (f'{{"lastTimestamp": "2026-01-0{day}T00:00:00Z"}}'.encode() for day in (2, 1))
    caches = _Caches()
    keys = [("Event", "web", name) for name in ("new", "old")]
    caches.events = [(keys[0], _cached("1", new)), (keys[1], _cached("2", old))]
    pairs = VerifiedPairs(caches, _copied)
    asyncio.run(pairs.skip_events("2026-01-01T12:00:00Z"))
    assert [each.body for _, each in caches.events] == [new, b""]
    pairs.note(keys[0], "", "1", Pair(None, caches.events[0][1]))
    assert [each.body for _, each in caches.events] == [b"", b""]
    assert [each.verified_with for _, each in caches.events] == ["", ""]


def test_old_events_are_read_in_steps() -> None:
    """Twenty thousand took 50 ms, and nobody else had a turn meanwhile."""
    old = b'{"lastTimestamp": "2026-01-01T00:00:00Z"}'
    caches = _Caches()
    caches.events = [(("Event", "web", str(number)), _cached("1", old)) for number in range(2_000)]
    steps, left = VerifiedPairs(caches, _copied).skip_events("2026-01-01T12:00:00Z"), [len(caches.events)]
    with contextlib.suppress(StopIteration):
        while True:
            steps.send(None)
            left.append(sum(each.body != b"" for _, each in caches.events))
    assert max(before - now for before, now in itertools.pairwise([*left, 0])) <= 500
    assert not any(each.body for _, each in caches.events)


def test_nothing_is_verified_that_was_never_noted() -> None:
    """Any order of writes, events and lists: a verified pair is one that was noted since it was woken."""
    chance = random.Random(11)  # noqa: S311 - a repeatable one
    for _ in range(200):
        caches = _Caches(_cached("1"), _cached("101"))
        pairs, noted = VerifiedPairs(caches, _copied), set[tuple[str, str]]()
        for _ in range(30):
            is_relisting = chance.random() < 0.2
            match chance.randrange(4):
                case 0:
                    version = str(chance.randrange(1, 6)), str(chance.randrange(101, 106))
                    noted.add(version)
                    pairs.note(ITEM, *version, caches.pair(ITEM))
                case 1:
                    caches.tenant = chance.choice((None, _cached(str(chance.randrange(1, 6)))))
                    pairs.tenant_changed(ITEM, caches.tenant, is_relisting=is_relisting)
                case 2:
                    caches.found = _cached(str(chance.randrange(101, 106)))
                    pairs.super_changed(ITEM, caches.found.version, is_relisting=is_relisting)
                case _:
                    noted.clear()
                    pairs.end(ITEM)
                    assert not is_verified(caches.pair(ITEM))
            if caches.tenant is not None and caches.found is not None and is_verified(caches.pair(ITEM)):
                assert (caches.tenant.version, caches.found.version) in noted
        pairs.forget(ITEM)
        assert len(pairs) == 0


def test_what_ends_without_a_change_is_reported() -> None:
    """A patrol compares a kind again only if its caches changed, or this was reported."""
    caches = _Caches(_cached("1"), _cached("11"))
    pairs = VerifiedPairs(caches, _copied)
    pairs.note(ITEM, "1", "11", caches.pair(ITEM))
    assert caches.notes == 0
    # A namespace came, and what was there before it is reported without a change of its own.
    pairs.super_changed(ITEM, "", is_relisting=False)
    assert caches.notes == 1
    pairs.end(ITEM)
    assert caches.notes == 2
    pairs.note(ITEM, "1", "12", caches.pair(ITEM))  # of an answer whose event is on its way
    assert caches.notes == 3
