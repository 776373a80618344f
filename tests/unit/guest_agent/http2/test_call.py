# SPDX-License-Identifier: Apache-2.0
"""One gRPC call in HTTP/2, against frames written by hand; the real gRPC is in tests/functional."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest_agent.http2.call import MAX_MESSAGE_BYTES, MAX_WAITING, Call
from guest_agent.http2.hpack import BadHttp2

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


def written(call: Call) -> list[tuple[int, int, int, bytes]]:
    """What the call writes now, and takes for written."""
    data = bytes(call.to_send())
    call.sent(len(data))
    return frames(data.removeprefix(PREFACE))


def field(name: str, value: str, first: int = 0) -> bytes:
    return bytes((first, len(name))) + name.encode() + bytes((len(value),)) + value.encode()


def message(text: bytes) -> bytes:
    return struct.pack(">BI", 0, len(text)) + text


def data(payload: bytes, flags: int = 0) -> bytes:
    """One frame, or as many as the payload needs."""
    pieces = [payload[at : at + 16384] for at in range(0, len(payload), 16384)] or [b""]
    return b"".join(frame(DATA, flags, 1, piece) for piece in pieces)


def setting(number: int, value: int) -> bytes:
    return struct.pack(">HI", number, value)


def widened(stream: int, by: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, by.to_bytes(4, "big"))


@pytest.fixture
def call() -> Call:
    """One whose beginning was written."""
    made = Call("/s/M", "node")
    made.sent(len(made.to_send()))
    return made


@pytest.fixture
def answered(call: Call) -> Call:
    """One whose node has begun to answer."""
    call.feed(frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, ANSWER))
    written(call)
    return call


def ended(call: Call) -> str:
    return call.ended


def has_sent(call: Call) -> bool:
    return call.has_sent


# ---- what is said


def test_how_it_begins() -> None:
    call = Call("/s/M", "node")
    data = bytes(call.to_send())
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
    assert not has_sent(call)


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match=":path is too long"):
        Call("/" + "s" * 127, "node")


def test_a_message_goes_at_once(call: Call) -> None:
    call.say(b"hello")
    assert written(call) == [(DATA, 0, 1, b"\0\0\0\0\5hello")]
    assert has_sent(call)


def test_what_the_node_has_no_room_for_waits_for_it(call: Call) -> None:
    text = bytes(range(256)) * 300
    call.say(text)
    first = written(call)
    assert [len(payload) for *_, payload in first] == [16384, 16384, 16384, 16383]
    assert not has_sent(call)
    # Room on the connection alone is none, nor is room for another stream.
    call.feed(widened(0, 5000) + widened(3, 5000))
    assert written(call) == []
    call.feed(widened(1, 1000))
    assert [len(payload) for *_, payload in written(call)] == [1000]
    call.feed(widened(1, 1 << 20) + widened(0, 1 << 20))
    last = written(call)
    assert has_sent(call)
    assert last[-1][:3] == (DATA, 0, 1)
    call.say(b"x")
    sent = b"".join(payload for *_, payload in first)
    assert message(text).startswith(sent)
    assert len(sent) + 1000 + sum(len(payload) for *_, payload in last) == len(message(text))


def test_a_window_that_is_set_counts_for_what_is_under_way(call: Call) -> None:
    call.feed(widened(0, 1 << 20))
    call.say(b"x" * 70_000)
    assert sum(len(payload) for *_, payload in written(call)) == 65535
    # Less than was sent already: none until that much came back.
    call.feed(frame(SETTINGS, 0, 0, setting(4, 60_000)))
    assert written(call) == [(SETTINGS, ACK, 0, b"")]
    call.feed(widened(1, 5535))
    assert written(call) == []
    call.feed(widened(1, 10))
    assert [len(payload) for *_, payload in written(call)] == [10]


def test_a_large_message_is_written_in_bounded_pieces(call: Call) -> None:
    call.feed(widened(0, 1 << 30) + widened(1, 1 << 30))
    call.say(b"x" * (8 << 20))
    total = 0
    while call.to_send():
        assert len(call.to_send()) < 1_200_000
        total += 16384 if len(call.to_send()) > 16384 else len(call.to_send())
        call.sent(min(16384, len(call.to_send())))
    assert has_sent(call)
    assert total > 8 << 20


def test_a_ping(call: Call) -> None:
    call.ping()
    assert written(call) == [(PING, 0, 0, bytes(8))]


# ---- what comes


def test_messages_come_in_order_however_they_are_cut() -> None:
    whole = frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, ANSWER)
    whole += data(message(b"one") + message(b"")[:3]) + data(message(b"")[3:] + message(b"three"))
    for size in (1, 2, 7, len(whole)):
        call = Call("/s/M", "node")
        for at in range(0, len(whole), size):
            call.feed(whole[at : at + size])
        assert [call.next() for _ in range(4)] == [b"one", b"", b"three", None]
        assert ended(call) == ""


def test_settings_and_pings_are_answered(call: Call) -> None:
    call.feed(frame(SETTINGS, 0, 0, setting(3, 100) + setting(0x4242, 7)))
    call.feed(frame(SETTINGS, ACK, 0, b"") + frame(PING, 0, 0, b"12345678") + frame(PING, ACK, 0, bytes(8)))
    assert written(call) == [(SETTINGS, ACK, 0, b""), (PING, ACK, 0, b"12345678")]


def test_padding_priority_and_what_is_unknown_are_skipped(call: Call) -> None:
    block = b"\2" + b"\0\0\0\0\x10" + ANSWER + b"\0\0"
    call.feed(frame(HEADERS, END_HEADERS | PADDED | PRIORITY, 1, block) + frame(0x42, 3, 9, b"anything"))
    call.feed(frame(DATA, PADDED, 1, b"\1" + message(b"one") + b"\0"))
    assert call.next() == b"one"


def test_headers_may_be_continued(call: Call) -> None:
    call.feed(frame(HEADERS, 0, 1, ANSWER[:5]) + frame(CONTINUATION, 0, 1, ANSWER[5:9]))
    call.feed(frame(CONTINUATION, END_HEADERS, 1, ANSWER[9:]) + data(message(b"one")))
    assert call.next() == b"one"


def test_room_is_given_for_what_was_read(answered: Call) -> None:
    large = message(b"x" * (3 << 20))
    sent, granted = 0, 1 << 20
    while sent < len(large):
        piece = large[sent : sent + 16384]
        sent += len(piece)
        assert sent <= granted
        answered.feed(frame(DATA, 0, 1, piece))
        updates = [
            (stream, payload) for kind, _, stream, payload in written(answered) if kind == WINDOW_UPDATE
        ]
        if updates:
            assert [stream for stream, _ in updates] == [0, 1]
            granted += int.from_bytes(updates[1][1], "big")
    assert answered.next() == b"x" * (3 << 20)


def test_who_sends_what_nobody_takes_gets_no_more_room(answered: Call) -> None:
    for number in range(MAX_WAITING):
        answered.feed(data(message(bytes((number,)) * 200_000)))
    assert [kind for kind, *_ in written(answered)] == [WINDOW_UPDATE] * 2
    answered.feed(data(message(b"x" * 540_000)))
    assert written(answered) == []
    assert answered.next() == bytes(200_000)
    assert answered.next() == bytes((1,)) * 200_000
    assert [kind for kind, *_ in written(answered)] == [WINDOW_UPDATE] * 2


# ---- how it ends


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
        # Coded words are not read, and what is behind them is.
        (field("grpc-status", "14") + b"\0\x0cgrpc-message\x82zz", "UNAVAILABLE (coded)"),
    ],
)
def test_the_words_of_an_end(call: Call, fields: bytes, why: str) -> None:
    call.feed(frame(HEADERS, END_HEADERS | END_STREAM, 1, fields))
    assert ended(call) == why


def test_a_status_of_thousands_of_digits_is_no_number(call: Call) -> None:
    length = b"\x7f\x89\x26"  # 5000 (RFC 7541, 5.1), more than Python reads as a number
    call.feed(frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\0\x0bgrpc-status" + length + b"9" * 5000))
    assert ended(call).startswith("status 9999")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (frame(HEADERS, END_HEADERS, 1, b"\x8e"), "the node answers with HTTP status 500"),
        (frame(RST_STREAM, 0, 1, b"\0\0\0\x08"), "the node reset the stream, HTTP/2 error 8"),
        (
            frame(GOAWAY, 0, 0, b"\0\0\0\1\0\0\0\x0btoo_many_pings"),
            "the node goes away, HTTP/2 error 11 too_many_pings",
        ),
        (frame(GOAWAY, 0, 0, bytes(8)), "the node goes away, HTTP/2 error 0"),
    ],
)
def test_other_ends(call: Call, given: bytes, why: str) -> None:
    call.feed(given)
    assert ended(call) == why


def test_the_first_reason_stays(answered: Call) -> None:
    answered.feed(data(message(b"last"), END_STREAM) + frame(RST_STREAM, 0, 1, bytes(4)))
    assert ended(answered) == "the node ended the stream"
    assert answered.next() == b"last"


def test_a_node_that_goes_away_in_peace_may_end_what_it_began(answered: Call) -> None:
    answered.feed(frame(GOAWAY, 0, 0, b"\x7f\xff\xff\xff\0\0\0\0") + frame(GOAWAY, 0, 0, b"\0\0\0\1\0\0\0\0"))
    assert ended(answered) == ""


# ---- what no node sends


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (b"\0\x40\1\0\0\0\0\0\1", "a frame of 16385 bytes"),
        (frame(DATA, 0, 3, b""), "data of no stream"),
        (frame(DATA, PADDED, 1, b""), "more padding"),
        (frame(DATA, PADDED, 1, b"\1"), "more padding"),
        (data(struct.pack(">BI", 1, 0)), "compressed"),
        (data(struct.pack(">BI", 0, MAX_MESSAGE_BYTES + 1)), "a message of 16777217 bytes"),
        (frame(HEADERS, END_HEADERS, 3, ANSWER), "headers of no stream"),
        (frame(HEADERS, 0, 1, ANSWER) + frame(PING, 0, 0, bytes(8)), "not continued"),
        (frame(CONTINUATION, END_HEADERS, 1, ANSWER), "continued from nowhere"),
        (frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, bytes(16384)) * 5, "too long"),
        (frame(HEADERS, END_HEADERS, 1, b"\xbe"), "a table that it may not have"),
        (frame(SETTINGS, 0, 0, b"\0\1\0"), "cut"),
        (frame(WINDOW_UPDATE, 0, 0, b"\1"), "another length"),
        (frame(RST_STREAM, 0, 1, b""), "another length"),
        (frame(GOAWAY, 0, 0, b"\0"), "another length"),
        (widened(1, (1 << 31) - 1), "too wide"),
        (frame(PUSH_PROMISE, 0, 1, bytes(4)), "a push"),
        (frame(PING, 0, 0, bytes(8)) * 70_000, "sends and does not read"),
    ],
)
def test_what_no_node_sends_is_refused(answered: Call, given: bytes, why: str) -> None:
    with pytest.raises(BadHttp2, match=why):
        answered.feed(given)


def test_data_before_an_answer_is_refused(call: Call) -> None:
    with pytest.raises(BadHttp2, match="data of no stream"):
        call.feed(data(message(b"one")))


def test_more_than_there_was_room_for_is_refused(answered: Call) -> None:
    for _ in range(MAX_WAITING):
        answered.feed(data(message(b"")))
    with pytest.raises(BadHttp2, match="more than there was room for"):
        answered.feed(data(bytes(5) * 220_000))


_FRAMES = st.builds(
    frame, st.integers(0, 10), st.integers(0, 255), st.sampled_from((0, 1, 1, 2)), st.binary(max_size=40)
)


@given(st.lists(_FRAMES, max_size=12), st.integers(1, 30))
def test_any_frames_are_taken_or_refused_however_they_are_cut(given_: list[bytes], size: int) -> None:
    whole = frame(HEADERS, END_HEADERS, 1, ANSWER) + b"".join(given_)
    outcomes = []
    for cut in (size, len(whole)):
        call = Call("/s/M", "node")
        refused = ""
        try:
            for at in range(0, len(whole), cut):
                call.feed(whole[at : at + cut])
        except BadHttp2 as error:
            refused = str(error)
        taken = tuple(itertools.takewhile(lambda each: each is not None, iter(call.next, None)))
        outcomes.append((refused, call.ended, taken))
    assert outcomes[0] == outcomes[1]
