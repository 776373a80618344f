# SPDX-License-Identifier: Apache-2.0
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest_agent.netlink import nfnetlink as netlink
from guest_agent.netlink.nfnetlink import (
    NetlinkFormatError,
    NetlinkMessage,
    attribute,
    attributes,
    messages,
    request,
)


def test_a_request_is_encoded() -> None:
    made = request(netlink.NFT_GET_GENERATION, 0, 7, 2)
    assert made == struct.pack("=IHHII", 20, 0x0A10, 1, 7, 0) + b"\2\0\0\0"


@given(st.dictionaries(st.integers(1, 100), st.binary(max_size=20), max_size=5))
def test_attributes_survive_encoding(found: dict[int, bytes]) -> None:
    data = b"".join(attribute(kind, payload, is_nested=kind % 2 == 0) for kind, payload in found.items())
    assert len(data) % 4 == 0
    assert attributes(data) == found


def test_the_generation_is_decoded() -> None:
    data = request(
        netlink.NFT_NEW_GENERATION, 0, 3, 0, attribute(1, (258).to_bytes(4)) + attribute(2, b"\0\0\0\1")
    )
    (message,) = messages(data)
    assert message.sequence == 3
    assert netlink.generation(message) == 258
    assert netlink.generation(NetlinkMessage(0, 0, False, False, None, 0, b"")) is None


def test_the_name_of_a_table_is_decoded() -> None:
    data = request(netlink.NFT_NEW_TABLE, 0, 3, 2, attribute(1, b"vcnode\0") + attribute(2, b"\0\0\0\0"))
    (message,) = messages(data)
    assert (message.family, netlink.table(message)) == (2, "vcnode")
    assert netlink.generation(message) is None


@pytest.mark.parametrize(("number", "error"), [(0, 0), (-2, 2)])
def test_acknowledgements_and_errors_are_decoded(number: int, error: int) -> None:
    data = struct.pack("=IHHIIi", 20, 2, 0, 9, 0, number)
    assert list(messages(data)) == [NetlinkMessage(2, 9, True, False, error, 0, b"")]


def test_an_interrupted_dump_is_marked() -> None:
    (done,) = messages(struct.pack("=IHHIIi", 20, 3, 0x12, 9, 0, 0))
    assert (done.is_last, done.was_interrupted, done.error) == (True, True, 0)


@pytest.mark.parametrize(
    "data", [b"\1", struct.pack("=IHHII", 15, 0, 0, 0, 0), struct.pack("=IHHII", 99, 0, 0, 0, 0)]
)
def test_a_truncated_message_is_an_error(data: bytes) -> None:
    with pytest.raises(NetlinkFormatError):
        list(messages(data))


@given(st.binary(max_size=100))
def test_any_bytes_are_decoded_or_an_error(data: bytes) -> None:
    for read in (lambda: list(messages(data)), lambda: attributes(data)):
        try:
            read()
        except NetlinkFormatError:
            continue


def test_a_family_probe_leaves_nothing() -> None:
    name = attribute(1, b"t\0")
    begin, made, gone, end = messages(netlink.table_probe(7, socket.AF_INET6, "t"))
    assert [(each.type, each.sequence, each.family) for each in (begin, made, gone, end)] == [
        (16, 7, socket.AF_UNSPEC),
        (netlink.NFT_NEW_TABLE, 7, socket.AF_INET6),
        (netlink.NFT_DELETE_TABLE, 7, socket.AF_INET6),
        (17, 7, socket.AF_UNSPEC),
    ]
    assert [made.payload, gone.payload] == [name, name]
    data = netlink.table_probe(7, socket.AF_INET6, "t")
    # NFNL_SUBSYS_NFTABLES in network byte order; 0 in other messages.
    assert data[18:20] == data[-2:] == b"\x00\x0a"
    # REQUEST | ACK | CREATE: this one is acknowledged, the others only on errors.
    assert struct.unpack_from("=IHH", data, 20)[2] == 0x405
