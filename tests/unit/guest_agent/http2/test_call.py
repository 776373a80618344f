# SPDX-License-Identifier: Apache-2.0
"""One gRPC call in HTTP/2, with frames written by hand. tests/functional uses the real gRPC."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.http2 import Http2Error
from guest_agent.http2.call import MAX_MESSAGE_BYTES, MAX_QUEUED_MESSAGES, GrpcCall

DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    *(0, 1, 3, 4, 5),
    *(6, 7, 8, 9),
)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 1, 1, 4, 8, 0x20
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# :status 200 by reference; content-type by a name of the static table.
ANSWER = b"\x88\x0f\x10\x10application/grpc"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def frames(data: bytes) -> list[tuple[int, int, int, bytes]]:
    found = []
    while data:
        length = int.from_bytes(data[:3], "big")
        assert len(data) >= 9 + length
        found.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + length]))
        data = data[9 + length :]
    return found


def written(call: GrpcCall) -> list[tuple[int, int, int, bytes]]:
    """The frames that the call has to send; they count as sent."""
    data = bytes(call.data_to_send())
    call.data_sent(len(data))
    return frames(data.removeprefix(PREFACE))


def field(name: str, value: str, first: int = 0) -> bytes:
    return bytes((first, len(name))) + name.encode() + bytes((len(value),)) + value.encode()


def message(text: bytes) -> bytes:
    return struct.pack(">BI", 0, len(text)) + text


def data(payload: bytes, flags: int = 0) -> bytes:
    """As many frames as the payload needs."""
    pieces = [payload[at : at + 16384] for at in range(0, len(payload), 16384)] or [b""]
    return b"".join(frame(DATA, flags, 1, piece) for piece in pieces)


def setting(number: int, value: int) -> bytes:
    return struct.pack(">HI", number, value)


def widened(stream: int, by: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, by.to_bytes(4, "big"))


@pytest.fixture
def call() -> GrpcCall:
    """A call whose first frames were sent."""
    made = GrpcCall("/s/M", "node")
    made.data_sent(len(made.data_to_send()))
    return made


@pytest.fixture
def open_call(call: GrpcCall) -> GrpcCall:
    """A call to which the node has responded with headers."""
    call.receive_data(frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, ANSWER))
    written(call)
    return call


def ended(call: GrpcCall) -> str:
    return call.ended


def is_flushed(call: GrpcCall) -> bool:
    return call.is_flushed


# ---- frames to the node


def test_a_call_begins_with_settings_and_headers() -> None:
    call = GrpcCall("/s/M", "node")
    data = bytes(call.data_to_send())
    assert data.startswith(PREFACE)
    fields = [
        *((":method", "POST"), (":scheme", "https"), (":path", "/s/M"), (":authority", "node")),
        *(("te", "trailers"), ("content-type", "application/grpc")),
    ]
    assert frames(data.removeprefix(PREFACE)) == [
        (SETTINGS, 0, 0, setting(1, 0) + setting(2, 0) + setting(4, 1 << 20)),
        (WINDOW_UPDATE, 0, 0, ((1 << 20) - 65535).to_bytes(4, "big")),
        (HEADERS, END_HEADERS, 1, b"".join(field(*each) for each in fields)),
    ]
    assert not is_flushed(call)


def test_a_long_path_is_an_error() -> None:
    with pytest.raises(ValueError, match=":path is too long"):
        GrpcCall("/" + "s" * 127, "node")


def test_a_message_is_framed_at_once(call: GrpcCall) -> None:
    call.send_message(b"hello")
    assert written(call) == [(DATA, 0, 1, b"\0\0\0\0\5hello")]
    assert is_flushed(call)


def test_messages_wait_for_both_windows(call: GrpcCall) -> None:
    text = bytes(range(256)) * 300
    call.send_message(text)
    first = written(call)
    assert [len(payload) for *_, payload in first] == [16384, 16384, 16384, 16383]
    assert not is_flushed(call)
    # A window of the connection alone, or of another stream, does not help.
    call.receive_data(widened(0, 5000) + widened(3, 5000))
    assert written(call) == []
    call.receive_data(widened(1, 1000))
    assert [len(payload) for *_, payload in written(call)] == [1000]
    call.receive_data(widened(1, 1 << 20) + widened(0, 1 << 20))
    last = written(call)
    assert is_flushed(call)
    assert last[-1][:3] == (DATA, 0, 1)
    call.send_message(b"x")
    sent = b"".join(payload for *_, payload in first)
    assert message(text).startswith(sent)
    assert len(sent) + 1000 + sum(len(payload) for *_, payload in last) == len(message(text))


def test_windows_count_what_was_sent_before(call: GrpcCall) -> None:
    """Frames that arrive together are handled as those that arrive one by one."""
    call.send_message(b"m" * 200_000)
    most = (1 << 31) - 1
    call.receive_data(widened(0, most) + widened(1, most) + widened(0, 65_535) + widened(1, 65_535))
    assert sum(len(payload) for kind, _, _, payload in written(call) if kind == DATA) == 200_005


def test_a_smaller_window_counts_for_data_in_flight(call: GrpcCall) -> None:
    call.receive_data(widened(0, 1 << 20))
    call.send_message(b"x" * 70_000)
    assert sum(len(payload) for *_, payload in written(call)) == 65535
    # The window is negative until that much is granted.
    call.receive_data(frame(SETTINGS, 0, 0, setting(4, 60_000)))
    assert written(call) == [(SETTINGS, ACK, 0, b"")]
    call.receive_data(widened(1, 5535))
    assert written(call) == []
    call.receive_data(widened(1, 10))
    assert [len(payload) for *_, payload in written(call)] == [10]


def test_a_large_message_is_written_in_pieces(call: GrpcCall) -> None:
    call.receive_data(widened(0, 1 << 30) + widened(1, 1 << 30))
    call.send_message(b"x" * (8 << 20))
    total = 0
    while call.data_to_send():
        assert len(call.data_to_send()) < 1_200_000
        total += 16384 if len(call.data_to_send()) > 16384 else len(call.data_to_send())
        call.data_sent(min(16384, len(call.data_to_send())))
    assert is_flushed(call)
    assert total > 8 << 20


def test_a_ping_is_sent(call: GrpcCall) -> None:
    call.ping()
    assert written(call) == [(PING, 0, 0, bytes(8))]


# ---- frames from the node


def test_messages_are_reassembled_in_order() -> None:
    whole = frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, ANSWER)
    whole += data(message(b"one") + message(b"")[:3]) + data(message(b"")[3:] + message(b"three"))
    for size in (1, 2, 7, len(whole)):
        call = GrpcCall("/s/M", "node")
        for at in range(0, len(whole), size):
            call.receive_data(whole[at : at + size])
        assert [call.next_message() for _ in range(4)] == [b"one", b"", b"three", None]
        assert ended(call) == ""


def test_settings_and_pings_are_acknowledged(call: GrpcCall) -> None:
    call.receive_data(frame(SETTINGS, 0, 0, setting(3, 100) + setting(0x4242, 7)))
    call.receive_data(
        frame(SETTINGS, ACK, 0, b"") + frame(PING, 0, 0, b"12345678") + frame(PING, ACK, 0, bytes(8))
    )
    assert written(call) == [(SETTINGS, ACK, 0, b""), (PING, ACK, 0, b"12345678")]


def test_padding_priority_and_unknown_frames_are_skipped(call: GrpcCall) -> None:
    block = b"\2" + b"\0\0\0\0\x10" + ANSWER + b"\0\0"
    call.receive_data(
        frame(HEADERS, END_HEADERS | PADDED | PRIORITY, 1, block) + frame(0x42, 3, 9, b"anything")
    )
    call.receive_data(frame(DATA, PADDED, 1, b"\1" + message(b"one") + b"\0"))
    assert call.next_message() == b"one"


def test_headers_may_have_continuations(call: GrpcCall) -> None:
    call.receive_data(frame(HEADERS, 0, 1, ANSWER[:5]) + frame(CONTINUATION, 0, 1, ANSWER[5:9]))
    call.receive_data(frame(CONTINUATION, END_HEADERS, 1, ANSWER[9:]) + data(message(b"one")))
    assert call.next_message() == b"one"


def test_the_window_follows_what_was_read(open_call: GrpcCall) -> None:
    large = message(b"x" * (3 << 20))
    sent, granted = 0, 1 << 20
    while sent < len(large):
        piece = large[sent : sent + 16384]
        sent += len(piece)
        assert sent <= granted
        open_call.receive_data(frame(DATA, 0, 1, piece))
        updates = [
            (stream, payload) for kind, _, stream, payload in written(open_call) if kind == WINDOW_UPDATE
        ]
        if updates:
            assert [stream for stream, _ in updates] == [0, 1]
            granted += int.from_bytes(updates[1][1], "big")
    assert open_call.next_message() == b"x" * (3 << 20)


def test_queued_messages_keep_the_window_closed(open_call: GrpcCall) -> None:
    for number in range(MAX_QUEUED_MESSAGES):
        open_call.receive_data(data(message(bytes((number,)) * 200_000)))
    assert [kind for kind, *_ in written(open_call)] == [WINDOW_UPDATE] * 2
    open_call.receive_data(data(message(b"x" * 540_000)))
    assert written(open_call) == []
    assert open_call.next_message() == bytes(200_000)
    assert open_call.next_message() == bytes((1,)) * 200_000
    assert [kind for kind, *_ in written(open_call)] == [WINDOW_UPDATE] * 2


# ---- the end of a call


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (field("grpc-status", "0"), "OK"),
        (
            field("grpc-status", "16", 0x40) + field("grpc-message", "of%20no sandbox"),
            "UNAUTHENTICATED of no sandbox",
        ),
        (field("grpc-status", "99"), "status 99"),
        (field("grpc-status", "no"), "status no"),
        (b"", "the node ended the stream, HTTP status unknown"),
        (b"\x8d", "the node ended the stream, HTTP status 404"),
        (b"\x08\x03503", "the node ended the stream, HTTP status 503"),
        # Huffman coded values are skipped; fields after them are read.
        (field("grpc-status", "14") + b"\0\x0cgrpc-message\x82zz", "UNAVAILABLE (coded)"),
    ],
)
def test_trailers_give_the_end_message(call: GrpcCall, fields: bytes, why: str) -> None:
    call.receive_data(frame(HEADERS, END_HEADERS | END_STREAM, 1, fields))
    assert ended(call) == why


def test_a_status_of_thousands_of_digits_is_text(call: GrpcCall) -> None:
    length = b"\x7f\x89\x26"  # 5000 (RFC 7541, 5.1), more than Python reads as a number
    call.receive_data(
        frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\0\x0bgrpc-status" + length + b"9" * 5000)
    )
    assert ended(call).startswith("status 9999")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (frame(HEADERS, END_HEADERS, 1, b"\x8e"), "the node responded with HTTP status 500"),
        (frame(RST_STREAM, 0, 1, b"\0\0\0\x08"), "the node reset the stream, HTTP/2 error 8"),
        (
            frame(GOAWAY, 0, 0, b"\0\0\0\1\0\0\0\x0btoo_many_pings"),
            "the node sent GOAWAY, HTTP/2 error 11 too_many_pings",
        ),
        (frame(GOAWAY, 0, 0, bytes(8)), "the node sent GOAWAY, HTTP/2 error 0"),
    ],
)
def test_resets_and_http_errors_end_the_call(call: GrpcCall, given: bytes, why: str) -> None:
    call.receive_data(given)
    assert ended(call) == why


def test_the_first_end_message_stays(open_call: GrpcCall) -> None:
    open_call.receive_data(data(message(b"last"), END_STREAM) + frame(RST_STREAM, 0, 1, bytes(4)))
    assert ended(open_call) == "the node ended the stream"
    assert open_call.next_message() == b"last"


def test_goaway_without_error_keeps_the_call(open_call: GrpcCall) -> None:
    open_call.receive_data(
        frame(GOAWAY, 0, 0, b"\x7f\xff\xff\xff\0\0\0\0") + frame(GOAWAY, 0, 0, b"\0\0\0\1\0\0\0\0")
    )
    assert ended(open_call) == ""


# ---- violations


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (b"\0\x40\1\0\0\0\0\0\1", "a frame of 16385 bytes"),
        (frame(DATA, 0, 3, b""), "DATA outside of our stream"),
        (frame(DATA, PADDED, 1, b""), "more padding than payload"),
        (frame(DATA, PADDED, 1, b"\1"), "more padding than payload"),
        (data(struct.pack(">BI", 1, 0)), "compressed"),
        (data(struct.pack(">BI", 0, MAX_MESSAGE_BYTES + 1)), "a message of 16777217 bytes"),
        (frame(HEADERS, END_HEADERS, 3, ANSWER), "HEADERS outside"),
        (frame(HEADERS, 0, 1, ANSWER) + frame(PING, 0, 0, bytes(8)), "CONTINUATION is missing"),
        (frame(CONTINUATION, END_HEADERS, 1, ANSWER), "CONTINUATION is missing or unexpected"),
        (frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, bytes(16384)) * 5, "too long"),
        (frame(HEADERS, END_HEADERS, 1, b"\xbe"), "a table entry that does not exist"),
        (frame(SETTINGS, 0, 0, b"\0\1\0"), "cut short"),
        (frame(WINDOW_UPDATE, 0, 0, b"\1"), "wrong length"),
        (frame(RST_STREAM, 0, 1, b""), "wrong length"),
        (frame(GOAWAY, 0, 0, b"\0"), "wrong length"),
        (widened(1, (1 << 31) - 1), "a window is too large"),
        (frame(PUSH_PROMISE, 0, 1, bytes(4)), "PUSH_PROMISE"),
        (frame(PING, 0, 0, bytes(8)) * 70_000, "sends and does not read"),
    ],
)
def test_violations_are_errors(open_call: GrpcCall, given: bytes, why: str) -> None:
    with pytest.raises(Http2Error, match=why):
        open_call.receive_data(given)


def test_data_before_headers_is_an_error(call: GrpcCall) -> None:
    with pytest.raises(Http2Error, match="DATA outside of our stream"):
        call.receive_data(data(message(b"one")))


def test_data_beyond_the_window_is_an_error(open_call: GrpcCall) -> None:
    for _ in range(MAX_QUEUED_MESSAGES):
        open_call.receive_data(data(message(b"")))
    with pytest.raises(Http2Error, match="more data than our window allows"):
        open_call.receive_data(data(bytes(5) * 220_000))


_FRAMES = st.builds(
    frame, st.integers(0, 10), st.integers(0, 255), st.sampled_from((0, 1, 1, 2)), st.binary(max_size=40)
)


@given(st.lists(_FRAMES, max_size=12), st.integers(1, 30))
def test_any_frames_end_equally_however_they_are_cut(given_: list[bytes], size: int) -> None:
    whole = frame(HEADERS, END_HEADERS, 1, ANSWER) + b"".join(given_)
    outcomes = []
    for cut in (size, len(whole)):
        call = GrpcCall("/s/M", "node")
        refused = ""
        try:
            for at in range(0, len(whole), cut):
                call.receive_data(whole[at : at + cut])
        except Http2Error as error:
            refused = str(error)
        taken = tuple(itertools.takewhile(lambda each: each is not None, iter(call.next_message, None)))
        outcomes.append((refused, call.ended, taken))
    assert outcomes[0] == outcomes[1]
