# SPDX-License-Identifier: Apache-2.0
"""The calls of a ttrpc server."""

import asyncio
from collections.abc import Awaitable, Callable

from daemonkit.protobuf import BadMessage
from daemonkit.tasks import Tasks
from kata_bridge.ttrpc.connection import IncomingCall, ServerConnection, refusal, response_frame
from kata_bridge.ttrpc.frame import Frame
from kata_bridge.ttrpc.status import Code, TtrpcError

# Gets service, method and payload of a call, and returns the response's payload. Raises `TtrpcError` to
# refuse it; UNIMPLEMENTED for a service or method that it lacks.
Handler = Callable[[str, str, bytes], Awaitable[bytes]]

# Calls in flight on one connection; each may hold a payload of 4 MiB.
MAX_RUNNING = 64


ENDING = "waiting: this server is stopping; try again"


class ServerCalls:
    """The calls of one connection, without its transport.

    Each is a task of `tasks`. It ends with DEADLINE_EXCEEDED at its caller's deadline, or after `longest_s`
    if that is less. `send` gets each response once it is ready.
    """

    def __init__(
        self,
        handler: Handler,
        send: Callable[[Frame], None],
        tasks: Tasks,
        *,
        longest_s: float | None = None,
    ) -> None:
        self._connection = ServerConnection()
        self._handler = handler
        self._send = send
        self._tasks = tasks
        self._longest_s = longest_s
        self._running = 0

    @property
    def is_idle(self) -> bool:
        """Whether no call is in flight."""
        return not self._running

    def receive(self, data: bytes) -> None:
        """Take received bytes and start their calls."""
        for each in self._connection.receive(data):
            if isinstance(each, Frame):
                self._send(each)
            elif self._running >= MAX_RUNNING:
                self._send(
                    refusal(
                        each.stream_id,
                        Code.RESOURCE_EXHAUSTED,
                        f"{MAX_RUNNING} calls are in flight, which is the limit",
                    )
                )
            else:
                self._running += 1
                self._tasks.spawn(self._serve(each), each.method[:40])

    async def _serve(self, call: IncomingCall) -> None:
        # For an unexpected exception, which the owner of the tasks logs with its trace.
        reply = refusal(call.stream_id, Code.INTERNAL, "internal error; see the log of the server")
        limits = [limit for limit in (call.timeout_s, self._longest_s) if limit is not None]
        try:
            async with asyncio.timeout(min(limits, default=None)):
                payload = await self._handler(call.service, call.method, call.payload)
            reply = response_frame(call.stream_id, payload)
        except asyncio.CancelledError:
            # The author of a pod reads it; the runtime asks again.
            reply = refusal(call.stream_id, Code.FAILED_PRECONDITION, ENDING)
            raise
        except TimeoutError:
            reply = refusal(call.stream_id, Code.DEADLINE_EXCEEDED, "timeout")
        except TtrpcError as error:
            reply = refusal(call.stream_id, error.code, error.message)
        except BadMessage as error:
            reply = refusal(call.stream_id, Code.INVALID_ARGUMENT, str(error))
        finally:
            self._running -= 1
            self._send(reply)
