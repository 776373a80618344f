# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.kube import list_page
from daemonkit.kube.list_page import MAX_ITEMS, ListBody, ListedPage
from daemonkit.kube.resources import ListMeta
from daemonkit.kube.watch import GarbageError

VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=8) | st.sampled_from(['"', "\\", '{"', "}\\"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
ITEMS = st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=3), max_size=6)


def finished(pieces: Generator[None, None, ListedPage]) -> tuple[ListedPage, int]:
    """The page, and the number of its pieces."""
    count = 1
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return end.value, count
        count += 1


@pytest.fixture
def cuts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut small bodies too."""
    monkeypatch.setattr(list_page, "_ANY_BYTES", 0)
    monkeypatch.setattr(list_page, "_USUAL_BYTES", 0)


def read(body: bytes) -> tuple[ListMeta, list[Any]]:
    page, _ = finished(ListBody(body).cut())
    return page.metadata, [json.loads(bytes(each)) for each in page.items]


@pytest.mark.usefixtures("cuts_all")
@given(ITEMS, st.booleans(), st.sampled_from([None, 1]))
def test_items_are_those_of_the_list(items: list[Any], is_first: bool, indent: int | None) -> None:
    metadata = {"metadata": {"resourceVersion": "7", "continue": "next"}}
    listed: dict[str, Any] = {"kind": "{List}", "items": items}
    whole = metadata | listed if is_first else listed | metadata
    assert read(json.dumps(whole, indent=indent).encode()) == (ListMeta("7", "next"), items)


@pytest.mark.usefixtures("cuts_all")
@pytest.mark.parametrize("body", [b'{"items": null}', b"{}", b' {"metadata": {}} '])
def test_a_list_may_have_no_items(body: bytes) -> None:
    assert read(body) == (ListMeta(), [])


@pytest.mark.parametrize("is_cut", [True, False])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"}",
        b'{"items": [{]}',
        b'{"items": [{"a": "b]}',
        b'{"items": {"a": 1}}',
        b'{"items": 5}',
    ],
)
def test_other_bodies_are_garbage(body: bytes, is_cut: bool, request: pytest.FixtureRequest) -> None:
    if is_cut:
        request.getfixturevalue("cuts_all")
    with pytest.raises(GarbageError):
        finished(ListBody(body).cut())


@pytest.mark.usefixtures("cuts_all")
@pytest.mark.parametrize("body", [b'{"items": [1]}', b'{"items": [-1, {}]}', b'{"items": [[{}]]}'])
def test_items_that_are_no_objects_are_garbage(body: bytes) -> None:
    with pytest.raises(GarbageError):
        finished(ListBody(body).cut())


SIZE = 12 << 20
LARGE = {
    "one string": b'{"items": [{"a": "%s"}]}' % (b"x" * SIZE),
    "escapes": b'{"items": [{"a": "%s"}]}' % (b'\\"' * (SIZE // 2)),
    "numbers": b'{"items": [{"a": [%s]}]}' % b",".join([b"1"] * (SIZE // 2)),
    "strings": b'{"items": [{"a": [%s]}]}' % b",".join([b'""'] * (SIZE // 3)),
    "maps": b'{"items": [{"a": [%s]}]}' % b",".join([b"{}"] * (SIZE // 3)),
    "backslashes": b'{"items": [{"a": "%s"}]}' % (b"\\\\" * (SIZE // 2)),
    "objects": b'{"items": [%s]}' % b",".join([b'{"a": "%s"}' % (b"x" * 1_000)] * (SIZE // 1_010)),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_body_is_cut_in_many_pieces(name: str) -> None:
    """It was decoded in one, of up to 128 MiB."""
    page, pieces = finished(ListBody(LARGE[name]).cut())
    assert page.items
    assert pieces >= 10


@pytest.mark.parametrize(
    "body",
    [
        b'{"items": [%s]}' % b",".join([b"{}"] * (MAX_ITEMS + 1_000_000)),
        b'{"items": [%s]}' % b",".join([b"1"] * (SIZE // 2)),
        b'{"a": "%s", "items": []}' % (b"x" * SIZE),
    ],
    ids=["objects", "numbers", "beside"],
)
def test_a_list_of_nothing_is_garbage(body: bytes) -> None:
    """Millions of objects in a few bytes each take more time than any others."""
    with pytest.raises(GarbageError):
        finished(ListBody(body).cut())
