# SPDX-License-Identifier: Apache-2.0
"""The client side of one gRPC call: bytes in, messages out, and the reverse.

HTTP/2 (RFC 9113) as far as one call on one connection needs it, and gRPC's framing ("gRPC over HTTP2").

The node is authenticated before its bytes come here. Its messages have limits all the same; exceeding
one ends the connection.
"""

from collections import deque
from urllib.parse import unquote

from daemonkit.http2 import (
    ACK,
    CONTINUATION,
    DATA,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW_BYTES,
    GOAWAY,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_BYTES,
    MAX_WINDOW_BYTES,
    MESSAGE_HEAD,
    NUMBER,
    PING,
    PREFACE,
    PRIORITY,
    PRIORITY_BYTES,
    PUSH_PROMISE,
    RST_STREAM,
    SETTING,
    SETTINGS,
    WINDOW_UPDATE,
    FrameReader,
    Http2Error,
    frame,
    literal,
    number_of,
    without_padding,
)
from guest_agent.http2.hpack import read_headers

_STREAM = 1
# How much the node may send ahead of our reading.
_WINDOW_BYTES = 1 << 20
_MAX_HEADERS_BYTES = 1 << 16
# Answers to pings and other frames; a node that does not read them lets them pile up.
_MAX_CONTROL_BYTES = 1 << 20

MAX_MESSAGE_BYTES = 16 << 20
# The node has one request at a time. Beyond this its window is not opened further.
MAX_QUEUED_MESSAGES = 4

_STATUSES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
    *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
_MAX_END_CHARACTERS = 500


class GrpcCall:
    """One call on a new connection. Not thread-safe.

    `ended` is why the call is over, or empty.
    """

    def __init__(self, path: str, authority: str) -> None:
        """`path` and `authority` are the pseudo-headers of these names."""
        self.ended = ""
        self._out = bytearray(PREFACE)
        self._reader = FrameReader()
        self._block: bytearray | None = None
        self._block_ends_stream = False
        self._is_answered = False
        self._incoming = bytearray()
        self._messages: deque[bytes] = deque()
        self._unsent = bytearray()
        self._windows = [FIRST_WINDOW_BYTES, FIRST_WINDOW_BYTES]
        """How much we may still send: on the connection, and on our stream."""
        self._first_window = FIRST_WINDOW_BYTES
        self._used_window_bytes = 0
        settings = ((HEADER_TABLE_SIZE, 0), (ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, _WINDOW_BYTES))
        self._frame(SETTINGS, 0, 0, b"".join(SETTING.pack(*each) for each in settings))
        self._frame(WINDOW_UPDATE, 0, 0, NUMBER.pack(_WINDOW_BYTES - FIRST_WINDOW_BYTES))
        fields = {
            ":method": "POST",
            ":scheme": "https",
            ":path": path,
            ":authority": authority,
            "te": "trailers",
            "content-type": "application/grpc",
        }
        self._frame(HEADERS, END_HEADERS, _STREAM, b"".join(map(literal, fields, fields.values())))

    def send_message(self, message: bytes) -> None:
        """Send a message, as soon as the node's window has room."""
        self._unsent += MESSAGE_HEAD.pack(0, len(message))
        self._unsent += message
        self._send_messages()

    def ping(self) -> None:
        self._frame(PING, 0, 0, bytes(8))

    def data_to_send(self) -> bytearray:
        """The bytes to write. Report what was written by `data_sent`."""
        return self._out

    @property
    def is_flushed(self) -> bool:
        """Whether all messages were written."""
        return not self._out and not self._unsent

    def next_message(self) -> bytes | None:
        """Take the node's next message; None if there is none."""
        if not self._messages:
            return None
        message = self._messages.popleft()
        self._open_window()
        return message

    def receive_data(self, data: bytes) -> None:
        """Handle bytes from the node. Raises `Http2Error`, which ends the connection."""
        for kind, flags, stream, payload in self._reader.feed(data):
            self._handle_frame(kind, flags, stream, payload)
            # Behind each frame: whether the next one makes a window too large depends on what was sent.
            self._send_messages()
        if len(self._out) > _MAX_CONTROL_BYTES + MAX_FRAME_BYTES:
            raise Http2Error("it sends and does not read our answers")

    # ---- frames from the node

    def _handle_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if (self._block is not None) is not (kind == CONTINUATION):
            raise Http2Error("a CONTINUATION is missing or unexpected")
        if kind == DATA:
            self._handle_data(flags, stream, payload)
        elif kind in (HEADERS, CONTINUATION):
            self._handle_headers(kind, flags, stream, payload)
        elif kind == SETTINGS:
            self._handle_settings(flags, payload)
        elif kind == WINDOW_UPDATE:
            self._widen_window(stream, number_of(payload) & MAX_WINDOW_BYTES)
        elif kind == PING:
            if not flags & ACK:
                self._frame(PING, ACK, 0, payload)
        elif kind == RST_STREAM:
            self._end(f"the node reset the stream, HTTP/2 error {number_of(payload)}")
        elif kind == GOAWAY:
            last, error = number_of(payload[:4]) & MAX_WINDOW_BYTES, number_of(payload[4:8])
            # Without an error, streams that it knows go on.
            if error or last < _STREAM:
                debug_data = payload[8:].decode("utf-8", "replace")
                self._end(f"the node sent GOAWAY, HTTP/2 error {error} {debug_data}".strip())
        elif kind == PUSH_PROMISE:
            raise Http2Error("a PUSH_PROMISE, which we disabled")

    def _handle_data(self, flags: int, stream: int, payload: bytes) -> None:
        if stream != _STREAM or not self._is_answered:
            raise Http2Error("DATA outside of our stream")
        self._used_window_bytes += len(payload)
        if self._used_window_bytes > _WINDOW_BYTES:
            raise Http2Error("more data than our window allows")
        self._incoming += without_padding(flags, payload)
        while len(self._incoming) >= MESSAGE_HEAD.size:
            is_compressed, length = MESSAGE_HEAD.unpack_from(self._incoming)
            if is_compressed or length > MAX_MESSAGE_BYTES:
                raise Http2Error(f"a message of {length} bytes" + (", compressed" if is_compressed else ""))
            whole = MESSAGE_HEAD.size + length
            if len(self._incoming) < whole:
                break
            self._messages.append(bytes(self._incoming[MESSAGE_HEAD.size : whole]))
            del self._incoming[:whole]
        self._open_window()
        if flags & END_STREAM:
            self._end("the node ended the stream")

    def _open_window(self) -> None:
        """Let the node send more, unless its messages pile up."""
        if self._used_window_bytes > _WINDOW_BYTES // 2 and len(self._messages) < MAX_QUEUED_MESSAGES:
            granted = NUMBER.pack(self._used_window_bytes)
            self._used_window_bytes = 0
            self._frame(WINDOW_UPDATE, 0, 0, granted)
            self._frame(WINDOW_UPDATE, 0, _STREAM, granted)

    def _handle_headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if stream != _STREAM:
            raise Http2Error("HEADERS outside of our stream")
        if kind == HEADERS:
            payload = without_padding(flags, payload)
            self._block = bytearray(payload[PRIORITY_BYTES:] if flags & PRIORITY else payload)
            self._block_ends_stream = bool(flags & END_STREAM)
        elif self._block is not None:
            self._block += payload
        if self._block is None or len(self._block) > _MAX_HEADERS_BYTES:
            raise Http2Error("headers are too long")
        if not flags & END_HEADERS:
            return
        fields, self._block = read_headers(bytes(self._block)), None
        http_status = fields.get(":status", "200")
        if self._block_ends_stream:
            self._end(_end_message(fields))
        elif http_status != "200":
            self._end(f"the node responded with HTTP status {http_status}")
        self._is_answered = True

    def _handle_settings(self, flags: int, payload: bytes) -> None:
        if flags & ACK:
            return
        if len(payload) % SETTING.size:
            raise Http2Error("SETTINGS are cut short")
        for setting, value in SETTING.iter_unpack(payload):
            if setting == INITIAL_WINDOW_SIZE:
                # Also for data under way: the window may become negative.
                self._widen_window(_STREAM, value - self._first_window)
                self._first_window = value
        self._frame(SETTINGS, ACK, 0, b"")

    def _widen_window(self, stream: int, by: int) -> None:
        if stream not in (0, _STREAM):
            return
        self._windows[stream] += by
        if self._windows[stream] > MAX_WINDOW_BYTES:
            raise Http2Error("a window is too large")

    def _end(self, message: str) -> None:
        self.ended = self.ended or message[:_MAX_END_CHARACTERS]

    # ---- frames to the node

    def _send_messages(self) -> None:
        """Frame as much of the messages as the node's windows allow."""
        while self._unsent and (room := min(*self._windows, MAX_FRAME_BYTES)) > 0:
            # In limited pieces: a large message is not buffered twice.
            if len(self._out) > _MAX_CONTROL_BYTES:
                return
            chunk = bytes(self._unsent[:room])
            del self._unsent[:room]
            self._windows = [each - len(chunk) for each in self._windows]
            self._frame(DATA, 0, _STREAM, chunk)

    def data_sent(self, count: int) -> None:
        """Remove the first `count` bytes of `data_to_send`: they were written."""
        del self._out[:count]
        if self._unsent:
            self._send_messages()

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self._out += frame(kind, flags, stream, payload)


def _end_message(fields: dict[str, str]) -> str:
    """The status of a call's trailers, as gRPC's clients print it."""
    status = fields.get("grpc-status", "")
    if not status:
        return f"the node ended the stream, HTTP status {fields.get(':status', 'unknown')}"
    # At most two digits: Python does not convert thousands of them.
    is_known = status.isascii() and status.isdigit() and len(status) <= 2 and int(status) < len(_STATUSES)
    name = _STATUSES[int(status)] if is_known else f"status {status}"
    return f"{name} {unquote(fields.get('grpc-message', ''))}".strip()
