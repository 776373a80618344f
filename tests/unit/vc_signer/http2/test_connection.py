# SPDX-License-Identifier: Apache-2.0
"""Calls of gRPC in HTTP/2, with frames written by hand. tests/functional uses the real gRPC."""

import contextlib
import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.http2 import PREFACE, Http2Error, frame, literal
from vc_signer.http2.connection import (
    INVALID_ARGUMENT,
    MAX_MESSAGE_BYTES,
    MAX_STREAMS,
    GrpcServerConnection,
    UnaryCall,
)

DATA, HEADERS, PRIORITY_FRAME, RST_STREAM, SETTINGS, PUSH_PROMISE = 0, 1, 2, 3, 4, 5
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 1, 1, 4, 8, 0x20
RESPONSE = literal(":status", "200") + literal("content-type", "application/grpc")
OK = literal("grpc-status", "0")
# :method POST by reference.
REQUEST = b"\x83" + literal(":path", "/v1.X/Y") + literal("content-type", "application/grpc+proto")

Frames = list[tuple[int, int, int, bytes]]


def frames(data: bytes) -> Frames:
    found = []
    while data:
        length = int.from_bytes(data[:3], "big")
        found.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + length]))
        data = data[9 + length :]
    return found


def written(connection: GrpcServerConnection) -> Frames:
    """The frames to send; they count as sent."""
    out = connection.data_to_send()
    found = frames(bytes(out))
    out.clear()
    return found


def message(text: bytes) -> bytes:
    return struct.pack(">BI", 0, len(text)) + text


def number(value: int) -> bytes:
    return struct.pack(">I", value)


def setting(name: int, value: int) -> bytes:
    return struct.pack(">HI", name, value)


def call(stream: int, text: bytes = b"", headers: bytes = REQUEST) -> bytes:
    body = message(text)
    pieces = [body[at : at + 16384] for at in range(0, len(body), 16384)]
    data = [frame(DATA, END_STREAM if each is pieces[-1] else 0, stream, each) for each in pieces]
    return frame(HEADERS, END_HEADERS, stream, headers) + b"".join(data)


def started(first: bytes = b"") -> GrpcServerConnection:
    """A connection behind its beginning, with the client's first settings."""
    connection = GrpcServerConnection()
    assert connection.receive_data(PREFACE + frame(SETTINGS, 0, 0, first)) == []
    assert written(connection) == [(SETTINGS, 0, 0, setting(3, MAX_STREAMS)), (SETTINGS, ACK, 0, b"")]
    return connection


def received(calls: list[UnaryCall]) -> list[tuple[int, str, bytes]]:
    return [(each.stream, each.path, each.message) for each in calls]


def status(stream: int, code: int, text: str) -> tuple[int, int, int, bytes]:
    fields = literal("grpc-status", str(code)) + literal("grpc-message", text)
    return HEADERS, END_HEADERS | END_STREAM, stream, RESPONSE + fields


def test_a_call_and_its_response() -> None:
    connection = started()
    assert received(connection.receive_data(call(1, b"request"))) == [(1, "/v1.X/Y", b"request")]
    assert written(connection) == [(WINDOW_UPDATE, 0, 0, number(12))]
    assert connection.is_incomplete
    connection.respond(1, b"response")
    assert written(connection) == [
        (HEADERS, END_HEADERS, 1, RESPONSE),
        (DATA, 0, 1, message(b"response")),
        (HEADERS, END_HEADERS | END_STREAM, 1, OK),
    ]
    assert connection.is_flushed
    assert not connection.is_incomplete


def test_calls_however_divided() -> None:
    data = PREFACE + frame(SETTINGS, 0, 0, b"") + call(1, b"one") + call(3, b"three")
    for size in (1, 2, 5, 13, len(data)):
        connection = GrpcServerConnection()
        pieces = [connection.receive_data(data[at : at + size]) for at in range(0, len(data), size)]
        assert received(list(itertools.chain(*pieces))) == [
            (1, "/v1.X/Y", b"one"),
            (3, "/v1.X/Y", b"three"),
        ]


def test_headers_in_parts_with_padding_and_priority() -> None:
    connection = started()
    head = b"\x02" + bytes(5) + REQUEST[:4] + b"\0\0"
    data = (
        frame(HEADERS, PADDED | PRIORITY, 1, head)
        + frame(CONTINUATION, END_HEADERS, 1, REQUEST[4:])
        + frame(DATA, PADDED | END_STREAM, 1, b"\x03" + message(b"m") + bytes(3))
    )
    assert received(connection.receive_data(data)) == [(1, "/v1.X/Y", b"m")]


def test_a_failed_call_has_a_status() -> None:
    connection = started()
    connection.receive_data(call(1))
    written(connection)
    connection.fail(1, INVALID_ARGUMENT, "no\r\nclaims é 100%")
    assert written(connection) == [status(1, 3, "noclaims  100")]
    connection.fail(1, INVALID_ARGUMENT, "again")
    connection.respond(1, b"late")
    assert written(connection) == []


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (frame(HEADERS, END_HEADERS | END_STREAM, 1, REQUEST), "the request has no message"),
        (
            frame(HEADERS, END_HEADERS, 1, REQUEST) + frame(DATA, END_STREAM, 1, message(b"ab") * 2),
            "the request is not one message",
        ),
        (
            frame(HEADERS, END_HEADERS, 1, REQUEST) + frame(DATA, END_STREAM, 1, message(b"abc")[:-1]),
            "the request is not one message",
        ),
    ],
)
def test_requests_that_are_no_message_fail(data: bytes, text: str) -> None:
    connection = started()
    assert connection.receive_data(data) == []
    assert [each for each in written(connection) if each[0] == HEADERS] == [status(1, 13, text)]
    assert not connection.is_incomplete


def test_compressed_requests_fail() -> None:
    connection = started()
    data = frame(HEADERS, END_HEADERS, 1, REQUEST) + frame(DATA, END_STREAM, 1, b"\1" + number(1) + b"x")
    assert connection.receive_data(data) == []
    assert status(1, 12, "compressed requests are not supported") in written(connection)


@pytest.mark.parametrize(
    "headers",
    [
        b"\x82" + literal("content-type", "application/grpc"),
        b"\x83" + literal("content-type", "text/html"),
        b"\x83",
    ],
)
def test_what_is_no_call_of_grpc_is_refused(headers: bytes) -> None:
    connection = started()
    assert connection.receive_data(call(1, b"x", headers)) == []
    found = written(connection)
    assert found[:2] == [status(1, 13, "this is no call of gRPC"), (RST_STREAM, 0, 1, number(0))]
    assert received(connection.receive_data(call(3))) == [(3, "/v1.X/Y", b"")]


def test_a_request_that_is_too_large_is_refused() -> None:
    connection = started()
    assert received(connection.receive_data(call(1, b"x" * MAX_MESSAGE_BYTES)))[0][0] == 1
    assert connection.receive_data(call(3, b"x" * (MAX_MESSAGE_BYTES + 1))) == []
    found = [each for each in written(connection) if each[0] != WINDOW_UPDATE]
    assert found == [status(3, 8, "a request has at most 61440 bytes"), (RST_STREAM, 0, 3, number(0))]


def test_calls_at_once_are_limited() -> None:
    connection = started()
    streams = range(1, 2 * MAX_STREAMS, 2)
    for stream in streams:
        connection.receive_data(frame(HEADERS, END_HEADERS, stream, REQUEST))
    last = 2 * MAX_STREAMS + 1
    assert connection.receive_data(call(last)) == []
    assert (RST_STREAM, 0, last, number(7)) in written(connection)
    connection.receive_data(frame(RST_STREAM, 0, 1, number(8)))
    assert received(connection.receive_data(call(last + 2))) == [(last + 2, "/v1.X/Y", b"")]


def test_responses_wait_for_windows() -> None:
    connection = started(setting(4, 10))
    connection.receive_data(call(1) + call(3))
    written(connection)
    connection.respond(1, b"a" * 20)
    assert written(connection) == [(HEADERS, END_HEADERS, 1, RESPONSE), (DATA, 0, 1, message(b"a" * 20)[:10])]
    assert not connection.is_flushed
    connection.receive_data(frame(SETTINGS, 0, 0, setting(4, 12)))
    assert written(connection) == [(SETTINGS, ACK, 0, b""), (DATA, 0, 1, b"a" * 2)]
    connection.receive_data(frame(SETTINGS, 0, 0, setting(4, 0)))
    assert written(connection) == [(SETTINGS, ACK, 0, b"")]
    connection.receive_data(frame(WINDOW_UPDATE, 0, 1, number(100)))
    assert written(connection) == [(DATA, 0, 1, b"a" * 13), (HEADERS, END_HEADERS | END_STREAM, 1, OK)]
    assert connection.is_incomplete, "the other call waits for its response"


def test_all_responses_share_a_window() -> None:
    connection = started(setting(4, 1 << 20))
    connection.receive_data(call(1))
    connection.respond(1, b"a" * 70_000)
    sent = b"".join(payload for kind, _, _, payload in written(connection) if kind == DATA)
    assert len(sent) == 65_535
    connection.receive_data(frame(WINDOW_UPDATE, 0, 0, number(1 << 20)))
    found = written(connection)
    assert sum(len(payload) for kind, _, _, payload in found if kind == DATA) == 70_005 - 65_535
    assert found[-1] == (HEADERS, END_HEADERS | END_STREAM, 1, OK)


def test_pings_are_answered() -> None:
    connection = started()
    connection.receive_data(frame(PING, 0, 0, b"12345678") + frame(PING, ACK, 0, bytes(8)))
    assert written(connection) == [(PING, ACK, 0, b"12345678")]


def test_frames_of_ended_streams_and_unknown_ones_are_ignored() -> None:
    connection = started()
    connection.receive_data(call(3))
    connection.fail(3, 14, "later")
    written(connection)
    data = (
        frame(DATA, END_STREAM, 3, message(b"x"))
        + frame(HEADERS, END_HEADERS | END_STREAM, 1, REQUEST)
        + frame(WINDOW_UPDATE, 0, 3, number(1))
        + frame(RST_STREAM, 0, 3, number(8))
        + frame(PRIORITY_FRAME, 0, 3, bytes(5))
        + frame(GOAWAY, 0, 0, bytes(8))
        + frame(0x99, 0xFF, 3, b"x")
    )
    assert connection.receive_data(data) == []
    assert written(connection) == [(WINDOW_UPDATE, 0, 0, number(6))]


def test_the_end_names_the_last_call() -> None:
    connection = started()
    connection.receive_data(call(5))
    written(connection)
    connection.end()
    assert written(connection) == [(GOAWAY, 0, 0, number(5) + number(0))]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\0\x40\x01" + bytes(6), "a frame of 16385 bytes"),
        (frame(CONTINUATION, END_HEADERS, 1, REQUEST), "CONTINUATION"),
        (frame(HEADERS, 0, 1, REQUEST) + frame(DATA, 0, 1, b""), "CONTINUATION"),
        (frame(HEADERS, 0, 1, REQUEST) + frame(CONTINUATION, 4, 3, b""), "of two streams"),
        (frame(HEADERS, 0, 1, b"\0" * 9_000) + frame(CONTINUATION, 4, 1, b"\0" * 9_000), "too long"),
        (frame(HEADERS, END_HEADERS, 2, REQUEST), "even"),
        (frame(HEADERS, END_HEADERS, 1, REQUEST) * 2, "trailers"),
        (frame(HEADERS, END_HEADERS | PADDED, 1, b"\x09"), "padding"),
        (frame(DATA, 0, 1, b""), "outside of a stream"),
        (frame(DATA, 0, 0, b""), "outside of a stream"),
        (frame(PUSH_PROMISE, 0, 1, b""), "PUSH_PROMISE"),
        (frame(PING, 0, 0, b"1"), "PING"),
        (frame(SETTINGS, 0, 0, b"1"), "SETTINGS are cut short"),
        (frame(SETTINGS, 0, 0, setting(4, 1 << 31)), "window"),
        (frame(WINDOW_UPDATE, 0, 0, number(0x7FFFFFFF)), "window"),
        (frame(WINDOW_UPDATE, 0, 0, b""), "length"),
        (frame(PING, 0, 0, bytes(8)) * 20_000, "does not read our answers"),
    ],
)
def test_violations_end_the_connection(data: bytes, why: str) -> None:
    with pytest.raises(Http2Error, match=why):
        started().receive_data(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"GET / HTTP/1.1\r\n", "no HTTP/2 client"), (PREFACE + frame(PING, 0, 0, bytes(8)), "begin with")],
)
def test_a_connection_begins_as_http2_does(data: bytes, why: str) -> None:
    with pytest.raises(Http2Error, match=why):
        GrpcServerConnection().receive_data(data)


@given(st.lists(st.one_of(st.binary(max_size=40), st.just(call(1, b"x"))), max_size=6))
def test_any_bytes_are_calls_or_an_error(pieces: list[bytes]) -> None:
    connection = started()
    with contextlib.suppress(Http2Error):
        for each in pieces:
            for found in connection.receive_data(each):
                connection.respond(found.stream, b"response")
