# SPDX-License-Identifier: Apache-2.0
"""Netlink messages of the kernel's netfilter subsystems, as bytes. Pure.

Formats: linux/netlink.h, linux/netfilter/nfnetlink.h, nf_tables.h and nfnetlink_conntrack.h. Headers
and attributes are in the machine's byte order, what attributes hold is in the network's.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

# Types of messages: subsystem << 8 | command.
NFT_GET_GENERATION = 10 << 8 | 16
NFT_NEW_GENERATION = 10 << 8 | 15
NFT_NEW_TABLE = 10 << 8 | 0
NFT_GET_TABLE = 10 << 8 | 1
NFT_DELETE_TABLE = 10 << 8 | 2
CT_NEW = 1 << 8 | 0
CT_GET = 1 << 8 | 1
CT_DELETE = 1 << 8 | 2

REQUEST, ACK, DUMP, CREATE = 0x1, 0x4, 0x300, 0x400
# What encloses messages that are one transaction; its subsystem stands where others have 0.
_BATCH_BEGIN, _BATCH_END, _NF_TABLES = 16, 17, 10
_MULTI_DONE, _ERROR = 3, 2
_AF_UNSPEC = 0
_IS_DUMP_INTERRUPTED = 0x10

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_FAMILY = struct.Struct("!BBH")  # family, version 0, resource
_ATTRIBUTE = struct.Struct("=HH")  # length with this header, type
_NESTED, _TYPE_MASK = 0x8000, 0x3FFF


class BadNetlink(Exception):  # noqa: N818 - it says what is bad
    """Bytes that are no netlink message."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `error` is the errno of an acknowledgement, 0 for success, None for another type."""

    type: int
    sequence: int
    is_last: bool
    was_interrupted: bool
    error: int | None
    family: int
    payload: bytes


def request(kind: int, flags: int, sequence: int, family: int, payload: bytes = b"") -> bytes:
    """One request to a netfilter subsystem; `family` is AF_UNSPEC, AF_INET or AF_INET6."""
    body = _FAMILY.pack(family, 0, 0) + payload
    return _HEADER.pack(_HEADER.size + len(body), kind, REQUEST | flags, sequence, 0) + body


def table_probe(sequence: int, family: int, name: str) -> bytes:
    """A transaction that makes a table, of which the kernel says what it thinks, and takes it away."""
    named = attribute(1, name.encode() + b"\0")
    ends = (_BATCH_BEGIN, _BATCH_END)
    begin, end = (
        _HEADER.pack(_HEADER.size + _FAMILY.size, kind, REQUEST, sequence, 0)
        + _FAMILY.pack(_AF_UNSPEC, 0, _NF_TABLES)
        for kind in ends
    )
    made = request(NFT_NEW_TABLE, ACK | CREATE, sequence, family, named)
    return begin + made + request(NFT_DELETE_TABLE, 0, sequence, family, named) + end


def attribute(kind: int, payload: bytes, *, is_nested: bool = False) -> bytes:
    """One attribute, padded."""
    length = _ATTRIBUTE.size + len(payload)
    return _ATTRIBUTE.pack(length, kind | (_NESTED if is_nested else 0)) + payload + b"\0" * (-length % 4)


def attributes(data: bytes) -> dict[int, bytes]:
    """The attributes in `data` by type; of one that comes twice, the last. Raises `BadNetlink`."""
    found: dict[int, bytes] = {}
    position = 0
    while position + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, position)
        if length < _ATTRIBUTE.size or position + length > len(data):
            raise BadNetlink("an attribute is cut short")
        found[kind & _TYPE_MASK] = data[position + _ATTRIBUTE.size : position + length]
        position += (length + 3) & ~3
    return found


def messages(data: bytes) -> Iterator[Message]:
    """The messages of one datagram. Raises `BadNetlink`."""
    position = 0
    while position < len(data):
        if position + _HEADER.size > len(data):
            raise BadNetlink("a header is cut short")
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data, position)
        if length < _HEADER.size or position + length > len(data):
            raise BadNetlink("a message is cut short")
        body = data[position + _HEADER.size : position + length]
        yield _message(kind, flags, sequence, body)
        position += (length + 3) & ~3


def _message(kind: int, flags: int, sequence: int, body: bytes) -> Message:
    interrupted = bool(flags & _IS_DUMP_INTERRUPTED)
    if kind in (_ERROR, _MULTI_DONE):
        # Of the end of a dump too the first number is an errno, 0 if all went well.
        number = struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
        return Message(kind, sequence, True, interrupted, -number, 0, b"")
    if len(body) < _FAMILY.size:
        raise BadNetlink("a message without its family")
    return Message(kind, sequence, False, interrupted, None, body[0], body[_FAMILY.size :])


def generation(message: Message) -> int | None:
    """The generation of nf_tables' rules that a NEWGEN message tells, else None."""
    if message.type != NFT_NEW_GENERATION:
        return None
    value = attributes(message.payload).get(1)
    return int.from_bytes(value) if value else None


def table(message: Message) -> str | None:
    """The name of the table that a NEWTABLE message tells of, else None."""
    if message.type != NFT_NEW_TABLE:
        return None
    value = attributes(message.payload).get(1)
    return value.rstrip(b"\0").decode("utf-8", "replace") if value else None
