# SPDX-License-Identifier: Apache-2.0
"""NRI's trunk and ttrpc in it, from both sides: divided anywhere, the same frames, calls and results."""

from daemonkit.protobuf import encode
from kata_bridge.nri.mux import BadTrunkError, Demultiplexer, multiplexed
from kata_bridge.ttrpc.connection import (
    CallResult,
    ClientConnection,
    IncomingCall,
    ServerConnection,
    outcome_of,
    refusal,
    response_frame,
)
from kata_bridge.ttrpc.frame import (
    DATA,
    MAX_DATA_BYTES,
    REQUEST,
    RESPONSE,
    Frame,
    FrameReader,
    OversizedFrame,
)
from kata_bridge.ttrpc.messages import KeyValue, Request
from kata_bridge.ttrpc.status import Code, TtrpcError
from tests.fuzz.invariants import same_however_divided
from tests.fuzz.target import FuzzTarget

_MAX_STREAMS = 8


def check(data: bytes) -> None:
    """The same bytes as a trunk, as a client's connection, and as a server's."""
    streams = same_however_divided(data, _streams)
    for stream in streams.values():
        _check_connection(stream)
    _check_connection(data)


def _streams(pieces: list[bytes]) -> dict[int, bytes]:
    """The streams of the trunk, up to what is not this protocol."""
    reader = Demultiplexer()
    found: dict[int, bytes] = {}
    for piece in pieces:
        # A trunk that breaks within the piece gives nothing of that piece: its reader closes it.
        try:
            for connection, part in reader.feed(piece):
                found[connection] = found.get(connection, b"") + part
        except BadTrunkError:
            return {}
    return dict(list(found.items())[:_MAX_STREAMS])


def _check_connection(data: bytes) -> None:
    frames = same_however_divided(data, _frames)
    assert sum(len(each.data) for each in frames if isinstance(each, Frame)) <= len(data)
    whole = [each for each in frames if isinstance(each, Frame)]
    assert all(len(each.data) <= MAX_DATA_BYTES for each in whole)
    assert _frames([b"".join(each.header() + each.data for each in whole)]) == whole
    trunk = b"".join(multiplexed(2, each) for each in whole)
    assert _frames([_streams([trunk]).get(2, b"")]) == whole
    results = same_however_divided(data, _results)
    assert len({each.stream_id for each in results}) == len(results)
    for each in results:
        if isinstance(each.outcome, Frame):
            outcome_of(each.outcome)
    for answer in same_however_divided(data, _calls):
        if isinstance(answer, Frame):
            # A refusal: the peer reads an error.
            assert isinstance(outcome_of(answer), TtrpcError)


def _frames(pieces: list[bytes]) -> list[Frame | OversizedFrame]:
    reader = FrameReader()
    return [frame for piece in pieces for frame in reader.feed(piece)]


def _results(pieces: list[bytes]) -> list[CallResult]:
    client = ClientConnection()
    for _ in range(4):
        client.call("s", "m", b"", 1.0)
    found = [result for piece in pieces for result in client.receive(piece)]
    return [
        CallResult(each.stream_id, repr(each.outcome).encode())
        if isinstance(each.outcome, TtrpcError)
        else each
        for each in found
    ]


def _calls(pieces: list[bytes]) -> list[IncomingCall | Frame]:
    server = ServerConnection()
    return [answer for piece in pieces for answer in server.receive(piece)]


def _frame(stream: int, kind: int, data: bytes, flags: int = 0) -> bytes:
    frame = Frame(stream, kind, data, flags)
    return frame.header() + frame.data


_CALL = encode(Request("s", "m", b"payload", 5, (KeyValue("a", "b"),)))
_ANSWER = response_frame(1, b"payload")
_REFUSAL = refusal(3, Code.UNAVAILABLE, "no")
TARGET = FuzzTarget(
    check,
    seeds=(
        _frame(1, REQUEST, _CALL) + _frame(3, REQUEST, _CALL) + _frame(5, DATA, b"x", 1),
        _ANSWER.header() + _ANSWER.data + _REFUSAL.header() + _REFUSAL.data + _frame(5, RESPONSE, b""),
        multiplexed(1, Frame(1, REQUEST, _CALL))
        + multiplexed(2, _ANSWER)
        + multiplexed(1, Frame(3, REQUEST, _CALL)),
        _frame(1, REQUEST, b"\xff" * 4, 2) + b"\x00\x40\x00\x01" + b"\0\0\0\x05\x01\x00" + bytes(64),
        _frame(2, REQUEST, _CALL) + _frame(1, RESPONSE, b"\x0a\x02\x08\x05\x12\x01x"),
        _frame(7, RESPONSE, b"\x12\xa0\x9c\x01" + b"p" * 20_000),
    ),
    tokens=(
        *(
            _frame(1, RESPONSE, b""),
            _frame(7, RESPONSE, b"\x0a\x00"),
            _frame(9, REQUEST, _CALL),
            b"\0\0\0\x01\0\0\0\x0a",
        ),
        *(
            b"\0\x40\0\0",
            b"\0\x40\0\x0a",
            b"\0\x40\0\x0b",
            b"\xff\xff\xff\xff",
            b"\0\0\0\0",
            b"\0\0\0\x01",
            b"\x0a\x0b",
        ),
    ),
)
