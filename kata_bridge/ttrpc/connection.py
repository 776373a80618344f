# SPDX-License-Identifier: Apache-2.0
"""The frames of either end of a ttrpc connection (docs/spec/kata.md#ttrpc). Pure.

Calls are unary, as all of the Kata agent and NRI. ttrpc has no cancel: an abandoned call is forgotten, and so
a frame of an unknown stream is dropped.
"""

from dataclasses import dataclass

from daemonkit.protobuf import BadMessage, decode, encode
from kata_bridge.ttrpc.frame import (
    MAX_DATA_BYTES,
    REMOTE_OPEN,
    REQUEST,
    RESPONSE,
    Frame,
    FrameReader,
    OversizedFrame,
)
from kata_bridge.ttrpc.messages import KeyValue, Request, Response, RpcStatus
from kata_bridge.ttrpc.status import Code, TtrpcError

_MAX_STREAM_ID = (1 << 32) - 1
# Decoding a larger response may take seconds: the caller does that off the event loop.
_DECODED_BYTES = 16 << 10
_MAX_MESSAGE_CHARACTERS = 64 << 10


@dataclass(frozen=True, slots=True)
class CallResult:
    """The response to a call: its payload, its error, or a large frame for `outcome_of`."""

    stream_id: int
    outcome: bytes | TtrpcError | Frame


class ClientConnection:
    """The calls of a client. Ids are odd and rise, as a server demands."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._next_id = 1
        self._pending: set[int] = set()

    def call(
        self, service: str, method: str, payload: bytes, timeout_s: float, metadata: tuple[KeyValue, ...] = ()
    ) -> Frame:
        """Start a call; send its frame before that of the next call.

        Raises `TtrpcError`, RESOURCE_EXHAUSTED as from a server, for a call larger than a frame.
        """
        if self._next_id > _MAX_STREAM_ID:
            raise TtrpcError(Code.UNAVAILABLE, "this connection has no more stream ids")
        # A rest below one nanosecond must not become 0, which means no deadline.
        timeout_nano = max(1, int(timeout_s * 1e9))
        data = encode(Request(service, method, payload, timeout_nano, metadata))
        if len(data) > MAX_DATA_BYTES:
            raise TtrpcError(
                Code.RESOURCE_EXHAUSTED,
                f"the call has {len(data)} bytes; a frame has at most {MAX_DATA_BYTES}",
            )
        frame = Frame(self._next_id, REQUEST, data)
        self._pending.add(self._next_id)
        self._next_id += 2
        return frame

    def forget(self, stream_id: int) -> None:
        """Abandon a call; a late response is dropped."""
        self._pending.discard(stream_id)

    def receive(self, data: bytes) -> list[CallResult]:
        """Return the results that `data` completes, each of a pending call."""
        answers = []
        for frame in self._reader.feed(data):
            if frame.type != RESPONSE or frame.stream_id not in self._pending:
                continue
            self._pending.discard(frame.stream_id)
            if isinstance(frame, Frame) and len(frame.data) > _DECODED_BYTES:
                answers.append(CallResult(frame.stream_id, frame))
            else:
                answers.append(CallResult(frame.stream_id, outcome_of(frame)))
        return answers


def outcome_of(frame: Frame | OversizedFrame) -> bytes | TtrpcError:
    """The payload of a response, or its error."""
    if isinstance(frame, OversizedFrame):
        return TtrpcError(Code.RESOURCE_EXHAUSTED, f"the response has {frame.size_bytes} bytes")
    try:
        response = decode(Response, frame.data)
    except BadMessage as error:
        return TtrpcError(Code.INTERNAL, f"the response cannot be read: {error}")
    if response.status is not None and response.status.code != Code.OK:
        return TtrpcError(response.status.code, response.status.message)
    return response.payload


@dataclass(frozen=True, slots=True)
class IncomingCall:
    """A call to serve. `timeout_s` is its caller's, None for no deadline."""

    stream_id: int
    service: str
    method: str
    payload: bytes
    timeout_s: float | None


class ServerConnection:
    """The calls that a server receives on one connection."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._last_id = 0

    def receive(self, data: bytes) -> list[IncomingCall | Frame]:
        """Return, in order, the calls that `data` completes, and refusals to send."""
        return [self._request(frame) for frame in self._reader.feed(data) if frame.type == REQUEST]

    def _request(self, frame: Frame | OversizedFrame) -> IncomingCall | Frame:
        if frame.stream_id % 2 == 0:
            return refusal(frame.stream_id, Code.INVALID_ARGUMENT, "a client's stream ids must be odd")
        if frame.stream_id <= self._last_id:
            return refusal(frame.stream_id, Code.INVALID_ARGUMENT, "stream ids must rise")
        self._last_id = frame.stream_id
        if isinstance(frame, OversizedFrame):
            return refusal(frame.stream_id, Code.RESOURCE_EXHAUSTED, f"the call has {frame.size_bytes} bytes")
        if frame.flags & REMOTE_OPEN:
            return refusal(frame.stream_id, Code.UNIMPLEMENTED, "streaming calls are not supported")
        try:
            request = decode(Request, frame.data)
        except BadMessage as error:
            return refusal(frame.stream_id, Code.INVALID_ARGUMENT, f"the call cannot be read: {error}")
        timeout_s = request.timeout_nano / 1e9 if request.timeout_nano > 0 else None
        return IncomingCall(frame.stream_id, request.service, request.method, request.payload, timeout_s)


def response_frame(stream_id: int, payload: bytes) -> Frame:
    """The response to a call, or a refusal where the payload is too large."""
    data = encode(Response(payload=payload))
    if len(data) > MAX_DATA_BYTES:
        return refusal(stream_id, Code.RESOURCE_EXHAUSTED, f"the response has {len(data)} bytes")
    return Frame(stream_id, RESPONSE, data)


def refusal(stream_id: int, code: Code, message: str) -> Frame:
    """The response that refuses a call. Its message is cut: some have the output of a program."""
    return Frame(stream_id, RESPONSE, encode(Response(RpcStatus(code, message[:_MAX_MESSAGE_CHARACTERS]))))
