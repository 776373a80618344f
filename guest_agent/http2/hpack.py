# SPDX-License-Identifier: Apache-2.0
"""Header compression (RFC 7541), as far as one call needs it.

We write literals only, and allow the node no dynamic table. So its headers can be read without one:
of them we need the call's status and nothing else.
"""

from daemonkit.http2 import Http2Error, integer

# Of the static table. We need none of the other entries.
_STATUS_AT = {8: "200", 9: "204", 10: "206", 11: "304", 12: "400", 13: "404", 14: "500"}
_STATIC_ENTRIES = 61
_HUFFMAN = "(coded)"


def read_headers(block: bytes) -> dict[str, str]:
    """The literal fields of a header block, and `:status`.

    A Huffman coded value is returned as "(coded)": only people read it, and the node's gRPC writes
    plain text. Raises `Http2Error`, also for a reference to a dynamic table.
    """
    fields: dict[str, str] = {}
    position = 0
    while position < len(block):
        first = block[position]
        if first & 0x80:
            index, position = integer(block, position, 7)
            _check_index(index)
            if index in _STATUS_AT:
                fields[":status"] = _STATUS_AT[index]
            continue
        if first & 0xE0 == 0x20:
            size, position = integer(block, position, 5)
            if size:
                raise Http2Error("a dynamic table, which we disabled")
            continue
        index, position = integer(block, position, 6 if first & 0x40 else 4)
        if index:
            _check_index(index)
            name = ":status" if index in _STATUS_AT else ""
        else:
            name, position = _text(block, position)
        value, position = _text(block, position)
        if name:
            fields[name] = value
    return fields


def _check_index(index: int) -> None:
    if not 0 < index <= _STATIC_ENTRIES:
        raise Http2Error("a header refers to a table entry that does not exist")


def _text(block: bytes, position: int) -> tuple[str, int]:
    """A string and its end (RFC 7541, 5.2)."""
    is_coded = position < len(block) and bool(block[position] & 0x80)
    length, start = integer(block, position, 7)
    end = start + length
    if end > len(block):
        raise Http2Error("headers are cut short")
    return _HUFFMAN if is_coded else block[start:end].decode("utf-8", "replace"), end
