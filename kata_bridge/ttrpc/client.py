# SPDX-License-Identifier: Apache-2.0
"""A ttrpc client: many calls at once on one connection, each with its own deadline."""

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

# A frame has up to 4 MiB, so unsent data stays within 256 MiB, whatever the peer does.
MAX_PENDING = 64

_READ_BYTES = 64 << 10
# Received bytes without a response among them: a hostile peer may send frames that answer no call.
_MAX_UNMATCHED_BYTES = MAX_DATA_BYTES + (64 << 10)
_CLOSE_S = 1.0


class ConnectionLost(ConnectionError):  # noqa: N818 - an outcome that every caller expects
    """The connection ended before the response; the peer may or may not have run the call."""


class ClientCalls:
    """The calls of one connection, without its transport.

    `send` gets frames in the order in which they must be sent; `drain` waits until the peer has read most of
    them. The transport passes received bytes to `receive`, and its end to `lost`.
    """

    def __init__(self, send: Callable[[Frame], None], drain: Callable[[], Awaitable[None]]) -> None:
        self._connection = ClientConnection()
        self._send = send
        self._drain = drain
        self._pending: dict[int, asyncio.Future[bytes | Frame]] = {}
        self._lost: str | None = None

    async def call(
        self,
        service: str,
        method: str,
        payload: bytes,
        timeout_s: float,
        metadata: tuple[KeyValue, ...] = (),
    ) -> bytes:
        """Call and return the response's payload.

        Raises `TtrpcError` for a status other than OK, `TimeoutError`, and `ConnectionLost`.
        """
        if self._lost is not None:
            raise ConnectionLost(self._lost)
        if len(self._pending) >= MAX_PENDING:
            raise RuntimeError(f"{MAX_PENDING} calls are pending on this connection already")
        # No await from here: frames must be sent in the order of their ids.
        frame = self._connection.call(service, method, payload, timeout_s, metadata)
        answered: asyncio.Future[bytes | Frame] = asyncio.get_running_loop().create_future()
        self._pending[frame.stream_id] = answered
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
            del self._pending[frame.stream_id]
            if not answered.cancel() and not answered.cancelled():
                answered.exception()  # retrieved, or asyncio logs it where the deadline came first

    def receive(self, data: bytes) -> bool:
        """Take received bytes; return whether they completed a call."""
        answers = self._connection.receive(data)
        for answer in answers:
            waiting = self._pending[answer.stream_id]
            if waiting.done():
                continue  # cancelled, and about to be dropped
            if isinstance(answer.outcome, TtrpcError):
                waiting.set_exception(answer.outcome)
            else:
                waiting.set_result(answer.outcome)
        return bool(answers)

    def lost(self, reason: str) -> None:
        """Fail all pending and later calls with `ConnectionLost`."""
        if self._lost is not None:
            return
        self._lost = reason
        for waiting in self._pending.values():
            if not waiting.done():
                waiting.set_exception(ConnectionLost(reason))


class TtrpcClient:
    """`ClientCalls` over a stream, which it owns; `async with` reads and closes the stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._calls = ClientCalls(self._send, writer.drain)
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
            unmatched_bytes = 0
            while data := await self._reader.read(_READ_BYTES):
                unmatched_bytes = 0 if self._calls.receive(data) else unmatched_bytes + len(data)
                if unmatched_bytes > _MAX_UNMATCHED_BYTES:
                    reason = f"the peer sent {unmatched_bytes} bytes that answer no call"
                    break
        except OSError as error:
            reason = error.strerror or str(error)
        finally:
            self._calls.lost(reason)
