# SPDX-License-Identifier: Apache-2.0
"""A ttrpc server on a unix socket, for fakes and tests. kata-bridge itself serves calls of NRI alone."""

import asyncio
from pathlib import Path

from daemonkit.listeners import stop_accepting
from daemonkit.tasks import Tasks
from kata_bridge.ttrpc.frame import Frame
from kata_bridge.ttrpc.server import Handler, ServerCalls

MAX_CONNECTIONS = 64

_READ_BYTES = 64 << 10
_STOP_S = 1.0


class TtrpcServer:
    """Serves `handler` on a unix socket."""

    def __init__(self, handler: Handler, *, longest_s: float | None = None) -> None:
        self._handler = handler
        self._longest_s = longest_s
        self._tasks = Tasks("ttrpc-server")
        self._connections = 0
        self._is_stopped = False
        self._listener: asyncio.Server | None = None

    async def start_unix(self, path: Path | str) -> None:
        """Listen on a unix socket; raises `OSError`."""
        self._listener = await asyncio.start_unix_server(self._connected, str(path))

    async def stop(self) -> None:
        """Close the socket and every connection; calls under way are cancelled."""
        self._is_stopped = True
        if self._listener is not None:
            await stop_accepting(self._listener)
        await self._tasks.close(_STOP_S)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A connection that was accepted just before the socket was closed still arrives.
        if self._is_stopped or self._connections >= MAX_CONNECTIONS:
            writer.close()
            return
        self._connections += 1

        def over() -> None:
            self._connections -= 1
            writer.close()

        self._tasks.spawn(self._read(reader, writer), "connection", when_over=over)

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def send(frame: Frame) -> None:
            if not writer.is_closing():
                writer.write(frame.header())
                writer.write(frame.data)

        serving = ServerCalls(self._handler, send, self._tasks, longest_s=self._longest_s)
        try:
            while data := await reader.read(_READ_BYTES):
                serving.receive(data)
                # A client that does not read its responses is not read from either.
                await writer.drain()
        except OSError:
            pass  # the peer is gone
