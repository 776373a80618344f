# SPDX-License-Identifier: Apache-2.0
"""The calling end of a ttrpc connection: many calls at once, each with its own deadline."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from daemonkit.tasks import Tasks
from kata_bridge import off_loop
from kata_bridge.ttrpc.connection import ClientConnection, outcome_of
from kata_bridge.ttrpc.frame import MAX_DATA_BYTES, Frame
from kata_bridge.ttrpc.messages import KeyValue
from kata_bridge.ttrpc.status import TtrpcError

# A frame may hold 4 MiB: what waits to be sent stays within 256 MiB, whatever the peer does.
MAX_WAITING = 64

_READ_BYTES = 64 << 10
# Without an answer among them. A guest that sends what answers no call would be read as fast as we can.
_MAX_UNANSWERED_BYTES = MAX_DATA_BYTES + (64 << 10)
_CLOSE_S = 1.0


class ConnectionLost(ConnectionError):  # noqa: N818 - an outcome that every caller expects
    """The connection ended before the call was answered; whether the peer acted is unknown."""


class Calls:
    """The calls of one connection, for whoever moves its bytes.

    `send` is given frames in the order in which they must go; `drain` waits until the peer has read
    most of what was sent. What arrives is handed to `receive`, the end to `lost`.
    """

    def __init__(self, send: Callable[[Frame], None], drain: Callable[[], Awaitable[None]]) -> None:
        self._connection = ClientConnection()
        self._send = send
        self._drain = drain
        self._waiting: dict[int, asyncio.Future[bytes | Frame]] = {}
        self._lost: str | None = None

    async def call(
        self,
        service: str,
        method: str,
        payload: bytes,
        timeout_s: float,
        metadata: tuple[KeyValue, ...] = (),
    ) -> bytes:
        """Call and return the answer's payload.

        Raises `StatusError` for the peer's refusal, `TimeoutError`, and `ConnectionLost`.
        """
        if self._lost is not None:
            raise ConnectionLost(self._lost)
        if len(self._waiting) >= MAX_WAITING:
            raise RuntimeError(f"{MAX_WAITING} calls wait on one connection already")
        # No await from here: frames must leave in the order of their ids.
        frame = self._connection.call(service, method, payload, timeout_s, metadata)
        answered: asyncio.Future[bytes | Frame] = asyncio.get_running_loop().create_future()
        self._waiting[frame.stream_id] = answered
        self._send(frame)
        try:
            async with asyncio.timeout(timeout_s):
                await self._drain()
                outcome: bytes | Frame | TtrpcError = await answered
                if isinstance(outcome, Frame):
                    outcome = await off_loop.run(len(outcome.data), outcome_of, outcome)
                if isinstance(outcome, TtrpcError):
                    raise outcome
                return outcome
        except ConnectionError as error:
            raise ConnectionLost(str(error) or "connection lost") from None
        finally:
            self._connection.forget(frame.stream_id)
            del self._waiting[frame.stream_id]
            if not answered.cancel() and not answered.cancelled():
                answered.exception()  # looked at, so that it does not complain if the deadline came first

    def receive(self, data: bytes) -> bool:
        """Take what the peer sent; return whether a call was answered by it."""
        answers = self._connection.receive(data)
        for answer in answers:
            waiting = self._waiting[answer.stream_id]
            if waiting.done():
                continue  # cancelled, and about to be forgotten
            if isinstance(answer.outcome, TtrpcError):
                waiting.set_exception(answer.outcome)
            else:
                waiting.set_result(answer.outcome)
        return bool(answers)

    def lost(self, reason: str) -> None:
        """End every call that waits or comes, as `ConnectionLost` with this reason."""
        if self._lost is not None:
            return
        self._lost = reason
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionLost(reason))


class Client:
    """`Calls` over a stream, which it owns; `async with` reads it and closes it at the end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._calls = Calls(self._send, writer.drain)
        self._tasks = Tasks("ttrpc-client")
        self.call = self._calls.call

    async def __aenter__(self) -> Self:
        self._tasks.spawn(self._read(), "read")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()
        self._calls.lost("closed")
        await self._tasks.close(_CLOSE_S)

    def _send(self, frame: Frame) -> None:
        self._writer.write(frame.header())
        self._writer.write(frame.data)

    async def _read(self) -> None:
        reason = "closed by the peer"
        try:
            unanswered_bytes = 0
            while data := await self._reader.read(_READ_BYTES):
                unanswered_bytes = 0 if self._calls.receive(data) else unanswered_bytes + len(data)
                if unanswered_bytes > _MAX_UNANSWERED_BYTES:
                    reason = f"it sent {unanswered_bytes} bytes that answer no call"
                    break
        except OSError as error:
            reason = error.strerror or str(error)
        finally:
            self._calls.lost(reason)
