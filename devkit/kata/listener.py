# SPDX-License-Identifier: Apache-2.0
"""A unix socket of a fake, which leaves nothing behind when it stops."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from daemonkit.listeners import stop_accepting
from daemonkit.tasks import Tasks

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_STOP_S = 2.0


class Listener:
    """Runs `serve` for each connection to `path`; the connection ends with it.

    A peer that disconnects (`OSError`, an incomplete read) does not fail `serve`.
    """

    def __init__(self, path: Path, serve: Serve) -> None:
        self._path = path
        self._serve = serve
        self._server: asyncio.Server | None = None
        self._is_stopped = False
        self._tasks = Tasks(f"fake-{path.name}")

    @property
    def is_listening(self) -> bool:
        return self._server is not None

    async def start(self) -> None:
        """Listen; replaces an existing file."""
        self._path.unlink(missing_ok=True)
        self._tasks = Tasks(self._tasks.name)
        self._is_stopped = False
        self._server = await asyncio.start_unix_server(self._accept, self._path)

    async def start_on(self, bound: socket.socket) -> None:
        """Listen on a socket that is bound already."""
        self._server = await asyncio.start_unix_server(self._accept, sock=bound)

    async def stop(self) -> None:
        """Stop listening and cut open connections; the file stays, as of a process that died."""
        self._is_stopped = True
        if self._server is not None:
            await stop_accepting(self._server)
            self._server = None
        await self._tasks.close(_STOP_S)
        await asyncio.sleep(0)  # cut connections are closed in the next cycle of the loop

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_stopped:  # accepted just before the socket was closed
            writer.transport.abort()
            return
        self._tasks.spawn(self._connection(reader, writer), "connection", when_over=writer.transport.abort)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await self._serve(reader, writer)
            writer.close()
            await writer.wait_closed()  # flush
