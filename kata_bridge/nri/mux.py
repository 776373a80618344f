# SPDX-License-Identifier: Apache-2.0
"""NRI's multiplexer: two ttrpc connections on one socket.

A frame is the connection's id (u32, big endian), the length of the payload (u32), the payload. Each
connection is a stream of bytes without a beginning or an end on the wire.
"""

import struct

from kata_bridge.ttrpc.frame import HEADER_BYTES, MAX_DATA_BYTES, Frame

# On the first the runtime calls the plugin, on the second the plugin calls the runtime.
PLUGIN_CONNECTION, RUNTIME_CONNECTION = 1, 2

MAX_PAYLOAD_BYTES = MAX_DATA_BYTES + HEADER_BYTES

_HEADER = struct.Struct(">II")


class BadTrunkError(Exception):
    """The bytes are not this protocol; nothing after them can be read."""


def multiplexed(connection: int, frame: Frame) -> bytes:
    """A ttrpc frame on `connection`: its header in one frame and its data in another.

    The runtime passes each frame to one read, and fails when that read's buffer is smaller. It reads a ttrpc
    header with a buffer of 4096 bytes, and the data with one that is large enough. So a message in one frame
    works up to 4096 bytes, and one in two frames always. (containerd/nri up to 0.12.3; since 0.12 it closes
    the connection on that failure, and starts the container.)
    """
    header = frame.header()
    sent = _HEADER.pack(connection, len(header)) + header
    if frame.data:
        sent += _HEADER.pack(connection, len(frame.data)) + frame.data
    return sent


class Demultiplexer:
    """Splits the bytes of a trunk into its connections' streams; buffers at most a header."""

    def __init__(self) -> None:
        self._header = b""
        self._connection = 0
        self._left_bytes = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return (connection, bytes of its stream) in order. Raises `BadTrunkError`."""
        pieces: list[tuple[int, bytes]] = []
        position = 0
        while position < len(data):
            if self._left_bytes:
                piece = data[position : position + self._left_bytes]
                pieces.append((self._connection, piece))
                self._left_bytes -= len(piece)
                position += len(piece)
                continue
            missing = _HEADER.size - len(self._header)
            self._header += data[position : position + missing]
            position += missing
            if len(self._header) == _HEADER.size:
                self._connection, self._left_bytes = _HEADER.unpack(self._header)
                self._header = b""
                if self._connection == 0 or self._left_bytes > MAX_PAYLOAD_BYTES:
                    raise BadTrunkError(f"connection {self._connection}, {self._left_bytes} bytes in a frame")
        return pieces
