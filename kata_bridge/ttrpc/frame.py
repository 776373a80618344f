# SPDX-License-Identifier: Apache-2.0
"""ttrpc's frames (docs/spec/kata.md#ttrpc): ten bytes of header, then data. Pure.

ttrpc has no handshake, no ping and no flow control.
"""

import struct
from dataclasses import dataclass

# The limit of the Go and the Rust implementation, which skip a larger frame.
MAX_DATA_BYTES = 4 << 20

HEADER_BYTES = 10
REQUEST, RESPONSE, DATA = 1, 2, 3
REMOTE_CLOSED, REMOTE_OPEN, NO_DATA = 0x01, 0x02, 0x04

_HEADER = struct.Struct(">IIBB")


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. A unary request and every response have no flags."""

    stream_id: int
    type: int
    data: bytes
    flags: int = 0

    def header(self) -> bytes:
        return _HEADER.pack(len(self.data), self.stream_id, self.type, self.flags)


@dataclass(frozen=True, slots=True)
class OversizedFrame:
    """A frame whose data was skipped, as it exceeds the limit."""

    stream_id: int
    type: int
    size_bytes: int


class FrameReader:
    """Splits a stream of bytes into frames; buffers at most one incomplete frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._needed_bytes = HEADER_BYTES
        self._to_skip_bytes = 0

    def feed(self, data: bytes) -> list[Frame | OversizedFrame]:
        """Return the frames that `data` completes, an oversized one as soon as its header is there."""
        self._buffer += data
        done: list[Frame | OversizedFrame] = []
        while True:
            if self._to_skip_bytes:
                skipped = min(self._to_skip_bytes, len(self._buffer))
                del self._buffer[:skipped]
                self._to_skip_bytes -= skipped
            if len(self._buffer) < self._needed_bytes:
                return done
            size_bytes, stream_id, kind, flags = _HEADER.unpack_from(self._buffer)
            end = HEADER_BYTES + size_bytes
            if size_bytes > MAX_DATA_BYTES:
                done.append(OversizedFrame(stream_id, kind, size_bytes))
                self._to_skip_bytes = end
            elif len(self._buffer) < end:
                self._needed_bytes = end
                return done
            else:
                done.append(Frame(stream_id, kind, bytes(self._buffer[HEADER_BYTES:end]), flags))
                del self._buffer[:end]
            self._needed_bytes = HEADER_BYTES
