# SPDX-License-Identifier: Apache-2.0
"""One connection to a server, with TLS or without, as a stream of bytes that is read when asked for.

asyncio's own TLS costs each connection a zero-filled buffer of 256 KiB and more beside it (cpython
109534): 0.4 MB for each of the watches that a daemon keeps open. Here OpenSSL works on memory BIOs,
which are given no more at a time than a few records, as they never shrink.
"""

import asyncio
import socket
import ssl
import struct
from collections import deque
from typing import cast

# What may wait to be read before the peer is made to wait.
HIGH_BYTES = 256 << 10
LOW_BYTES = 64 << 10
_SLICE_BYTES = 32 << 10
_RECORD_BYTES = 16 << 10
# (on, 0 s): closing resets the connection.
_NO_LINGER = struct.pack("ii", 1, 0)


class Connection(asyncio.Protocol):
    """Made by `dial`. One task at a time may read."""

    def __init__(self, context: ssl.SSLContext | None, server_hostname: str | None) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = (
            None
            if context is None
            else context.wrap_bio(self._in, self._out, server_hostname=server_hostname)
        )
        self._transport: asyncio.Transport | None = None
        self._received: deque[bytes] = deque()
        self._received_bytes = 0
        self._is_paused = False
        self._is_handshake_done = context is None
        self._is_ended = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has come that was not read, not even the end: fit for another request."""
        return not self._is_ended and not self._received

    @property
    def peer_address(self) -> str:
        """The address of the other end; empty without a connection."""
        found = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(found[0]) if found else ""

    async def handshake(self) -> None:
        """Wait until the peer has proved who it is. Raises OSError (ssl.SSLError among them)."""
        while not self._is_handshake_done and not self._is_ended:
            await self._wait()
        if self._error is not None:
            raise self._error
        if not self._is_handshake_done:
            raise ConnectionResetError("the connection ended in the handshake")

    def write(self, data: bytes) -> None:
        """Send, or buffer for sending: requests are small."""
        if self._transport is None or self._transport.is_closing():
            return  # `read` raises it
        if self._tls is None:
            self._transport.write(data)
        else:
            self._tls.write(data)
            self._flush()

    async def read(self) -> bytes:
        """The next bytes, empty at the end. Raises OSError when the connection broke."""
        while not self._received and not self._is_ended:
            await self._wait()
        if self._received:
            data = self._received.popleft()
            self._received_bytes -= len(data)
            if self._is_paused and self._received_bytes <= LOW_BYTES and self._transport is not None:
                self._is_paused = False
                self._transport.resume_reading()
            return data
        if self._error is not None:
            raise self._error
        return b""

    def close(self, *, discards_unsent: bool = False) -> None:
        """End the connection at once: whatever was to come is of no use.

        `discards_unsent`: nor is what the kernel has not delivered, which it would go on to send.
        """
        if self._transport is None:
            return
        found = self._transport.get_extra_info("socket") if discards_unsent else None
        if found is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # as all of sockets of streams are
        if self._tls is not None:
            self._pump(self._tls)

    def data_received(self, data: bytes) -> None:
        if self._tls is None:
            self._take(data)
        else:
            for at in range(0, len(data), _SLICE_BYTES):
                self._in.write(data[at : at + _SLICE_BYTES])
                self._pump(self._tls)
        if self._received_bytes > HIGH_BYTES and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        # The reply's framing shows whether it is whole: a missing close_notify does not matter.
        self._end(None)
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error)
        self._transport = None

    # ---- TLS

    def _pump(self, tls: ssl.SSLObject) -> None:
        """Do what can be done with the ciphertext that is there."""
        try:
            if not self._is_handshake_done:
                tls.do_handshake()
                self._is_handshake_done = True
            while data := tls.read(_RECORD_BYTES):
                self._take(data)
            self._end(None)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._flush()  # the alert
            self._end(error)
            self.close()
        self._flush()

    def _flush(self) -> None:
        if self._out.pending and self._transport is not None:
            self._transport.write(self._out.read())

    def _take(self, data: bytes) -> None:
        self._received.append(data)
        self._received_bytes += len(data)

    def _end(self, error: Exception | None) -> None:
        if not self._is_ended:
            self._is_ended, self._error = True, error
        self._wake()


async def dial(
    host: str, port: int, context: ssl.SSLContext | None, server_hostname: str | None
) -> Connection:
    """Connect and shake hands. Raises OSError, ssl.SSLError among them; the caller has the deadline."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection(context, server_hostname), host, port)
    try:
        await connection.handshake()
    except BaseException:
        connection.close()
        raise
    return connection
