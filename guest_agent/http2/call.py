# SPDX-License-Identifier: Apache-2.0
"""The agent's end of its one gRPC call: bytes in, messages out, and the other way. No sockets here.

HTTP/2 (RFC 9113) as far as one call on one connection needs it, and gRPC's framing in it ("gRPC over
HTTP2"). Of header compression (RFC 7541) we write literals alone and allow the node no table, so that
what it writes can be read without one: of what it says we need the call's status, and nothing else.

The node was authenticated before a byte comes here. It has bounds all the same: whoever breaks them
ends the connection.
"""

import struct
from collections import deque
from urllib.parse import unquote

from guest_agent.http2.hpack import BadHttp2, literal, read_headers

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Length and type in one number, flags, stream.
_HEAD = struct.Struct(">IBI")
_SETTING = struct.Struct(">HI")
_NUMBER = struct.Struct(">I")
# In front of each message: whether it is compressed, and its length.
_MESSAGE_HEAD = struct.Struct(">BI")

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PUSH_PROMISE, _PING, _GOAWAY = 0, 1, 3, 4, 5, 6, 7
_WINDOW_UPDATE, _CONTINUATION = 8, 9
_END_STREAM = _ACK = 0x1
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20
_HEADER_TABLE_SIZE, _ENABLE_PUSH, _INITIAL_WINDOW_SIZE = 1, 2, 4

_STREAM = 1
_FRAME_BYTES = 1 << 14
"""What both sides may send without having agreed on more."""
_FIRST_WINDOW_BYTES = (1 << 16) - 1
_MAX_WINDOW_BYTES = (1 << 31) - 1
# What the node may send before we have read it.
_WINDOW_BYTES = 1 << 20
_MAX_HEADERS_BYTES = 1 << 16
# Answers to pings and the like, which a node that does not read them piles up.
_MAX_CONTROL_BYTES = 1 << 20

MAX_MESSAGE_BYTES = 16 << 20
# It asks one thing at a time. Beyond this it gets no room to send more.
MAX_WAITING = 4

_STATUSES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
    *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
_MAX_REASON_CHARACTERS = 500


class Call:
    """One call on a new connection. Not for several threads at once.

    `ended` is empty, or why the call is over.
    """

    def __init__(self, path: str, authority: str) -> None:
        """`path` is the call's name on the wire, `authority` the node's."""
        self.ended = ""
        self._out = bytearray(_PREFACE)
        self._rest = b""
        self._block: bytearray | None = None
        self._block_ends_stream = False
        self._is_answered = False
        self._incoming = bytearray()
        self._messages: deque[bytes] = deque()
        self._unsent = bytearray()
        self._windows = [_FIRST_WINDOW_BYTES, _FIRST_WINDOW_BYTES]
        """What we may still send: on the connection, and on our stream."""
        self._first_window = _FIRST_WINDOW_BYTES
        self._ungranted = 0
        settings = ((_HEADER_TABLE_SIZE, 0), (_ENABLE_PUSH, 0), (_INITIAL_WINDOW_SIZE, _WINDOW_BYTES))
        self._frame(_SETTINGS, 0, 0, b"".join(_SETTING.pack(*each) for each in settings))
        self._frame(_WINDOW_UPDATE, 0, 0, _NUMBER.pack(_WINDOW_BYTES - _FIRST_WINDOW_BYTES))
        fields = {
            ":method": "POST",
            ":scheme": "https",
            ":path": path,
            ":authority": authority,
            "te": "trailers",
            "content-type": "application/grpc",
        }
        self._frame(_HEADERS, _END_HEADERS, _STREAM, b"".join(map(literal, fields, fields.values())))

    def say(self, message: bytes) -> None:
        """Send a message, as soon as the node has room for it."""
        self._unsent += _MESSAGE_HEAD.pack(0, len(message))
        self._unsent += message
        self._send_messages()

    def ping(self) -> None:
        """Ask for a sign of life. Whatever the node sends is one."""
        self._frame(_PING, 0, 0, bytes(8))

    def to_send(self) -> bytearray:
        """What is to be written. The caller takes away from its beginning what was written."""
        return self._out

    @property
    def has_sent(self) -> bool:
        """Whether all that was said is on its way."""
        return not self._out and not self._unsent

    def next(self) -> bytes | None:
        """The next message of the node, None if none is there."""
        if not self._messages:
            return None
        message = self._messages.popleft()
        self._grant()
        return message

    def feed(self, data: bytes) -> None:
        """Take in what the node sent. Raises `BadHttp2`; then there is no going on."""
        if self._rest:
            data = self._rest + data
        position, end = 0, len(data)
        while end - position >= _HEAD.size:
            word, flags, stream = _HEAD.unpack_from(data, position)
            length, start = word >> 8, position + _HEAD.size
            if length > _FRAME_BYTES:
                raise BadHttp2(f"a frame of {length} bytes")
            if start + length > end:
                break
            position = start + length
            self._take(word & 0xFF, flags, stream & _MAX_WINDOW_BYTES, data[start:position])
        self._rest = data[position:]
        self._send_messages()
        if len(self._out) > _MAX_CONTROL_BYTES + _FRAME_BYTES:
            raise BadHttp2("it sends and does not read")

    # ---- what comes

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if (self._block is not None) is not (kind == _CONTINUATION):
            raise BadHttp2("headers that are not continued, or continued from nowhere")
        if kind == _DATA:
            self._data(flags, stream, payload)
        elif kind in (_HEADERS, _CONTINUATION):
            self._headers(kind, flags, stream, payload)
        elif kind == _SETTINGS:
            self._settings(flags, payload)
        elif kind == _WINDOW_UPDATE:
            self._widen(stream, _number(payload) & _MAX_WINDOW_BYTES)
        elif kind == _PING:
            if not flags & _ACK:
                self._frame(_PING, _ACK, 0, payload)
        elif kind == _RST_STREAM:
            self._end(f"the node reset the stream, HTTP/2 error {_number(payload)}")
        elif kind == _GOAWAY:
            last, error = _number(payload[:4]) & _MAX_WINDOW_BYTES, _number(payload[4:8])
            # Without an error a stream that it knows goes on to its own end.
            if error or last < _STREAM:
                words = payload[8:].decode("utf-8", "replace")
                self._end(f"the node goes away, HTTP/2 error {error} {words}".strip())
        elif kind == _PUSH_PROMISE:
            raise BadHttp2("a push, which was not allowed")

    def _data(self, flags: int, stream: int, payload: bytes) -> None:
        if stream != _STREAM or not self._is_answered:
            raise BadHttp2("data of no stream of ours")
        self._ungranted += len(payload)
        if self._ungranted > _WINDOW_BYTES:
            raise BadHttp2("more than there was room for")
        self._incoming += _without_padding(flags, payload)
        while len(self._incoming) >= _MESSAGE_HEAD.size:
            is_compressed, length = _MESSAGE_HEAD.unpack_from(self._incoming)
            if is_compressed or length > MAX_MESSAGE_BYTES:
                raise BadHttp2(f"a message of {length} bytes" + (", compressed" if is_compressed else ""))
            whole = _MESSAGE_HEAD.size + length
            if len(self._incoming) < whole:
                break
            self._messages.append(bytes(self._incoming[_MESSAGE_HEAD.size : whole]))
            del self._incoming[:whole]
        self._grant()
        if flags & _END_STREAM:
            self._end("the node ended the stream")

    def _grant(self) -> None:
        """Let the node send more, unless it has sent much that nobody took."""
        if self._ungranted > _WINDOW_BYTES // 2 and len(self._messages) < MAX_WAITING:
            granted = _NUMBER.pack(self._ungranted)
            self._ungranted = 0
            self._frame(_WINDOW_UPDATE, 0, 0, granted)
            self._frame(_WINDOW_UPDATE, 0, _STREAM, granted)

    def _headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if stream != _STREAM:
            raise BadHttp2("headers of no stream of ours")
        if kind == _HEADERS:
            payload = _without_padding(flags, payload)
            self._block = bytearray(payload[5:] if flags & _PRIORITY else payload)
            self._block_ends_stream = bool(flags & _END_STREAM)
        elif self._block is not None:
            self._block += payload
        if self._block is None or len(self._block) > _MAX_HEADERS_BYTES:
            raise BadHttp2("headers that are too long")
        if not flags & _END_HEADERS:
            return
        fields, self._block = read_headers(bytes(self._block)), None
        http_status = fields.get(":status", "200")
        if self._block_ends_stream:
            self._end(_reason(fields))
        elif http_status != "200":
            self._end(f"the node answers with HTTP status {http_status}")
        self._is_answered = True

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & _ACK:
            return
        if len(payload) % _SETTING.size:
            raise BadHttp2("settings that are cut")
        for setting, value in _SETTING.iter_unpack(payload):
            if setting == _INITIAL_WINDOW_SIZE:
                # Also for what is under way: the window may become negative.
                self._widen(_STREAM, value - self._first_window)
                self._first_window = value
        self._frame(_SETTINGS, _ACK, 0, b"")

    def _widen(self, stream: int, by: int) -> None:
        if stream not in (0, _STREAM):
            return
        self._windows[stream] += by
        if self._windows[stream] > _MAX_WINDOW_BYTES:
            raise BadHttp2("a window that is too wide")

    def _end(self, why: str) -> None:
        self.ended = self.ended or why[:_MAX_REASON_CHARACTERS]

    # ---- what goes

    def _send_messages(self) -> None:
        """As much of what was said as the node has room for."""
        while self._unsent and (room := min(*self._windows, _FRAME_BYTES)) > 0:
            # Written in bounded pieces: what waits here in full need not be here twice.
            if len(self._out) > _MAX_CONTROL_BYTES:
                return
            chunk = bytes(self._unsent[:room])
            del self._unsent[:room]
            self._windows = [each - len(chunk) for each in self._windows]
            self._frame(_DATA, 0, _STREAM, chunk)

    def sent(self, count: int) -> None:
        """So many bytes of `to_send` were written."""
        del self._out[:count]
        if self._unsent:
            self._send_messages()

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self._out += _HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def _number(payload: bytes) -> int:
    if len(payload) != _NUMBER.size:
        raise BadHttp2("a frame of another length than its type has")
    (number,) = _NUMBER.unpack(payload)
    return int(number)


def _without_padding(flags: int, payload: bytes) -> bytes:
    if not flags & _PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise BadHttp2("more padding than there is")
    return payload[1 : len(payload) - payload[0]]


def _reason(fields: dict[str, str]) -> str:
    """What the end of a call says, as gRPC's clients do."""
    status = fields.get("grpc-status", "")
    if not status:
        return f"the node ended the stream, HTTP status {fields.get(':status', 'unknown')}"
    # Two digits: of thousands Python makes no number.
    is_known = status.isascii() and status.isdigit() and len(status) <= 2 and int(status) < len(_STATUSES)
    name = _STATUSES[int(status)] if is_known else f"status {status}"
    return f"{name} {unquote(fields.get('grpc-message', ''))}".strip()
