# SPDX-License-Identifier: Apache-2.0
"""A list in pieces gives the items that json finds in the whole, or an error; never a shorter list."""

import itertools
import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vnagent.core import list_splitter
from vnagent.core.list_splitter import (
    MAX_FRAME_BYTES,
    MAX_ITEM_BYTES,
    Item,
    ListSplitter,
    SplitError,
    TooLarge,
    complete_members,
)


def split(
    pieces: Iterable[bytes], *, max_item_bytes: int = MAX_ITEM_BYTES, max_frame_bytes: int = MAX_FRAME_BYTES
) -> tuple[list[Item], dict[str, Any]]:
    """The items of a list in `pieces`, and its frame."""
    splitter = ListSplitter(max_item_bytes=max_item_bytes, max_frame_bytes=max_frame_bytes)
    found: list[Item] = []
    for piece in pieces:
        found += splitter.feed(piece)
    found += splitter.end()
    return found, json.loads(splitter.frame())


def values(items: Iterable[Item]) -> list[Any]:
    return [each if isinstance(each, TooLarge) else json.loads(each) for each in items]


ITEMS = [
    {"metadata": {"name": 'a"}],[{\\"', "n": -1.5e3}, "x": [[], {}, [{"y": "]}"}]]},
    {},
    {"b": "\\", "c": "\\\\", "d": '\\"', "e": "\x01\x7f\u20ac\U0001f600", "f": [True, None, -0, 10]},
    {"items": [{"kind": "items"}], "kind": ["PodList"]},
]
DOCUMENT = {"kind": "PodList", "metadata": {"x": [{}, "]"]}, "items": ITEMS, "z": -12, "last": "}"}
BESIDE = DOCUMENT | {"items": []}
COMPACT = json.dumps(DOCUMENT, separators=(",", ":")).encode()
SPACED = json.dumps(DOCUMENT, indent=2, ensure_ascii=False).replace("\n", "\r\n\t").encode() + b" \n"


@pytest.mark.parametrize("page", [COMPACT, SPACED], ids=["compact", "spaced"])
def test_lists_cut_at_every_position(page: bytes) -> None:
    for at in range(len(page) + 1):
        items, beside = split((page[:at], page[at:]))
        assert (values(items), beside) == (ITEMS, BESIDE), at


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_pieces_of_one_size(size: int) -> None:
    for page in (COMPACT, SPACED):
        items, beside = split(page[at : at + size] for at in range(0, len(page), size))
        assert (values(items), beside) == (ITEMS, BESIDE)


@pytest.mark.parametrize("page", [COMPACT, SPACED.rstrip()], ids=["compact", "spaced"])
def test_a_truncated_list_is_an_error(page: bytes) -> None:
    for end in range(len(page)):
        with pytest.raises(SplitError):
            split((page[:end],))


def test_items_are_returned_once_complete_and_not_kept() -> None:
    splitter = ListSplitter()
    assert splitter.feed(b'{"items":[{"a":1}') == []
    assert splitter.feed(b',{"b":2},') == [b'{"a":1}', b'{"b":2}']
    assert splitter.feed(b'{"c":') == []
    assert splitter.feed(b'"long enough"}]}') == [b'{"c":"long enough"}']
    assert splitter.end() == []


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b"<html>",
        b'{"a"}',
        b'{"a":1,}',
        b"{,}",
        b"{1:2}",
        b'{"a" 1}',
        b'{"a":01}',
        b'{"items":[,]}',
        b'{"items":[{},]}',
        b'{"items":[{} {}]}',
        b'{"items":[{}}',
        b'{"items":[1]}',
        b'{"items":[null]}',
        b'{"items":["{}"]}',
        b'{"items":[{"a":}]}',
        b'{"items":[{"a":[}]]}',
        b'{"items":[{"a":"\\x"}]}',
        b'{"items":[{"a":"\n"}]}',
        b'{"items":[]}x',
        b'{"items":[]}{}',
        b'{"items":[{}],"items":[{}]}',
        b'{"\\ud800":1}',
    ],
)
def test_anything_but_an_object_is_an_error(page: bytes) -> None:
    for at in range(len(page) + 1):
        with pytest.raises(SplitError):
            split((page[:at], page[at:]))


@pytest.mark.parametrize("items", [b"null", b"{}", b"1", b'"[]"'])
def test_other_items_are_left_to_the_decoder(items: bytes) -> None:
    assert split((b'{"items":' + items + b"}",)) == ([], {"items": json.loads(items)})


def test_an_escaped_name_is_the_same_name() -> None:
    assert split((b'{"\\u0069tems":[{}]}',)) == ([b"{}"], {"items": []})


@pytest.mark.parametrize("size", [1, 5, 1_000])
def test_an_oversized_item_is_skipped(size: int) -> None:
    large = b'{"metadata":{"name":"a"},"x":"' + b'\\"]}\\\\' * 50 + b'","y":[{"z":"{"}]}'
    page = b'{"items":[{"a":1},%s , {"b":"%s"},%s]}' % (large, b"x" * 92, large)
    pieces = (page[at : at + size] for at in range(0, len(page), size))
    items, _ = split(pieces, max_item_bytes=100)
    assert items == [b'{"a":1}', TooLarge(large[:100]), b'{"b":"%s"}' % (b"x" * 92), TooLarge(large[:100])]
    assert json.loads(complete_members(large[:100])) == {"metadata": {"name": "a"}}


def test_an_item_of_exactly_the_limit() -> None:
    for length, is_kept in ((92, True), (93, False)):
        page = b'{"items":[{"b":"%s"}]}' % (b"x" * length)
        for at in range(len(page)):
            (item,), _ = split((page[:at], page[at:]), max_item_bytes=100)
            assert isinstance(item, bytes) == is_kept


def test_an_unterminated_oversized_item_is_an_error() -> None:
    with pytest.raises(SplitError):
        split((b'{"items":[{"a":"' + b"x" * 500,), max_item_bytes=100)


def test_data_beside_the_items_is_bounded() -> None:
    for page in (b'{"a":"' + b"x" * 200, b'{"a":"' + b"x" * 200 + b'"}', b'{"a"' + b" " * 200):
        with pytest.raises(SplitError, match="too much beside"):
            split((page,), max_frame_bytes=100)


def test_a_frame_of_exactly_the_limit() -> None:
    """With the comma between two members, and without the bracket at its end."""
    for length, is_kept in ((86, True), (87, False)):
        page = b'{"a":"%s","b":1}' % (b"x" * length)
        for at in range(len(page)):
            try:
                split((page[:at], page[at:]), max_frame_bytes=99)
            except SplitError:
                assert not is_kept
            else:
                assert is_kept


@pytest.mark.parametrize("levels", [900, 9_990])
def test_items_may_be_as_deep_as_the_api_server_allows(levels: int) -> None:
    deep = b'{"x":%s}' % (b"[" * levels + b"]" * levels)
    assert split((b'{"items":[%s,{}]}' % deep,))[0] == [deep, b"{}"]


def test_deeper_items_are_an_error() -> None:
    with pytest.raises(SplitError):
        split((b'{"items":[{"x":' + b"[" * 100_000,))


def test_the_work_is_linear_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte is scanned a few times, however the page is split."""
    scanned = 0

    class Counting:
        def decode(self, data: memoryview) -> msgspec.Raw:
            nonlocal scanned
            try:
                return msgspec.json.decode(data, type=msgspec.Raw)
            except msgspec.DecodeError as error:
                offset = str(error).rpartition("(byte ")[2]
                scanned += int(offset[:-1]) if offset[:-1].isdecimal() else len(data)
                raise

    monkeypatch.setattr(list_splitter, "_VALUE", Counting())
    items = [b'{"a":"%s"}' % (b"x" * size) for size in (10, 100_000, 5_000, 300_000, 20)]
    page = b'{"items":[' + b",".join(items) + b"]}"
    for size in (100, 4_096, 1 << 20):
        scanned = 0
        assert split(page[at : at + size] for at in range(0, len(page), size))[0] == items
        assert scanned <= 4 * len(page)


def test_msgspec_names_the_byte_behind_a_value() -> None:
    """What `_end_of_value` reads of msgspec's errors. A release that words them otherwise fails here."""
    for value in (b'{"a":[1,"}"]}', b'"x"', b"12", b"null", b"[]"):
        for rest, spaces in ((b",", 0), (b" \n]x", 2), (b'{"a":', 0)):
            assert list_splitter._end_of_value(memoryview(value + rest)) == len(value) + spaces  # noqa: SLF001
        assert list_splitter._end_of_value(memoryview(value)) is None  # noqa: SLF001


NAMES = st.sampled_from(["kind", "metadata", "x", 'i"tems', "]"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(
    st.dictionaries(NAMES, JSON, max_size=3),
    st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=3), max_size=4),
    st.dictionaries(st.just("last"), JSON),
    st.booleans(),
    st.sampled_from([None, 0, 3]),
    st.lists(st.integers(0, 2_000), max_size=6),
    st.sampled_from([10, 1_000]),
)
def test_any_list_in_any_pieces(
    before: dict[str, Any],
    items: list[dict[str, Any]],
    after: dict[str, Any],
    is_ascii: bool,
    indent: int | None,
    cuts: list[int],
    max_item_bytes: int,
) -> None:
    document = before | {"items": items} | after
    # A kubelet cannot send a lone surrogate.
    page = json.dumps(document, ensure_ascii=is_ascii, indent=indent).encode("utf-8", "replace")
    bounds = sorted({0, len(page), *(min(cut, len(page)) for cut in cuts)})
    pieces = [page[begin:end] for begin, end in itertools.pairwise(bounds)]
    found, beside = split(pieces, max_item_bytes=max_item_bytes)
    expected = json.loads(page)
    assert len(found) == len(items)
    for each, item in zip(found, expected["items"], strict=True):
        if isinstance(each, TooLarge):
            assert len(each.head) == max_item_bytes
        else:
            assert (json.loads(each), len(each) <= max_item_bytes) == (item, True)
    assert beside == expected | {"items": []}
