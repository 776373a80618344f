# SPDX-License-Identifier: Apache-2.0
"""The socket on which the main process and one worker exchange messages."""

import asyncio
import socket

from vnagent.workers import messages
from vnagent.workers.messages import ToMain, ToWorker

_READ_BYTES = 1 << 20


class ChannelClosedError(Exception):
    """The other process has ended, or has closed its end."""


class MessageChannel:
    """One end. Messages arrive in the order in which they were sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, sock: socket.socket) -> "MessageChannel":
        """Own `sock`, a connected stream socket. Raises OSError."""
        return cls(*await asyncio.open_unix_connection(sock=sock, limit=_READ_BYTES))

    def send(self, message: ToMain | ToWorker) -> None:
        """Send it without waiting. Nothing happens once the channel is closed."""
        if not self._writer.is_closing():
            self._writer.write(messages.encode(message))

    @property
    def unsent_bytes(self) -> int:
        return self._writer.transport.get_write_buffer_size()

    async def receive_for_main(self) -> ToMain:
        """The next message. Raises ChannelClosedError, ValueError for what no worker sends."""
        return messages.decode_for_main(await self._receive())

    async def receive_for_worker(self) -> ToWorker:
        """The next message. Raises ChannelClosedError, ValueError for what no main process sends."""
        return messages.decode_for_worker(await self._receive())

    async def _receive(self) -> bytes:
        try:
            length = messages.length_of(await self._reader.readexactly(messages.LENGTH_BYTES))
            return await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ChannelClosedError from error

    def close(self) -> None:
        self._writer.close()
