# SPDX-License-Identifier: Apache-2.0
"""What both ends of an HTTP/2 connection share (RFC 9113, RFC 7541): frames, and the parts of a header block.

Our gRPC is our own where grpcio's memory or threads cost more than these lines: the guest's agent calls by
`guest_agent.http2`, vc-signer serves by `vc_signer.http2`.
"""

import struct
from collections.abc import Iterator

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first."""

# Length and type in one number, flags, stream.
FRAME_HEAD = struct.Struct(">IBI")
SETTING = struct.Struct(">HI")
NUMBER = struct.Struct(">I")
# Before each message of gRPC: whether it is compressed, and its length.
MESSAGE_HEAD = struct.Struct(">BI")

DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY = 0, 1, 3, 4, 5, 6, 7
WINDOW_UPDATE, CONTINUATION = 8, 9
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, PRIORITY = 0x4, 0x8, 0x20
PRIORITY_BYTES = 5
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 1, 2, 3, 4

MAX_FRAME_BYTES = 1 << 14
"""The largest frame of either end: HTTP/2's default."""
FIRST_WINDOW_BYTES = (1 << 16) - 1
MAX_WINDOW_BYTES = (1 << 31) - 1


class Http2Error(Exception):
    """The peer violates HTTP/2, or a limit of ours."""


class FrameReader:
    """The peer's bytes, cut into frames. No frame is larger than MAX_FRAME_BYTES."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
        """Type, flags, stream and payload of each frame that `data` completes; take all of them.

        Raises `Http2Error`, after which the connection is over.
        """
        if self._rest:
            data = self._rest + data
        position, end = 0, len(data)
        while end - position >= FRAME_HEAD.size:
            word, flags, stream = FRAME_HEAD.unpack_from(data, position)
            length, start = word >> 8, position + FRAME_HEAD.size
            if length > MAX_FRAME_BYTES:
                raise Http2Error(f"a frame of {length} bytes")
            if start + length > end:
                break
            position = start + length
            yield word & 0xFF, flags, stream & MAX_WINDOW_BYTES, data[start:position]
        self._rest = data[position:]

    @property
    def is_incomplete(self) -> bool:
        """Whether the rest of a frame must come."""
        return bool(self._rest)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame's bytes."""
    return FRAME_HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def number_of(payload: bytes) -> int:
    """The number that is a frame's whole payload. Raises `Http2Error` for another length."""
    if len(payload) != NUMBER.size:
        raise Http2Error("a frame has the wrong length for its type")
    (number,) = NUMBER.unpack(payload)
    return int(number)


def without_padding(flags: int, payload: bytes) -> bytes:
    """The payload of DATA or HEADERS. Raises `Http2Error` for too much padding."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Http2Error("more padding than payload")
    return payload[1 : len(payload) - payload[0]]


def literal(name: str, value: str) -> bytes:
    """A literal field without indexing and Huffman coding. Both parts are shorter than 127 bytes."""
    one, other = name.encode(), value.encode()
    if max(len(one), len(other)) >= 0x7F:
        raise ValueError(f"{name} is too long")
    return b"".join((b"\0", bytes((len(one),)), one, bytes((len(other),)), other))


def integer(block: bytes, position: int, bits: int) -> tuple[int, int]:
    """An integer of a header block and its end (RFC 7541, 5.1). Raises `Http2Error`."""
    if position >= len(block):
        raise Http2Error("headers are cut short")
    mask = (1 << bits) - 1
    number = block[position] & mask
    position += 1
    if number < mask:
        return number, position
    for shift in (0, 7, 14):
        if position >= len(block):
            break
        byte = block[position]
        position += 1
        number += (byte & 0x7F) << shift
        if not byte & 0x80:
            return number, position
    raise Http2Error("headers are cut short, or a number is too large")
