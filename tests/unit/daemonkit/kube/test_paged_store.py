# SPDX-License-Identifier: Apache-2.0
"""A list that is taken by its pages ends as one that is taken whole."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from typing import Any

import pytest

from daemonkit.kube.paged_store import PagedStore
from daemonkit.kube.resources import Key, NameOnly
from daemonkit.kube.store import DecodeFailed, Deleted, RegressedError, Store, UndecodableDeleted
from daemonkit.kube.watch import GarbageError, Put, Removed, Undecodable
from tests.unit.daemonkit.kube.test_store import Thing, thing

PageItem = Put[Thing] | Undecodable


class PlainStore(PagedStore[Thing]):
    """It holds objects as a `Store` does."""

    def _begin(self) -> None:
        self.noted: set[Key] = set()

    def _note(self, key: Key) -> None:
        self.noted.add(key)

    def _missing(self) -> Generator[None, None, Sequence[Deleted[Thing]]]:
        yield
        return [Deleted(key, old) for key, old in self.objects.items() if key not in self.noted]

    def list(self, pages: Sequence[Sequence[PageItem]], version: str) -> list[object]:
        """As a reflector does; returns all changes."""
        self.begin_list(version)
        changes: list[object] = [change for page in pages for change in self.take_page(page)]
        steps = self.comparing([], version)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                self.take(end.value.version, end.value.changes)
                return [*changes, *end.value.changes]


def bad(name: str, reason: str = "bad") -> Undecodable:
    return Undecodable(NameOnly(name, "n", "u", "1"), reason)


def test_pages_are_taken_and_what_is_missing_is_deleted() -> None:
    store = PlainStore()
    store.list([[Put(thing("a", "1"))], [Put(thing("b", "1")), bad("c")]], "5")
    assert set(store.objects) == {("n", "a"), ("n", "b")}
    assert store.list([[Put(thing("b", "1"))]], "6") == [
        Deleted(("n", "a"), thing("a", "1")),
        UndecodableDeleted(("n", "c")),
    ]
    assert (set(store.objects), store.version) == ({("n", "b")}, "6")


def test_a_list_that_ends_early_deletes_nothing() -> None:
    store = PlainStore()
    store.list([[Put(thing("a", "1")), Put(thing("b", "1"))]], "5")
    store.begin_list("6")
    store.take_page([Put(thing("b", "6"))])
    assert (set(store.objects), store.version) == ({("n", "a"), ("n", "b")}, "5")
    store.list([[Put(thing("b", "6"))]], "6")
    assert set(store.objects) == {("n", "b")}


def test_an_object_that_cannot_be_read_is_held_no_more() -> None:
    store = PlainStore()
    store.list([[Put(thing("a", "1"))]], "5")
    failed = DecodeFailed(("n", "a"), "bad", "u")
    assert store.list([[bad("a")]], "6") == [Deleted(("n", "a"), thing("a", "1")), failed]
    assert store.list([[bad("a")]], "7") == []
    assert dict(store.decode_failures) == {("n", "a"): failed}
    store.list([[Put(thing("a", "8"))]], "8")
    assert (dict(store.decode_failures), set(store.objects)) == ({}, {("n", "a")})


@pytest.mark.parametrize(("version", "error"), [("4", RegressedError), ("", GarbageError)])
def test_an_older_list_is_refused_by_its_first_page(version: str, error: type[Exception]) -> None:
    store = PlainStore()
    store.list([[Put(thing("a", "1"))]], "5")
    with pytest.raises(error):
        store.begin_list(version)


@pytest.mark.parametrize("seed", range(20))
def test_random_lists_and_events_end_as_in_a_store(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a repeatable one
    paged, whole = PlainStore(), Store[Thing]()
    for version in range(1, 40):
        names = chance.sample("abcdefgh", chance.randrange(9))
        items: list[PageItem] = [
            bad(each) if chance.random() < 0.2 else Put(thing(each, str(version), chance.choice("uv")))
            for each in names
        ]
        if chance.random() < 0.5:
            size = chance.randrange(1, 5)
            paged.list([items[at : at + size] for at in range(0, len(items), size)] or [[]], str(version))
            whole.replace(items, str(version))
        elif names:
            removed = Removed(NameOnly(names[0], "n", "u", str(version)))
            event: Any = chance.choice([Put(thing(names[0], str(version))), removed])
            assert paged.apply(event) == whole.apply(event)
        assert dict(paged.objects) == dict(whole.objects)
        assert dict(paged.decode_failures) == dict(whole.decode_failures)
