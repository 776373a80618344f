# SPDX-License-Identifier: Apache-2.0
"""Netlink messages in a guest: only the documented error, and a deletion names the entry that was read."""

import ipaddress
import struct

from guest_agent.netlink.conntrack import ConntrackEntry, read_entry
from guest_agent.netlink.nfnetlink import (
    CT_NEW,
    NFT_NEW_GENERATION,
    NFT_NEW_TABLE,
    NetlinkFormatError,
    NetlinkMessage,
    attribute,
    attributes,
    generation,
    messages,
    request,
    table,
    table_probe,
)
from tests.fuzz.invariants import only
from tests.fuzz.target import FuzzTarget


def check(data: bytes) -> None:
    found = only(NetlinkFormatError, _messages, data)
    for message in found or ():
        assert len(message.payload) <= len(data)
        only(NetlinkFormatError, generation, message)
        only(NetlinkFormatError, table, message)
        _check_entry(message.payload)
    _check_entry(data)


def _messages(data: bytes) -> list[NetlinkMessage]:
    return list(messages(data))


def _check_entry(payload: bytes) -> None:
    parts = only(NetlinkFormatError, attributes, payload)
    if parts is not None:
        assert attributes(b"".join(attribute(kind, value) for kind, value in parts.items())) == parts
    entry = only(NetlinkFormatError, read_entry, payload)
    if isinstance(entry, ConntrackEntry):
        assert parts is not None
        assert attributes(entry.key).items() <= parts.items()
        for address in (entry.destination.ip, entry.reply_source.ip):
            assert str(ipaddress.ip_address(address)) == address


def _tuple(source: bytes, destination: bytes) -> bytes:
    first = 1 if len(source) == 4 else 3
    address = attribute(first, source) + attribute(first + 1, destination)
    ports = (
        attribute(1, b"\x11") + attribute(2, struct.pack("!H", 40000)) + attribute(3, struct.pack("!H", 53))
    )
    return attribute(1, address, is_nested=True) + attribute(2, ports, is_nested=True)


def _entry(source: bytes, destination: bytes) -> bytes:
    return (
        attribute(1, _tuple(source, destination), is_nested=True)
        + attribute(2, _tuple(destination, source), is_nested=True)
        + attribute(3, b"\0\0\0\x02")
        + attribute(12, b"\0\0\0\x09")
        + attribute(18, b"\0\x05")
    )


_ENTRY = _entry(bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2)))
TARGET = FuzzTarget(
    check,
    seeds=(
        request(CT_NEW, 0, 1, 2, _ENTRY) + struct.pack("=IHHIIi", 20, 3, 2, 1, 0, 0),
        request(CT_NEW, 0x10, 1, 10, _entry(bytes(15) + b"\1", bytes(15) + b"\2")),
        request(NFT_NEW_GENERATION, 0, 7, 0, attribute(1, b"\0\0\0\x05")),
        request(NFT_NEW_TABLE, 0, 7, 2, attribute(1, b"vcnode\0"))
        + struct.pack("=IHHIIi", 20, 2, 0, 7, 0, -2),
        table_probe(3, 2, "vcnode"),
        _ENTRY,
    ),
    tokens=(
        *(
            b"\0\0\0\0",
            b"\x04\0\x01\0",
            b"\x03\0\0\0",
            b"\xff\xff\x01\x80",
            b"\x08\0\x01\0\x0a\0\0\1",
            b"\x10\0\0\0",
        ),
        *(
            b"\x05\0\x01\0\x06\0\0\0",
            b"\x14\0\x03\0",
            b"\x06\0\x02\0\0\x35\0\0",
            b"\x0f\0\0\0",
            b"\x05\0\0\0",
        ),
    ),
    max_bytes=1024,
)
