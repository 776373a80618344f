# SPDX-License-Identifier: Apache-2.0
"""What either end of a ttrpc connection makes of the frames it gets. Pure.

Only unary calls: neither the Kata agent nor NRI has others. A frame of a stream that is not (or no
longer) known is dropped without a word, since giving a call up is nothing but forgetting its id.
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
# To decode what is larger may take seconds, so that is left to whoever can do it beside the loop.
_DECODED_BYTES = 16 << 10
_MAX_MESSAGE_CHARACTERS = 64 << 10


@dataclass(frozen=True, slots=True)
class CallResult:
    """What came back for a call: its payload, why there is none, or a large frame for `outcome_of`."""

    stream_id: int
    outcome: bytes | TtrpcError | Frame


class ClientConnection:
    """The calls of one connection. Ids are odd and grow: a server refuses any other order."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._next_id = 1
        self._waiting: set[int] = set()

    def call(
        self, service: str, method: str, payload: bytes, timeout_s: float, metadata: tuple[KeyValue, ...] = ()
    ) -> Frame:
        """Begin a call; its frame is to be sent before that of the next one.

        Raises `StatusError` for one that is larger than a frame can be: RESOURCE_EXHAUSTED, as a
        server would say, but without sending it.
        """
        if self._next_id > _MAX_STREAM_ID:
            raise TtrpcError(Code.UNAVAILABLE, "this connection has no more stream ids")
        # What is left of less than a nanosecond must not become 0, which is no limit.
        timeout_nano = max(1, int(timeout_s * 1e9))
        data = encode(Request(service, method, payload, timeout_nano, metadata))
        if len(data) > MAX_DATA_BYTES:
            raise TtrpcError(Code.RESOURCE_EXHAUSTED, f"the call has {len(data)} bytes, {MAX_DATA_BYTES} fit")
        frame = Frame(self._next_id, REQUEST, data)
        self._waiting.add(self._next_id)
        self._next_id += 2
        return frame

    def forget(self, stream_id: int) -> None:
        """Give a call up; an answer that comes later is dropped."""
        self._waiting.discard(stream_id)

    def receive(self, data: bytes) -> list[CallResult]:
        """Return the answers that `data` completes, each to a call that waits."""
        answers = []
        for frame in self._reader.feed(data):
            if frame.type != RESPONSE or frame.stream_id not in self._waiting:
                continue
            self._waiting.discard(frame.stream_id)
            if isinstance(frame, Frame) and len(frame.data) > _DECODED_BYTES:
                answers.append(CallResult(frame.stream_id, frame))
            else:
                answers.append(CallResult(frame.stream_id, outcome_of(frame)))
        return answers


def outcome_of(frame: Frame | OversizedFrame) -> bytes | TtrpcError:
    """The payload of a response, or why there is none."""
    if isinstance(frame, OversizedFrame):
        return TtrpcError(Code.RESOURCE_EXHAUSTED, f"the answer has {frame.size_bytes} bytes")
    try:
        response = decode(Response, frame.data)
    except BadMessage as error:
        return TtrpcError(Code.INTERNAL, f"the answer cannot be read: {error}")
    if response.status is not None and response.status.code != Code.OK:
        return TtrpcError(response.status.code, response.status.message)
    return response.payload


@dataclass(frozen=True, slots=True)
class IncomingCall:
    """A request to serve. `timeout_s` is what its caller gives it, None for no limit."""

    stream_id: int
    service: str
    method: str
    payload: bytes
    timeout_s: float | None


class ServerConnection:
    """The requests of one connection."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._last_id = 0

    def receive(self, data: bytes) -> list[IncomingCall | Frame]:
        """Return what `data` brings, in its order: calls to serve and refusals to send."""
        return [self._request(frame) for frame in self._reader.feed(data) if frame.type == REQUEST]

    def _request(self, frame: Frame | OversizedFrame) -> IncomingCall | Frame:
        if frame.stream_id % 2 == 0:
            return refusal(frame.stream_id, Code.INVALID_ARGUMENT, "a client's stream ids are odd")
        if frame.stream_id <= self._last_id:
            return refusal(frame.stream_id, Code.INVALID_ARGUMENT, "stream ids grow and are not used again")
        self._last_id = frame.stream_id
        if isinstance(frame, OversizedFrame):
            return refusal(frame.stream_id, Code.RESOURCE_EXHAUSTED, f"the call has {frame.size_bytes} bytes")
        if frame.flags & REMOTE_OPEN:
            return refusal(frame.stream_id, Code.UNIMPLEMENTED, "no streams are served here")
        try:
            request = decode(Request, frame.data)
        except BadMessage as error:
            return refusal(frame.stream_id, Code.INVALID_ARGUMENT, f"the call cannot be read: {error}")
        timeout_s = request.timeout_nano / 1e9 if request.timeout_nano > 0 else None
        return IncomingCall(frame.stream_id, request.service, request.method, request.payload, timeout_s)


def answer(stream_id: int, payload: bytes) -> Frame:
    """The frame that answers a call, or says that its answer is too large."""
    data = encode(Response(payload=payload))
    if len(data) > MAX_DATA_BYTES:
        return refusal(stream_id, Code.RESOURCE_EXHAUSTED, f"the answer has {len(data)} bytes")
    return Frame(stream_id, RESPONSE, data)


def refusal(stream_id: int, code: Code, message: str) -> Frame:
    """The frame that refuses a call. A long message is cut: programs put their whole output in it."""
    return Frame(stream_id, RESPONSE, encode(Response(RpcStatus(code, message[:_MAX_MESSAGE_CHARACTERS]))))
