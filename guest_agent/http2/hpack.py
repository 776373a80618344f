# SPDX-License-Identifier: Apache-2.0
"""Header compression (RFC 7541), as far as one call needs it."""

# Of the static table; the names of all others say nothing to us.
_STATUS_AT = {8: "200", 9: "204", 10: "206", 11: "304", 12: "400", 13: "404", 14: "500"}
_STATIC_ENTRIES = 61
_UNREAD = "(coded)"


class BadHttp2(Exception):  # noqa: N818 - what the peer did, as `BadMessage`
    """Bytes that no node sends."""


def literal(name: str, value: str) -> bytes:
    """A field that is not to be remembered, and not coded. Both are shorter than 127 bytes."""
    one, other = name.encode(), value.encode()
    if max(len(one), len(other)) >= 0x7F:
        raise ValueError(f"{name} is too long")
    return b"".join((b"\0", bytes((len(one),)), one, bytes((len(other),)), other))


def read_headers(block: bytes) -> dict[str, str]:
    """The fields of a header block that were not written by reference, and `:status`.

    What is Huffman coded is "(coded)": it is told to persons alone, and the node's gRPC writes plain
    text. Raises `BadHttp2`, also for a reference to a table that the node was not allowed to have.
    """
    fields: dict[str, str] = {}
    position = 0
    while position < len(block):
        first = block[position]
        if first & 0x80:
            index, position = _integer(block, position, 7)
            _check_index(index)
            if index in _STATUS_AT:
                fields[":status"] = _STATUS_AT[index]
            continue
        if first & 0xE0 == 0x20:
            size, position = _integer(block, position, 5)
            if size:
                raise BadHttp2("a table of headers, which was not allowed")
            continue
        index, position = _integer(block, position, 6 if first & 0x40 else 4)
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
        raise BadHttp2("a header of a table that it may not have")


def _integer(block: bytes, position: int, bits: int) -> tuple[int, int]:
    """A number and where it ends (RFC 7541, 5.1)."""
    if position >= len(block):
        raise BadHttp2("headers that are cut")
    mask = (1 << bits) - 1
    number = block[position] & mask
    position += 1
    if number < mask:
        return number, position
    for shift in (0, 7, 14):
        if position >= len(block):
            break
        byte = block[position]
        position += 1
        number += (byte & 0x7F) << shift
        if not byte & 0x80:
            return number, position
    raise BadHttp2("headers that are cut, or a number that is too large")


def _text(block: bytes, position: int) -> tuple[str, int]:
    """A string and where it ends (RFC 7541, 5.2)."""
    is_coded = position < len(block) and bool(block[position] & 0x80)
    length, start = _integer(block, position, 7)
    end = start + length
    if end > len(block):
        raise BadHttp2("headers that are cut")
    return _UNREAD if is_coded else block[start:end].decode("utf-8", "replace"), end
