# SPDX-License-Identifier: Apache-2.0
"""Client hellos as OpenSSL writes them: whole, cut anywhere and damaged."""

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kata_bridge.channels.agent.tls_hello import MAX_CHUNKS, HelloReader, HelloVerdict, inspect_hello
from tests.cases import client_hello as case


def hello(lowest: ssl.TLSVersion, highest: ssl.TLSVersion) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = lowest, highest
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="kata-bridge.vcnode.internal")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


NEW = hello(ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
OLD = hello(ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)


def test_tls_1_3_is_required() -> None:
    assert inspect_hello(NEW) is HelloVerdict.TLS13
    assert inspect_hello(hello(ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3)) is HelloVerdict.TLS13
    assert inspect_hello(OLD) is HelloVerdict.REJECTED


def test_bytes_behind_the_hello_do_not_matter() -> None:
    assert inspect_hello(NEW + b"anything") is HelloVerdict.TLS13


def test_cut_hello_is_incomplete() -> None:
    assert {inspect_hello(NEW[:at]) for at in range(len(NEW))} == {HelloVerdict.INCOMPLETE}


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_hello_may_span_many_records(sizes: list[int]) -> None:
    body, records = NEW[5:], b""
    for size in sizes:
        part, body = body[:size], body[size:]
        if part:
            records += b"\x16\x03\x01" + len(part).to_bytes(2) + part
    if body:
        records += b"\x16\x03\x01" + len(body).to_bytes(2) + body
    assert inspect_hello(records) is HelloVerdict.TLS13
    assert inspect_hello(records[:-1]) is HelloVerdict.INCOMPLETE


def test_hello_of_one_byte_records_is_rejected() -> None:
    records = [b"\x16\x03\x01\x00\x01" + bytes((byte,)) for byte in NEW[5:]]
    assert inspect_hello(b"".join(records[:31])) is HelloVerdict.INCOMPLETE
    assert inspect_hello(b"".join(records[:40])) is HelloVerdict.REJECTED


def verdicts(pieces: list[bytes]) -> list[HelloVerdict]:
    """The verdict after each piece, until there is one."""
    reader, found = HelloReader(), list[HelloVerdict]()
    for piece in pieces:
        found.append(reader.feed(piece))
        if found[-1] is not HelloVerdict.INCOMPLETE:
            break
    return found


@pytest.mark.parametrize("factor", [1, 2, 4, 8])
def test_a_hello_in_small_pieces_is_inspected_a_few_times(factor: int) -> None:
    """Each inspection begins at the first byte: a byte at a time took time by the square of the length."""
    data = NEW[:5] + b"\x01\x00\x1f\x00" + bytes(factor * 250)
    found = verdicts([data[at : at + 1] for at in range(len(data))])
    assert found == [HelloVerdict.INCOMPLETE] * (MAX_CHUNKS - 1) + [HelloVerdict.REJECTED]


def test_a_hello_may_come_in_some_pieces() -> None:
    size = -(-len(NEW) // MAX_CHUNKS)
    found = verdicts([NEW[at : at + size] for at in range(0, len(NEW), size)])
    assert found[-1] is HelloVerdict.TLS13


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n",
        b"\x15\x03\x01\x00\x02\x01\x00",
        b"\x16\x02\x00\x00\x10",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",
    ],
)
def test_other_bytes_are_rejected(data: bytes) -> None:
    assert inspect_hello(data) is HelloVerdict.REJECTED


@pytest.mark.parametrize("message", [case.many_authorities(), case.many_algorithms(), case.plain(b"\0\0\0")])
def test_expensive_or_broken_hello_is_rejected(message: bytes) -> None:
    assert inspect_hello(case.record(case.plain())) is HelloVerdict.TLS13
    assert inspect_hello(case.record(message)) is HelloVerdict.REJECTED


@given(st.integers(0, len(NEW) - 1), st.integers(0, 255))
def test_damaged_hello_gets_a_verdict(at: int, byte: int) -> None:
    assert inspect_hello(NEW[:at] + bytes((byte,)) + NEW[at + 1 :]) in HelloVerdict


@given(st.binary(max_size=200))
def test_random_bytes_get_a_verdict(data: bytes) -> None:
    assert inspect_hello(data) in HelloVerdict
    assert inspect_hello(b"\x16\x03\x01" + len(data).to_bytes(2) + data) in HelloVerdict
