# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.kube.resources import NAMESPACES, PODS
from devkit.kube.storage import Object, Selection, StatusError, Storage

EVERY = Selection(PODS)


def pod(name: str, node: str = "n1", **labels: str) -> Object:
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"metadata": metadata, "spec": {"nodeName": node}}


def names(values: list[Object]) -> list[str]:
    return [value["metadata"]["name"] for value in values]


def events_since(storage: Storage, since: int, selection: Selection = EVERY) -> list[tuple[str, str, str]]:
    events = storage.events(selection, since)
    return [(kind, v["metadata"]["name"], v["metadata"]["resourceVersion"]) for kind, v in events]


def test_each_write_has_a_revision_and_an_event() -> None:
    storage = Storage()
    first = storage.create(PODS, pod("a"))
    storage.replace(PODS, pod("a", x="1"))
    storage.create(NAMESPACES, {"metadata": {"name": "other"}})
    storage.delete(PODS, "default", "a")
    assert first["metadata"]["resourceVersion"] == "2"
    assert events_since(storage, 1) == [("ADDED", "a", "2"), ("MODIFIED", "a", "3"), ("DELETED", "a", "5")]
    assert events_since(storage, 3) == [("DELETED", "a", "5")]
    assert storage.select(EVERY) == []


@pytest.mark.parametrize(
    ("labels", "fields", "expected"),
    [
        ("", "", ["a", "b", "c"]),
        ("app=web", "", ["a", "b"]),
        ("app==web,tier!=db", "", ["a"]),
        ("app", "", ["a", "b"]),
        ("app!=web", "", ["c"]),
        ("!tier", "", ["a", "c"]),
        ("!tier, !app", "", ["c"]),
        ("tier in (db, cache),app", "", ["b"]),
        ("app=web,tier notin (db,cache)", "", ["a"]),
        ("", "metadata.name=b", ["b"]),
        ("", "spec.nodeName=n2", ["c"]),
        ("", "spec.nodeName!=n2,metadata.namespace=default", ["a", "b"]),
        ("app=web", "metadata.name=c", []),
    ],
)
def test_label_and_field_selectors_filter(labels: str, fields: str, expected: list[str]) -> None:
    storage = Storage()
    storage.create(PODS, pod("a", app="web"))
    storage.create(PODS, pod("b", app="web", tier="db"))
    storage.create(PODS, pod("c", "n2"))
    assert names(storage.select(Selection.parse(PODS, "", labels, fields))) == expected
    assert names(storage.select(Selection.parse(PODS, "elsewhere", labels, fields))) == []


def test_leaving_a_selector_is_a_deleted_event() -> None:
    storage = Storage()
    on_n1 = Selection.parse(PODS, fields="spec.nodeName=n1")
    storage.create(PODS, pod("a", ""))
    storage.replace(PODS, pod("a", "n1"))
    storage.replace(PODS, pod("a", "n2"))
    assert events_since(storage, 1, on_n1) == [("ADDED", "a", "3"), ("DELETED", "a", "4")]


@pytest.mark.parametrize(
    ("code", "act"),
    [
        (409, lambda s: s.create(PODS, pod("a"))),
        (
            409,
            lambda s: s.replace(
                PODS, pod("a") | {"metadata": pod("a")["metadata"] | {"resourceVersion": "1"}}
            ),
        ),
        (404, lambda s: s.replace(PODS, pod("b"))),
        (404, lambda s: s.delete(PODS, "default", "b")),
        (404, lambda s: s.get(PODS, "other", "a")),
        (422, lambda s: s.create(PODS, {"metadata": {"name": "x"}})),
        (422, lambda s: s.create(NAMESPACES, pod("x"))),
        (400, lambda s: Selection.parse(PODS, fields="spec.hostIP=1")),
        (504, lambda s: s.check_seen(s.revision + 1)),
    ],
)
def test_invalid_requests_have_their_status(code: int, act: Any) -> None:
    storage = Storage()
    storage.create(PODS, pod("a"))
    with pytest.raises(StatusError) as caught:
        act(storage)
    assert caught.value.status["code"] == code


def test_a_compacted_revision_is_410_gone() -> None:
    storage = Storage()
    for name in "abc":
        storage.create(PODS, pod(name))
    storage.compact(3)
    assert events_since(storage, 3) == [("ADDED", "c", "4")]
    with pytest.raises(StatusError, match="410 Expired"):
        storage.events(EVERY, 2)
    with pytest.raises(StatusError, match="410 Expired"):
        storage.select(EVERY, 2)


def test_the_history_has_a_limit() -> None:
    storage = Storage(max_history=10)
    for _ in range(100):
        storage.put(PODS, pod("a"))
    assert storage.compacted > 80
    assert len(storage.events(EVERY, storage.compacted)) <= 10


def test_stored_objects_are_copies() -> None:
    storage = Storage()
    storage.create(PODS, pod("a"))["metadata"]["labels"]["x"] = "1"
    storage.get(PODS, "default", "a")["metadata"]["labels"]["x"] = "1"
    assert storage.get(PODS, "default", "a")["metadata"]["labels"] == {}


_WRITES = st.lists(st.tuples(st.sampled_from("pd"), st.sampled_from("abc")), max_size=30)


@given(_WRITES, st.integers(1, 40))
def test_a_list_at_a_revision_is_exact(writes: list[tuple[str, str]], back: int) -> None:
    storage = Storage()
    states = {1: storage.select(EVERY)}
    for act, name in writes:
        if act == "p":
            storage.put(PODS, pod(name))
        elif name in names(storage.select(EVERY)):
            storage.delete(PODS, "default", name)
        states[storage.revision] = storage.select(EVERY)
    revision = max(1, storage.revision - back)
    assert storage.select(EVERY, revision) == states[revision]
    state = {value["metadata"]["name"]: value for value in states[revision]}
    for kind, value in storage.events(EVERY, revision):
        if kind == "DELETED":
            del state[value["metadata"]["name"]]
        else:
            assert (kind == "ADDED") == (value["metadata"]["name"] not in state)
            state[value["metadata"]["name"]] = value
    assert sorted(state.values(), key=str) == sorted(storage.select(EVERY), key=str)
    storage.roll_back(revision)
    assert storage.revision == revision
    assert storage.select(EVERY) == states[revision]
