# SPDX-License-Identifier: Apache-2.0
"""The splitter of Kubernetes lists: items are those of the JSON document, however the bytes arrive."""

import json
from typing import Any

from tests.fuzz.invariants import same_however_divided
from tests.fuzz.target import FuzzTarget
from vnagent.core.list_splitter import Item, ListSplitter, SplitError, TooLarge, complete_members

# Small, so that inputs reach them.
_MAX_ITEM_BYTES = 120
_MAX_FRAME_BYTES = 250


def _read(pieces: list[bytes]) -> tuple[list[Item], bytes] | None:
    splitter = ListSplitter(max_item_bytes=_MAX_ITEM_BYTES, max_frame_bytes=_MAX_FRAME_BYTES)
    found: list[Item] = []
    try:
        for piece in pieces:
            found += splitter.feed(piece)
        found += splitter.end()
    except SplitError:
        return None
    return found, splitter.frame()


def _is_too_large(data: bytes) -> bool:
    found = _read([data[at : at + 1] for at in range(len(data))])
    return found is not None and any(isinstance(item, TooLarge) for item in found[0])


def check(data: bytes) -> None:
    _check_members(data)
    if _is_too_large(data):
        # Of such an item only the brackets are counted once it is known to be too large.
        return
    found = same_however_divided(data, _read)
    if found is None:
        return
    items, frame = found
    # The limit is without the bracket at the end.
    assert len(frame) <= _MAX_FRAME_BYTES + 1
    assert all(isinstance(item, bytes) and len(item) <= _MAX_ITEM_BYTES for item in items)
    try:
        whole = _pairs(data)
    except RecursionError:
        return  # ours goes deeper than json, as API servers do
    lists = [value for key, value in whole if key == "items" and isinstance(value, list)]
    assert [_json(item) for item in items if isinstance(item, bytes)] == (lists[0] if lists else [])
    assert _pairs(frame) == tuple(
        (key, [] if key == "items" and isinstance(value, list) else value) for key, value in whole
    )


def _check_members(data: bytes) -> None:
    """What is complete of an object that is cut off is JSON, and nothing of it is invented."""
    members = _pairs(complete_members(data))
    try:
        whole = _pairs(data)
    except (ValueError, RecursionError):
        return
    assert members == whole[: len(members)]


def _json(data: bytes) -> Any:
    """The value, with objects as tuples of pairs: keys may come twice."""
    # Skipped text is not decoded, and so may be of another encoding.
    return json.loads(data.decode("utf-8", "surrogateescape"), object_pairs_hook=tuple)


def _pairs(data: bytes) -> tuple[tuple[str, Any], ...]:
    """The members of an object. Raises ValueError for another value."""
    found = _json(data)
    if not isinstance(found, tuple):
        raise ValueError("not an object")
    return found


TARGET = FuzzTarget(
    check,
    seeds=(
        b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},'
        b'"items":[{"a":1},{"b":[{}]}]}',
        b' {"items" : [ {"a" : "]}\\"\\\\" } , {} ] , "kind":"x", "n":-1.5e3, "t":true }\n',
        b'{"items":[{"a":"' + b"x" * 150 + b'"},{"b":2}],"items2":[]}',
        # With its comma one byte more than the limit.
        b'{"kind":"' + b"x" * 230 + b'","items":[{}]}',
        b'{"items":null,"metadata":{"continue":""}}',
        b'{"\\u0069tems":[{"a":"\\ud83d\\udc33"}]}',
    ),
    tokens=(
        *(
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b'"',
            b"\\",
            b'\\"',
            b"\\u00",
            b"\\ud800",
            b"null",
            b"true",
            b"nul",
        ),
        *(
            b'"items":',
            b'"items":[{}]',
            b'"it\\u0065ms":[',
            b"-",
            b"0",
            b"1e5",
            b"1.",
            b"01",
            b" ",
            b"\n",
            b"\x00",
        ),
        *(
            b"\xff",
            b"\xc3",
            b"NaN",
            b"[[[[[[[[",
            b'{"a":{"a":',
            b"12345678901234567890",
            b"//",
            b"\xef\xbb\xbf",
        ),
    ),
)
