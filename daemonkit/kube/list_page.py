# SPDX-License-Identifier: Apache-2.0
"""Cuts the body of a list into its items, in pieces that take some milliseconds each. Pure.

msgspec decodes a page of 8 MiB within 20 ms, as it skips what the items have. It is not to be interrupted,
and a body without pages may have 128 MiB; a page of nothing but `{}` takes ten times as long as any other.
Such bodies are cut by their braces first. What is left, with a number in place of each object, is decoded as
a whole.
"""

import re
from collections.abc import Generator, Sequence
from typing import TypeVar

import msgspec

from daemonkit.kube import deep_json
from daemonkit.kube.resources import ListMeta, Page
from daemonkit.kube.watch import GarbageError

T = TypeVar("T")

# Of these msgspec decodes one within 20 ms whatever it has, the other if its objects are of some size.
_ANY_BYTES = 1 << 20
_USUAL_BYTES = 8 << 20
_USUAL_OBJECT_BYTES = 24
# Of one body: without pages it has 128 MiB at most, and objects of 1 KB are small.
MAX_ITEMS = 150_000
_MAX_OUTLINE_BYTES = 4 << 20
# Between two turns; each step takes a microsecond.
_STEPS = 4_000
# Of an item that is not decoded: the `msgspec.Raw`. Of one that is cut out: its place, a view and a `Raw`.
ITEM_BYTES = 96
_CUT_ITEM_BYTES = 400
_MIN_ITEM_BYTES = 3
# What one step looks at: a step of so many bytes counts as so many as it takes.
_WINDOW_BYTES = 16 << 10
_WINDOW_STEPS = 100
_SLICE_ITEMS = 1_000

_NEXT = re.compile(rb'[{}"]')
_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)++', re.DOTALL)
_QUOTE, _OPEN = b'"'[0], b"{"[0]


class ListedPage(msgspec.Struct, frozen=True):
    """A list, or a page of one. The items are JSON that was not decoded."""

    metadata: ListMeta
    items: Sequence[msgspec.Raw]


class _Outline(msgspec.Struct, frozen=True):
    """A list with numbers in place of objects."""

    metadata: int | None = None
    items: list[int] | None = None


_PAGES = msgspec.json.Decoder(Page)
_OUTLINES = msgspec.json.Decoder(_Outline)
_METADATA = msgspec.json.Decoder(ListMeta)


class ListBody:
    """The body of an answer that has a list, or a page of one."""

    __slots__ = ("_body", "_is_usual")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._is_usual = _is_usual(body)

    @property
    def most_bytes(self) -> int:
        """What it takes at most, and `cut` beside it between its pieces of work."""
        size = len(self._body)
        if self._is_usual:
            return size
        return size + _MAX_OUTLINE_BYTES + _CUT_ITEM_BYTES * min(size // _MIN_ITEM_BYTES, MAX_ITEMS)

    def cut(self) -> Generator[None, None, ListedPage]:
        """Yields between two pieces of work; returns the page. Raises GarbageError."""
        if self._is_usual:
            page = _decoded(_PAGES, self._body)
            return ListedPage(page.metadata, page.items or ())
        outline, objects = yield from _outlined(self._body)
        found = _decoded(_OUTLINES, outline)
        yield
        view = memoryview(self._body)

        def at(number: int) -> memoryview:
            if not 0 <= number < len(objects):
                raise GarbageError("not a list: an item that is no object")
            begin, end = objects[number]
            return view[begin:end]

        metadata = ListMeta() if found.metadata is None else _decoded(_METADATA, at(found.metadata))
        items: list[msgspec.Raw] = []
        for number in found.items or ():
            items.append(msgspec.Raw(at(number)))
            if len(items) % _SLICE_ITEMS == 0:
                yield
        return ListedPage(metadata, items)


def _is_usual(body: bytes) -> bool:
    size = len(body)
    if size <= _ANY_BYTES or size > _USUAL_BYTES:
        return size <= _ANY_BYTES
    return not deep_json.has_as_many(body, b"{", size // _USUAL_OBJECT_BYTES + 1)


def _outlined(body: bytes) -> Generator[None, None, tuple[bytes, list[tuple[int, int]]]]:
    """The list with a number in place of each object in it, and where these begin and end."""
    outline = bytearray()
    objects: list[tuple[int, int]] = []
    at = begun = kept = depth = steps = 0
    while at < len(body):
        steps += 1
        if steps >= _STEPS:
            steps = 0
            yield
        found = _NEXT.search(body, at, at + _WINDOW_BYTES)
        if found is None:
            at += _WINDOW_BYTES
            steps += _WINDOW_STEPS
            continue
        place, at = found.start(), found.end()
        if body[place] == _QUOTE:
            while (inside := _IN_STRING.match(body, at, at + _WINDOW_BYTES)) is not None:
                steps += 1 + (inside.end() - at) * _WINDOW_STEPS // _WINDOW_BYTES
                at = inside.end()
                if steps >= _STEPS:
                    steps = 0
                    yield
            if body[at : at + 1] != b'"':
                raise GarbageError("not a list: a string without an end")
            at += 1
        elif body[place] == _OPEN:
            depth += 1
            if depth == 2:
                begun = place
                _check_outline(len(outline) + place - kept)
                outline += body[kept:place]
                outline += b"%d" % len(objects)
        else:
            if depth == 2:
                objects.append((begun, at))
                kept = at
                if len(objects) > MAX_ITEMS:
                    raise GarbageError(f"a list of more than {MAX_ITEMS} objects")
            depth -= 1
            if depth < 0:
                raise GarbageError("not a list: a brace too many")
    if depth:
        raise GarbageError("not a list: it has no end")
    _check_outline(len(outline) + len(body) - kept)
    outline += body[kept:]
    return bytes(outline), objects


def _check_outline(size: int) -> None:
    if size > _MAX_OUTLINE_BYTES:
        raise GarbageError("not a list: too much of it is no object")


def _decoded(decoder: "msgspec.json.Decoder[T]", data: bytes | memoryview) -> T:
    try:
        return deep_json.decode(decoder, data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise GarbageError(f"not a list: {error}") from None
