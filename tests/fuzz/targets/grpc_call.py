# SPDX-License-Identifier: Apache-2.0
"""The guest agent's HTTP/2: frames of the node give the same messages, in any division, within our limits."""

import struct

from daemonkit.http2 import Http2Error, literal
from guest_agent.http2.call import GrpcCall
from tests.fuzz.invariants import same_however_divided
from tests.fuzz.target import FuzzTarget

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA = 0
_SENT = b"m" * 100_000
# Messages to send, and answers to what the node sends: the call refuses to buffer more.
_MAX_OUT_BYTES = len(_SENT) + (1 << 20) + (1 << 15)


_Frames = list[tuple[int, int, int, bytes]]


def _read(pieces: list[bytes]) -> tuple[list[bytes], str, _Frames] | None:
    """The messages, why the call ended, and the frames other than DATA that were written; None if the node's
    bytes are refused. How DATA is cut depends on when a window opens."""
    call = GrpcCall("/vcnode.guest.v1.AgentService/Attach", "vcnode")
    call.send_message(_SENT)
    for piece in pieces:
        try:
            call.receive_data(piece)
        except Http2Error:
            return None
        assert len(call.data_to_send()) <= _MAX_OUT_BYTES
    # Taken at the end: windows open by what has been taken, which a reader is free to delay.
    written = _frames_of(bytes(call.data_to_send()))
    sent = b"".join(payload for kind, _, _, payload in written if kind == _DATA)
    assert (bytes(1) + len(_SENT).to_bytes(4) + _SENT).startswith(sent)
    messages = []
    while (message := call.next_message()) is not None:
        messages.append(message)
    return messages, call.ended, [each for each in written if each[0] != _DATA]


def _frames_of(written: bytes) -> _Frames:
    """The frames of what we write: nothing else, and none above the limit of HTTP/2."""
    found = []
    at = len(_PREFACE)
    assert written.startswith(_PREFACE)
    while at < len(written):
        size, start = int.from_bytes(written[at : at + 3]), at + 9
        assert size <= 1 << 14
        assert start + size <= len(written)
        found.append(
            (
                written[at + 3],
                written[at + 4],
                int.from_bytes(written[at + 5 : start]),
                written[start : start + size],
            )
        )
        at = start + size
    return found


def check(data: bytes) -> None:
    found = same_however_divided(data, _read)
    if found is None:
        return
    messages, ended, _ = found
    assert sum(len(message) + 5 for message in messages) <= len(data)
    assert len(ended) <= 500


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


_SETTINGS = _frame(4, 0, 0, struct.pack(">HIHI", 4, 1 << 20, 3, 100)) + _frame(4, 1, 0, b"")
_ANSWER = _frame(1, 4, 1, b"\x88\x0f\x10\x10application/grpc")
_MESSAGE = struct.pack(">BI", 0, 3) + b"abc"
_END = _frame(1, 5, 1, literal("grpc-status", "13") + literal("grpc-message", "no%20more"))
TARGET = FuzzTarget(
    check,
    seeds=(
        _SETTINGS + _ANSWER + _frame(0, 0, 1, _MESSAGE + _MESSAGE[:4]) + _frame(0, 0, 1, _MESSAGE[4:]) + _END,
        _SETTINGS + _frame(8, 0, 0, struct.pack(">I", 1 << 20)) + _frame(8, 0, 1, struct.pack(">I", 9)),
        _SETTINGS + _frame(1, 0, 1, b"\x88") + _frame(9, 4, 1, literal("a", "b")) + _frame(6, 0, 0, bytes(8)),
        _ANSWER + _frame(0, 9, 1, b"\x02" + _MESSAGE + b"\0\0"),
        _frame(7, 0, 0, struct.pack(">II", 0, 11) + b"calm") + _frame(3, 0, 1, struct.pack(">I", 8)),
        _frame(1, 0x2D, 1, b"\x01\0\0\0\0\x10\x88\0")
        + _frame(5, 0, 1, bytes(4))
        + _frame(0x99, 0xFF, 7, b"x"),
    ),
    tokens=(
        *(
            _SETTINGS,
            _ANSWER,
            _END,
            _MESSAGE,
            _frame(0, 0, 1, _MESSAGE),
            _frame(6, 0, 0, bytes(8)),
            _frame(6, 1, 0, bytes(8)),
        ),
        *(_frame(4, 0, 0, struct.pack(">HI", 4, value)) for value in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF)),
        *(_frame(8, 0, stream, b"\x7f\xff\xff\xff") for stream in (0, 1, 3)),
        *(b"\x00\x40\x00", b"\x00\x40\x01", b"\x80\x00\x00\x01", _frame(9, 4, 1, b""), _frame(1, 0, 1, b"")),
    ),
)
