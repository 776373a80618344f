# SPDX-License-Identifier: Apache-2.0
"""The demo's DNS server, asked and read as the tool does."""

import struct

import dns.message
import pytest
from dns.rcode import Rcode
from hypothesis import given
from hypothesis import strategies as st

from vcnode.core.dns_message import DnsAnswer, DnsRecord, RecordType, question
from vcnode.core.dns_message import answer as answer_of
from vcnode_demo.dns_program import TTL_S, answer

DB = "db.web.svc.cluster.local"
KNOWN = {DB: "10.0.0.31"}


def looked_up(name: str, type_: RecordType = RecordType.A, others: str = "") -> DnsAnswer:
    query = question(name, type_, 7)
    found = answer(query.to_wire(), KNOWN, others)
    assert found is not None
    queried, reply = found
    assert queried == name.lower()
    message = dns.message.from_wire(reply)
    assert query.is_response(message)
    return answer_of(message)


def test_registered_names_are_resolved() -> None:
    assert looked_up(DB) == DnsAnswer(
        Rcode.NOERROR, False, (DnsRecord(DB, RecordType.A, TTL_S, "10.0.0.31"),)
    )
    assert looked_up(DB.upper()).records[0].value == "10.0.0.31"


def test_unknown_names_do_not_exist() -> None:
    assert looked_up("db.web.svc.cluster.globex") == DnsAnswer(Rcode.NXDOMAIN, False, ())
    assert looked_up("db") == DnsAnswer(Rcode.NXDOMAIN, False, ())
    assert looked_up(DB, RecordType.AAAA) == DnsAnswer(Rcode.NOERROR, False, ()), "the name is there"


def test_a_default_address_resolves_all_other_names() -> None:
    assert [each.value for each in looked_up("example.org", others="203.0.113.66").records] == [
        "203.0.113.66"
    ]
    assert [each.value for each in looked_up(DB, others="203.0.113.66").records] == ["10.0.0.31"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        question(DB, RecordType.A, 7).to_wire()[:-1],
        question(DB, RecordType.A, 7).to_wire()[:20],
        struct.pack("!6H", 7, 0x8180, 1, 0, 0, 0) + question(DB, RecordType.A, 7).to_wire()[12:],
        struct.pack("!6H", 7, 0x0100, 2, 0, 0, 0) + question(DB, RecordType.A, 7).to_wire()[12:],
        struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + b"\x02\xc3\xa4\0\0\1\0\1",
    ],
    ids=["nothing", "cut", "cut in the name", "an answer", "two questions", "no ASCII"],
)
def test_malformed_queries_get_no_response(data: bytes) -> None:
    assert answer(data, KNOWN) is None


@given(st.binary(max_size=600))
def test_no_datagram_ends_the_server(data: bytes) -> None:
    answer(data, KNOWN, "203.0.113.66")
