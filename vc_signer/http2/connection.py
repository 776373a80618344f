# SPDX-License-Identifier: Apache-2.0
"""The server's end of one connection: bytes in, unary calls of gRPC out, and the reverse.

HTTP/2 (RFC 9113) as far as short unary calls need it, and gRPC's framing ("gRPC over HTTP2"). Nothing here
waits: a call is answered when its request is whole, so its deadline (`grpc-timeout`) is not read.
Every buffer has a limit; a client that exceeds one loses its call, or its connection.
"""

from collections.abc import Mapping

from daemonkit.http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW_BYTES,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
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
from vc_signer.http2.header_block import HeaderDecoder

INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 3, 8, 12, 13, 14
"""Codes of gRPC."""

MAX_STREAMS = 32
"""Calls at once, also those that are answered and not read yet."""
MAX_MESSAGE_BYTES = 60 << 10
"""Below a stream's first window, so that a request needs no more of it."""
_MAX_BLOCK_BYTES = 16 << 10
# Answers that a client does not read.
_MAX_OUT_BYTES = 1 << 18
_MAX_TEXT_CHARACTERS = 100

_NO_ERROR, _REFUSED_STREAM = 0, 7
_RESPONSE = literal(":status", "200") + literal("content-type", "application/grpc")
_OK = literal("grpc-status", "0")


class UnaryCall:
    """A call whose request is whole."""

    __slots__ = ("message", "path", "stream")

    def __init__(self, stream: int, path: str, message: bytes) -> None:
        self.stream = stream
        self.path = path
        self.message = message


class _ServedStream:
    """A call: what has come of its request, or what has not been sent of its response."""

    __slots__ = ("body", "path", "response", "window")

    def __init__(self, path: str, window: int) -> None:
        self.path = path
        self.body = bytearray()
        self.response: bytes | None = None
        """DATA to send, or None before there is any."""
        self.window = window
        """How much DATA the client takes now."""


class GrpcServerConnection:
    """One connection of a client. Not thread-safe."""

    def __init__(self) -> None:
        self._out = bytearray()
        self._reader = FrameReader()
        self._expected = PREFACE
        """What of the client's preface has not come."""
        self._has_settings = False
        self._decoder = HeaderDecoder()
        self._block: bytearray | None = None
        self._block_stream = 0
        self._block_ends_stream = False
        self._last_stream = 0
        self._streams: dict[int, _ServedStream] = {}
        self._calls: list[UnaryCall] = []
        self._window = FIRST_WINDOW_BYTES
        """How much DATA the client takes now, of all streams together."""
        self._first_window = FIRST_WINDOW_BYTES
        self._frame(SETTINGS, 0, 0, SETTING.pack(MAX_CONCURRENT_STREAMS, MAX_STREAMS))

    def receive_data(self, data: bytes) -> list[UnaryCall]:
        """Return the calls that `data` completes. Raises `Http2Error`, which ends the connection."""
        if self._expected:
            head = data[: len(self._expected)]
            if not self._expected.startswith(head):
                raise Http2Error("it is no HTTP/2 client")
            self._expected = self._expected[len(head) :]
            data = data[len(head) :]
        for kind, flags, stream, payload in self._reader.feed(data):
            self._handle_frame(kind, flags, stream, payload)
            if len(self._out) > _MAX_OUT_BYTES:
                raise Http2Error("it sends and does not read our answers")
        calls, self._calls = self._calls, []
        return calls

    def respond(self, stream: int, message: bytes) -> None:
        """Answer a call. Nothing happens if the client has given it up."""
        call = self._streams.get(stream)
        if call is not None:
            self._frame(HEADERS, END_HEADERS, stream, _RESPONSE)
            call.response = MESSAGE_HEAD.pack(0, len(message)) + message
            self._flush()

    def fail(self, stream: int, code: int, message: str) -> None:
        """Answer a call by a status. Nothing happens if the client has given it up."""
        if self._streams.pop(stream, None) is not None:
            self._send_status(stream, code, message)

    def _refuse(self, stream: int, code: int, message: str) -> None:
        """Answer a call before its request is whole. What is left of it is not wanted (RFC 9113, 8.1)."""
        self._streams.pop(stream, None)
        self._send_status(stream, code, message)
        self._frame(RST_STREAM, 0, stream, NUMBER.pack(_NO_ERROR))

    def end(self) -> None:
        """Let the client finish what it has sent, and dial anew for more."""
        self._frame(GOAWAY, 0, 0, NUMBER.pack(self._last_stream) + NUMBER.pack(_NO_ERROR))

    def data_to_send(self) -> bytearray:
        """The bytes to write. Remove from it what was written."""
        return self._out

    @property
    def is_flushed(self) -> bool:
        """Whether all responses were written."""
        return not self._out and all(each.response is None for each in self._streams.values())

    @property
    def is_incomplete(self) -> bool:
        """Whether more must come or be read: of a frame, of headers, of a request, of a response."""
        return bool(
            self._expected
            or self._reader.is_incomplete
            or self._block is not None
            or self._streams
            or self._out
        )

    # ---- frames from the client

    def _handle_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if not self._has_settings and kind != SETTINGS:
            raise Http2Error("it does not begin with SETTINGS")
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
            if len(payload) != 8:
                raise Http2Error("a PING has the wrong length")
            if not flags & ACK:
                self._frame(PING, ACK, 0, payload)
        elif kind == RST_STREAM:
            self._streams.pop(stream, None)
        elif kind == PUSH_PROMISE:
            raise Http2Error("a PUSH_PROMISE from a client")

    def _handle_headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == HEADERS:
            payload = without_padding(flags, payload)
            self._block = bytearray(payload[PRIORITY_BYTES:] if flags & PRIORITY else payload)
            self._block_stream, self._block_ends_stream = stream, bool(flags & END_STREAM)
        elif self._block is not None:
            self._block += payload
        if self._block is None or stream != self._block_stream or len(self._block) > _MAX_BLOCK_BYTES:
            raise Http2Error("headers are too long, or of two streams")
        if flags & END_HEADERS:
            # Also of a call that is refused: the next headers may refer to these.
            fields, self._block = self._decoder.decode(bytes(self._block)), None
            self._open_stream(stream, fields)
            if self._block_ends_stream:
                self._end_request(stream)

    def _open_stream(self, stream: int, fields: Mapping[str, str]) -> None:
        if not stream % 2:
            raise Http2Error("a stream's number is even")
        if stream <= self._last_stream:
            if stream in self._streams:
                raise Http2Error("trailers of a request, which gRPC does not have")
            return  # of a stream that was refused or has ended
        self._last_stream = stream
        if len(self._streams) >= MAX_STREAMS:
            self._frame(RST_STREAM, 0, stream, NUMBER.pack(_REFUSED_STREAM))
            return
        if fields.get(":method") != "POST" or not fields.get("content-type", "").startswith(
            "application/grpc"
        ):
            self._refuse(stream, INTERNAL, "this is no call of gRPC")
            return
        self._streams[stream] = _ServedStream(fields.get(":path", ""), self._first_window)

    def _handle_data(self, flags: int, stream: int, payload: bytes) -> None:
        if stream > self._last_stream or not stream:
            raise Http2Error("DATA outside of a stream")
        if payload:
            self._frame(WINDOW_UPDATE, 0, 0, NUMBER.pack(len(payload)))
        call = self._streams.get(stream)
        if call is None or call.response is not None:
            return
        call.body += without_padding(flags, payload)
        if len(call.body) > MAX_MESSAGE_BYTES + MESSAGE_HEAD.size:
            self._refuse(stream, RESOURCE_EXHAUSTED, f"a request has at most {MAX_MESSAGE_BYTES} bytes")
        elif flags & END_STREAM:
            self._end_request(stream)

    def _end_request(self, stream: int) -> None:
        call = self._streams.get(stream)
        if call is None:
            return
        body = bytes(call.body)
        call.body.clear()
        if len(body) < MESSAGE_HEAD.size:
            self.fail(stream, INTERNAL, "the request has no message")
            return
        is_compressed, length = MESSAGE_HEAD.unpack_from(body)
        if is_compressed:
            self.fail(stream, UNIMPLEMENTED, "compressed requests are not supported")
        elif length != len(body) - MESSAGE_HEAD.size:
            self.fail(stream, INTERNAL, "the request is not one message")
        else:
            self._calls.append(UnaryCall(stream, call.path, body[MESSAGE_HEAD.size :]))

    def _handle_settings(self, flags: int, payload: bytes) -> None:
        self._has_settings = True
        if flags & ACK:
            return
        if len(payload) % SETTING.size:
            raise Http2Error("SETTINGS are cut short")
        for setting, value in SETTING.iter_unpack(payload):
            if setting == INITIAL_WINDOW_SIZE:
                # Also for responses under way: a window may become negative.
                for each in self._streams.values():
                    each.window = _checked(each.window + value - self._first_window)
                self._first_window = _checked(value)
        self._frame(SETTINGS, ACK, 0, b"")
        self._flush()

    def _widen_window(self, stream: int, by: int) -> None:
        call = self._streams.get(stream)
        if not stream:
            self._window = _checked(self._window + by)
        elif call is not None:
            call.window = _checked(call.window + by)
        self._flush()

    # ---- frames to the client

    def _flush(self) -> None:
        """Send as much of the responses as the client's windows allow."""
        for stream, call in list(self._streams.items()):
            while call.response and (room := min(self._window, call.window, MAX_FRAME_BYTES)) > 0:
                chunk, call.response = call.response[:room], call.response[room:]
                self._window -= len(chunk)
                call.window -= len(chunk)
                self._frame(DATA, 0, stream, chunk)
            if call.response == b"":
                del self._streams[stream]
                self._frame(HEADERS, END_HEADERS | END_STREAM, stream, _OK)

    def _send_status(self, stream: int, code: int, message: str) -> None:
        fields = literal("grpc-status", str(code)) + literal("grpc-message", _as_header(message))
        self._frame(HEADERS, END_HEADERS | END_STREAM, stream, _RESPONSE + fields)

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self._out += frame(kind, flags, stream, payload)


def _checked(window: int) -> int:
    if window > MAX_WINDOW_BYTES:
        raise Http2Error("a window is too large")
    return window


def _as_header(message: str) -> str:
    """A text of ours, as gRPC codes it in a header: `%` and what is not printable ASCII are left out."""
    return "".join(each for each in message[:_MAX_TEXT_CHARACTERS] if " " <= each <= "~" and each != "%")
