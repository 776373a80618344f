# SPDX-License-Identifier: Apache-2.0
"""The first messages of a TLS 1.2 server, whole, in parts and damaged."""

from __future__ import annotations

import pytest

from tenant_operator.pki.handshake import MAX_FLIGHT_BYTES, HandshakeError, ServerFlight, read_flight


def vector(content: bytes, digits: int) -> bytes:
    return len(content).to_bytes(digits) + content


def message(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + vector(body, 3)


def record(content: bytes, kind: int = 22) -> bytes:
    return bytes([kind, 3, 3]) + vector(content, 2)


HELLO = message(2, b"hello")
CERTIFICATES = message(11, vector(vector(b"leaf", 3) + vector(b"above", 3), 3))
REQUEST = message(
    13, vector(b"\x40", 1) + vector(b"\x04\x03", 2) + vector(vector(b"one", 2) + vector(b"two", 2), 2)
)
DONE = message(14, b"")
FLIGHT = ServerFlight((b"leaf", b"above"), frozenset({b"one", b"two"}))


def test_certificates_and_authorities_are_read() -> None:
    assert read_flight(record(HELLO + CERTIFICATES + REQUEST + DONE)) == FLIGHT
    assert read_flight(record(HELLO + CERTIFICATES + DONE)) == ServerFlight((b"leaf", b"above"))


def test_messages_may_span_records() -> None:
    whole = HELLO + CERTIFICATES + REQUEST + DONE
    for size in (1, 7, 20):
        parts = [record(whole[at : at + size]) for at in range(0, len(whole), size)]
        assert read_flight(b"".join(parts)) == FLIGHT


def test_what_is_not_whole_is_waited_for() -> None:
    whole = record(HELLO + CERTIFICATES) + record(REQUEST + DONE)
    assert [read_flight(whole[:end]) for end in range(len(whole))] == [None] * len(whole)


@pytest.mark.parametrize(
    "data",
    [
        record(b"\x02\x28", kind=21),
        record(message(11, b"\x00\x00")),
        record(message(11, vector(b"\x00\x00\x09leaf", 3))),
        record(message(11, vector(b"", 3) + b"more")),
        record(message(13, b"")),
        b"x" * (MAX_FLIGHT_BYTES + 1),
    ],
)
def test_what_is_no_handshake_is_refused(data: bytes) -> None:
    with pytest.raises(HandshakeError):
        read_flight(data)
