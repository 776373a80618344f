# SPDX-License-Identifier: Apache-2.0
"""A unix socket that a fake serves, and that leaves nothing behind when it stops."""

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
    """Serves each connection to `path` by `serve`, whose end closes it.

    A peer that leaves (`OSError`, an incomplete read) is no failure of `serve`.
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
        """Listen; replaces a file that is there."""
        self._path.unlink(missing_ok=True)
        self._tasks = Tasks(self._tasks.name)
        self._is_stopped = False
        self._server = await asyncio.start_unix_server(self._accept, self._path)

    async def start_on(self, bound: socket.socket) -> None:
        """Listen on a socket that is bound already."""
        self._server = await asyncio.start_unix_server(self._accept, sock=bound)

    async def stop(self) -> None:
        """Stop listening and cut what is open; the file stays, as of a process that died."""
        self._is_stopped = True
        if self._server is not None:
            await stop_accepting(self._server)
            self._server = None
        await self._tasks.close(_STOP_S)
        await asyncio.sleep(0)  # what was cut is closed in the loop's next turn

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_stopped:  # accepted just before the socket was closed
            writer.transport.abort()
            return
        self._tasks.spawn(self._connection(reader, writer), "connection", when_over=writer.transport.abort)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await self._serve(reader, writer)
            writer.close()
            await writer.wait_closed()  # what was written has left
