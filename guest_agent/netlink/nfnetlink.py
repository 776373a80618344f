# SPDX-License-Identifier: Apache-2.0
"""Encodes and decodes netlink messages of the kernel's netfilter subsystems.

Formats: linux/netlink.h, linux/netfilter/nfnetlink.h, nf_tables.h and nfnetlink_conntrack.h. Headers
and attributes are in host byte order, the values of attributes in network byte order.
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
# Enclose the messages of one transaction; their resource field is the subsystem.
_BATCH_BEGIN, _BATCH_END, _NF_TABLES = 16, 17, 10
_MULTI_DONE, _ERROR = 3, 2
_AF_UNSPEC = 0
_IS_DUMP_INTERRUPTED = 0x10

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_FAMILY = struct.Struct("!BBH")  # family, version 0, resource
_ATTRIBUTE = struct.Struct("=HH")  # length with this header, type
_NESTED, _TYPE_MASK = 0x8000, 0x3FFF


class NetlinkFormatError(Exception):
    """Bytes that do not decode as netlink messages."""


@dataclass(frozen=True, slots=True)
class NetlinkMessage:
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
    """A transaction that creates a table, which the kernel acknowledges, and deletes it."""
    named = attribute(1, name.encode() + b"\0")
    ends = (_BATCH_BEGIN, _BATCH_END)
    begin, end = (
        _HEADER.pack(_HEADER.size + _FAMILY.size, kind, REQUEST, sequence, 0)
        + _FAMILY.pack(_AF_UNSPEC, 0, _NF_TABLES)
        for kind in ends
    )
    created = request(NFT_NEW_TABLE, ACK | CREATE, sequence, family, named)
    return begin + created + request(NFT_DELETE_TABLE, 0, sequence, family, named) + end


def attribute(kind: int, payload: bytes, *, is_nested: bool = False) -> bytes:
    """One attribute, padded."""
    length = _ATTRIBUTE.size + len(payload)
    return _ATTRIBUTE.pack(length, kind | (_NESTED if is_nested else 0)) + payload + b"\0" * (-length % 4)


def attributes(data: bytes) -> dict[int, bytes]:
    """The attributes in `data` by type; the last one of equal types. Raises `NetlinkFormatError`."""
    found: dict[int, bytes] = {}
    position = 0
    while position + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, position)
        if length < _ATTRIBUTE.size or position + length > len(data):
            raise NetlinkFormatError("an attribute is cut short")
        found[kind & _TYPE_MASK] = data[position + _ATTRIBUTE.size : position + length]
        position += (length + 3) & ~3
    return found


def messages(data: bytes) -> Iterator[NetlinkMessage]:
    """The messages of one datagram. Raises `NetlinkFormatError`."""
    position = 0
    while position < len(data):
        if position + _HEADER.size > len(data):
            raise NetlinkFormatError("a header is cut short")
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data, position)
        if length < _HEADER.size or position + length > len(data):
            raise NetlinkFormatError("a message is cut short")
        body = data[position + _HEADER.size : position + length]
        yield _message(kind, flags, sequence, body)
        position += (length + 3) & ~3


def _message(kind: int, flags: int, sequence: int, body: bytes) -> NetlinkMessage:
    interrupted = bool(flags & _IS_DUMP_INTERRUPTED)
    if kind in (_ERROR, _MULTI_DONE):
        # The end of a dump begins with an errno too, 0 for success.
        number = struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
        return NetlinkMessage(kind, sequence, True, interrupted, -number, 0, b"")
    if len(body) < _FAMILY.size:
        raise NetlinkFormatError("a message without its family")
    return NetlinkMessage(kind, sequence, False, interrupted, None, body[0], body[_FAMILY.size :])


def generation(message: NetlinkMessage) -> int | None:
    """The generation of nf_tables' rules in a NEWGEN message; None for another message."""
    if message.type != NFT_NEW_GENERATION:
        return None
    value = attributes(message.payload).get(1)
    return int.from_bytes(value) if value else None


def table(message: NetlinkMessage) -> str | None:
    """The name of the table in a NEWTABLE message; None for another message."""
    if message.type != NFT_NEW_TABLE:
        return None
    value = attributes(message.payload).get(1)
    return value.rstrip(b"\0").decode("utf-8", "replace") if value else None
