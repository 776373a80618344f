# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from daemonkit.kube.resources import ObjectMeta
from daemonkit.kube.store import (
    Added,
    Change,
    DecodeFailed,
    Deleted,
    Modified,
    RegressedError,
    Store,
    UndecodableDeleted,
)
from daemonkit.kube.watch import Bookmark, GarbageError, Put, Removed, Undecodable


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
