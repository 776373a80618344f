# SPDX-License-Identifier: Apache-2.0
import itertools
from collections.abc import Generator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.fairness.emptying import AT_ONCE
from daemonkit.kube.resources import ObjectMeta
from daemonkit.kube.store import (
    Added,
    Change,
    DecodeFailed,
    Deleted,
    Modified,
    RegressedError,
    Replacement,
    Store,
    UndecodableDeleted,
)
from daemonkit.kube.watch import Bookmark, GarbageError, Put, Removed, Undecodable
from tests.steps import most_in_a_step


class Thing(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


def thing(name: str, version: str, uid: str = "u") -> Thing:
    return Thing(ObjectMeta(name=name, namespace="n", uid=uid, resource_version=version))


def changes_of(store: Store[Thing], version: str, *things: Thing) -> list[Change[Thing]]:
    return store.replace([Put(each) for each in things], version)


A1, A2, B1 = thing("a", "1"), thing("a", "2"), thing("b", "1")
KEY_A, KEY_B = ("n", "a"), ("n", "b")


@pytest.mark.parametrize(
    ("after", "changes"),
    [
        ((A1, B1), []),
        ((A2, B1), [Modified(KEY_A, A1, A2)]),
        ((A1,), [Deleted(KEY_B, B1)]),
        ((), [Deleted(KEY_A, A1), Deleted(KEY_B, B1)]),
        ((A1, B1, thing("c", "3")), [Added(("n", "c"), thing("c", "3"))]),
        (
            (thing("a", "3", "other"), B1),
            [Deleted(KEY_A, A1), Added(KEY_A, thing("a", "3", "other"))],
        ),
        ((A1, thing("c", "3")), [Deleted(KEY_B, B1), Added(("n", "c"), thing("c", "3"))]),
    ],
)
def test_a_list_yields_its_difference(after: tuple[Thing, ...], changes: list[Change[Thing]]) -> None:
    store: Store[Thing] = Store()
    assert changes_of(store, "1", A1, B1) == [Added(KEY_A, A1), Added(KEY_B, B1)]
    assert changes_of(store, "5", *after) == changes
    assert store.version == "5"
    assert dict(store.objects) == {("n", each.metadata.name): each for each in after}


def test_events_yield_changes() -> None:
    store: Store[Thing] = Store()
    changes_of(store, "1")
    assert store.apply(Put(A2)) == [Added(KEY_A, A2)]
    assert store.apply(Put(A2)) == []
    assert store.apply(Bookmark("7")) == []
    changed = thing("a", "8")
    assert store.apply(Put(changed)) == [Modified(KEY_A, A2, changed)]
    assert store.apply(Removed(ObjectMeta(name="a", namespace="n", resource_version="9"))) == [
        Deleted(KEY_A, changed)
    ]
    assert store.apply(Removed(ObjectMeta(name="a", namespace="n", resource_version="9"))) == []
    assert store.version == "9"
    assert not store.objects


@pytest.mark.parametrize(
    "event",
    [
        Put(thing("a", "6")),
        Removed(ObjectMeta(name="b", namespace="n", resource_version="6")),
        Undecodable(ObjectMeta(name="b", namespace="n", resource_version="6"), "odd"),
        Bookmark("6"),
    ],
)
def test_an_older_event_is_refused(
    event: Put[Thing] | Removed | Undecodable | Bookmark,
) -> None:
    store: Store[Thing] = Store()
    changes_of(store, "7", A1, B1)
    with pytest.raises(RegressedError, match="6 is older than 7"):
        store.apply(event)
    assert dict(store.objects) == {KEY_A: A1, KEY_B: B1}
    assert store.version == "7"


def test_an_older_list_is_refused() -> None:
    store: Store[Thing] = Store()
    changes_of(store, "10", A1)
    with pytest.raises(RegressedError):
        changes_of(store, "9", B1)
    with pytest.raises(GarbageError):
        changes_of(store, "", B1)
    assert dict(store.objects) == {KEY_A: A1}


def test_opaque_versions_are_accepted_in_order() -> None:
    store: Store[Thing] = Store()
    changes_of(store, "zz")
    changes_of(store, "aa", A1)
    assert store.version == "aa"


def test_an_undecodable_object_is_known_but_not_served() -> None:
    store: Store[Thing] = Store()
    changes_of(store, "1", A1)
    undecodable = Undecodable(ObjectMeta(name="a", namespace="n", resource_version="2"), "odd")
    assert store.apply(undecodable) == [Deleted(KEY_A, A1), DecodeFailed(KEY_A, "odd")]
    assert dict(store.undecodable) == {KEY_A: "odd"}
    assert store.replace([undecodable], "3") == []
    assert store.apply(Put(thing("a", "4"))) == [Added(KEY_A, thing("a", "4"))]
    assert not store.undecodable
    assert store.replace([undecodable], "5") == [Deleted(KEY_A, thing("a", "4")), DecodeFailed(KEY_A, "odd")]
    gone = Removed(ObjectMeta(name="a", namespace="n", resource_version="6"))
    assert store.apply(gone) == [UndecodableDeleted(KEY_A)]
    assert not store.undecodable


def test_a_list_without_an_undecodable_object_deletes_it() -> None:
    store: Store[Thing] = Store()
    undecodable = Undecodable(ObjectMeta(name="a", namespace="n", resource_version="2"), "odd")
    assert store.apply(undecodable) == [DecodeFailed(KEY_A, "odd")]
    assert changes_of(store, "3") == [UndecodableDeleted(KEY_A)]


@pytest.mark.parametrize("is_readable", [True, False])
def test_of_an_object_that_a_list_has_twice_the_last_one_counts(is_readable: bool) -> None:
    store: Store[Thing] = Store()
    readable, unreadable = Put(A1), Undecodable(A1.metadata, "bad")
    store.replace([unreadable, readable] if is_readable else [readable, unreadable], "1")
    assert (KEY_A in store.objects, KEY_A in store.decode_failures) == (is_readable, not is_readable)
    store.replace([readable], "2")
    assert (KEY_A in store.objects, KEY_A in store.decode_failures) == (True, False)


def test_a_list_is_compared_in_pieces() -> None:
    """100 000 objects are none that one step has time for, and nothing is changed before the end."""
    store: Store[Thing] = Store()
    changes_of(store, "1", *(thing(f"a{n}", "1") for n in range(12_000)))
    steps = store.comparing([Put(thing(f"b{n}", "2")) for n in range(12_000)], "2")
    pieces = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
            break
        pieces += 1
        assert (len(store.objects), store.version) == (12_000, "1")
    assert pieces == 6
    assert len(found.changes) == 24_000


_STATES = st.dictionaries(
    st.sampled_from("abcdef"), st.tuples(st.sampled_from("uv"), st.sampled_from("12"), st.booleans())
)


def _listed(state: dict[str, tuple[str, str, bool]], version: int) -> list[Put[Thing] | Undecodable]:
    items: list[Put[Thing] | Undecodable] = []
    for name, (uid, own, is_readable) in state.items():
        value = thing(name, f"{version}{own}", uid)
        items.append(Put(value) if is_readable else Undecodable(value.metadata, "why"))
    return items


@given(before=_STATES, after=_STATES, most=st.integers(1, 4))
def test_a_list_in_parts_is_the_list(
    before: dict[str, tuple[str, str, bool]], after: dict[str, tuple[str, str, bool]], most: int
) -> None:
    whole: Store[Thing] = Store()
    parted: Store[Thing] = Store()
    for store in (whole, parted):
        store.replace(_listed(before, 1), "10")
    changes = whole.replace(_listed(after, 2), "20")
    found = _ended(parted.comparing(_listed(after, 2), "20"))
    parts = list(found.parts(most))
    for part in parts:
        parted.take_part(part)
    assert (dict(parted.objects), parted.decode_failures) == (dict(whole.objects), whole.decode_failures)
    assert sorted(map(repr, itertools.chain(*parts))) == sorted(map(repr, changes))
    of_keys = [{each.key for each in part} for part in parts]
    assert all(not one & other for one, other in itertools.combinations(of_keys, 2))
    parted.take(found.version, ())
    assert (dict(parted.objects), parted.version) == (dict(whole.objects), "20")


def _ended(steps: Generator[None, None, Replacement[Thing]]) -> Replacement[Thing]:
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: Replacement[Thing] = end.value
        return found


def test_an_object_that_a_list_has_as_it_was_stays_the_same_one() -> None:
    """What is noted on it, such as with what it agrees, holds on."""
    store: Store[Thing] = Store()
    changes_of(store, "1", A1, B1)
    before = store.objects
    assert changes_of(store, "5", thing("b", "1"), A2) == [Modified(KEY_A, A1, A2)]
    assert store.objects is before
    assert store.objects[KEY_B] is B1


def test_what_a_store_holds_is_forgotten_in_steps() -> None:
    store: Store[Thing] = Store()
    changes_of(store, "1", *(thing(f"a{number}", "1") for number in range(3 * AT_ONCE)))
    assert most_in_a_step(store.forget(), lambda: -len(store.objects)) == AT_ONCE
    assert (dict(store.objects), store.version) == ({}, "1")


class _Sized:
    """An object of so many bytes, which may be fewer later."""

    def __init__(self, name: str, version: int, size_bytes: int) -> None:
        self.metadata = ObjectMeta(name=name, namespace="n", uid="u", resource_version=str(version))
        self.size_bytes = size_bytes


def _size_of(item: _Sized | DecodeFailed) -> int:
    return item.size_bytes


_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["put", "put again", "remove", "unreadable", "shrink", "shrink", "list"]),
        st.sampled_from("abc"),
        st.integers(1, 9),
    ),
    max_size=40,
)


@given(_CHANGES)
def test_bytes_are_those_of_what_is_held(steps: list[tuple[str, str, int]]) -> None:
    """In every order, also of objects that shrink when they are held no more."""
    store: Store[_Sized] = Store(_size_of)
    made = [_Sized("a", 0, 5)]
    held: list[_Sized | DecodeFailed]
    for version, (what, name, size_bytes) in enumerate(steps, 1):
        value = _Sized(name, version, size_bytes)
        unreadable = Undecodable(value.metadata, "odd", size_bytes=size_bytes)
        if what == "put again":  # the version that is there, in another event
            value = _Sized(name, int(store.version or 0), size_bytes)
        match what:
            case "put" | "put again":
                made.append(value)
                store.apply(Put(value))
            case "remove":
                store.apply(Removed(value.metadata))
            case "unreadable":
                store.apply(unreadable)
            case "list":
                made.append(value)
                store.replace([Put(value), *([unreadable] if size_bytes > 5 else [])], str(version))
            case "shrink":
                one = made[size_bytes % len(made)]
                less_bytes = one.size_bytes // 2
                one.size_bytes -= less_bytes
                store.note_compressed(one, less_bytes)
        held = [*store.objects.values(), *store.decode_failures.values()]
        assert store.held_bytes == sum(map(_size_of, held))
    for _ in store.forget():
        pass
    assert store.held_bytes == 0
