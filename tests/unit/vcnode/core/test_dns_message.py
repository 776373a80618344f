# SPDX-License-Identifier: Apache-2.0
import struct

import dns.message
import pytest

from vcnode.core.dns_message import (
    BadName,
    DnsAnswer,
    DnsRecord,
    RecordType,
    answer,
    candidates,
    question,
    reverse_name,
)

QUERY = question("api.shop.svc.cluster.local", RecordType.A, 0x1234)


def response(*records: bytes, flags: int = 0x8180) -> dns.message.Message:
    head = struct.pack("!6H", 0x1234, flags, 1, len(records), 0, 0)
    return dns.message.from_wire(head + QUERY.to_wire()[12:] + b"".join(records))


def record(type_: int, data: bytes) -> bytes:
    return b"\xc0\x0c" + struct.pack("!HHIH", type_, 1, 30, len(data)) + data


def test_question_on_the_wire() -> None:
    assert QUERY.to_wire() == (
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
        b"\x03api\x04shop\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01"
    )
    assert question("x.", RecordType.AAAA, 1).to_wire()[12:] == b"\x01x\x00\x00\x1c\x00\x01"


@pytest.mark.parametrize("name", ["", ".", "a..b", "x" * 64, ".".join(["abcdefgh"] * 29)])
def test_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(BadName):
        question(name, RecordType.A, 1)


def test_records_of_all_types_are_read() -> None:
    api = "api.shop.svc.cluster.local"
    found = answer(
        response(
            record(1, b"\x0a\x60\x00\x01"),
            record(28, bytes(15) + b"\x01"),
            record(5, b"\x03web\xc0\x10"),
            record(12, b"\x01a\x01b\x00"),
            record(33, struct.pack("!3H", 0, 100, 8080) + b"\xc0\x0c"),
            record(16, b"\x03one"),
            record(99, b"\x01\x02"),
        )
    )
    assert found == DnsAnswer(
        0,
        False,
        (
            DnsRecord(api, 1, 30, "10.96.0.1"),
            DnsRecord(api, 28, 30, "::1"),
            DnsRecord(api, 5, 30, "web.shop.svc.cluster.local"),
            DnsRecord(api, 12, 30, "a.b"),
            DnsRecord(api, 33, 30, f"0 100 8080 {api}"),
            DnsRecord(api, 16, 30, '"one"'),
            DnsRecord(api, 99, 30, '"\\002"'),
        ),
    )


@pytest.mark.parametrize(
    ("flags", "code", "is_truncated"),
    [
        (0x8180, "NOERROR", False),
        (0x8183, "NXDOMAIN", False),
        (0x8380, "NOERROR", True),
        (0x818C, "RCODE12", False),
    ],
)
def test_header_has_code_and_truncation(flags: int, code: str, is_truncated: bool) -> None:
    found = answer(response(flags=flags))
    assert (found.code, found.is_truncated, found.records) == (code, is_truncated, ())


def test_reverse_name_of_an_address() -> None:
    assert reverse_name("10.96.0.1") == "1.0.96.10.in-addr.arpa."
    assert reverse_name("::1").endswith(".ip6.arpa.")
    with pytest.raises(ValueError, match="does not appear"):
        reverse_name("api")


SEARCHES = ("shop.svc.cluster.local", "svc.cluster.local", ".")


@pytest.mark.parametrize(
    ("name", "ndots", "expected"),
    [
        ("api", 5, ("api.shop.svc.cluster.local", "api.svc.cluster.local", "api")),
        ("api.", 5, ("api",)),
        ("api", 0, ("api", "api.shop.svc.cluster.local", "api.svc.cluster.local")),
        ("a.b", 1, ("a.b", "a.b.shop.svc.cluster.local", "a.b.svc.cluster.local")),
        ("a.b", 2, ("a.b.shop.svc.cluster.local", "a.b.svc.cluster.local", "a.b")),
    ],
)
def test_names_are_tried_by_search_list_and_ndots(name: str, ndots: int, expected: tuple[str, ...]) -> None:
    assert candidates(name, SEARCHES, ndots) == expected
