# SPDX-License-Identifier: Apache-2.0
"""Connections over TLS, and how many of them there are, handshakes among them.

Where all are taken, the oldest of those that have brought no review gives way, and then the one whose
last review is longest ago: whoever does no more than hold connections loses them.
"""

import asyncio
import contextlib
import gc
import socket
import ssl

from aiohttp import web

from daemonkit import logs
from daemonkit.tasks import Tasks

_HANDSHAKE_S = 5.0
_GOODBYE_S = 1.0
_BACKLOG = 128
# What a connection leaves behind goes in circles, with up to a megabyte of buffers, and Python looks for
# such things only when there are many more objects than before.
_COLLECT_AFTER = 32
_RETRY_S = 1.0  # without descriptors or memory the next one is not taken either

_log = logs.get(__name__)


class Connections:
    """Takes connections for `http`, at most `most` at once."""

    def __init__(self, http: web.Server, context: ssl.SSLContext, most: int) -> None:
        self._http = http
        self._context = context
        self._most = most
        self._tasks = Tasks("webhook")
        # Each with its handshake, which may be over.
        self._new: dict[asyncio.BaseProtocol, asyncio.Task[None]] = {}  # the oldest first
        self._used: dict[asyncio.BaseProtocol, asyncio.Task[None]] = {}  # the last used last
        self._taken = 0

    def __len__(self) -> int:
        return len(self._new) + len(self._used)

    def start(self, address: str, port: int) -> int:
        """Listen; returns the port. Raises OSError."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, port), family=family, backlog=_BACKLOG)
        listener.setblocking(False)
        self._tasks.spawn(self._accept(listener), "listener", when_over=listener.close)
        bound: int = listener.getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Take no more; those that have shaken hands are for `http` to end."""
        await self._tasks.close(_GOODBYE_S)

    def was_of_use(self, protocol: asyncio.BaseProtocol | None) -> None:
        """It has brought a review: all others give way before it."""
        if protocol is not None:
            handshake = self._new.pop(protocol, None) or self._used.pop(protocol, None)
            if handshake is not None:
                self._used[protocol] = handshake

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, _ = await loop.sock_accept(listener)
            except ConnectionError:
                continue  # gone before it was taken
            except OSError as error:
                _log.error("cannot take connections", reason=error.strerror)
                await asyncio.sleep(_RETRY_S)
                continue
            self._forget()
            if len(self) >= self._most and not self._make_room():
                taken.close()
                continue
            self._taken += 1
            if self._taken % _COLLECT_AFTER == 0:
                gc.collect()
            protocol = self._http()
            handshake = self._handshake(taken, protocol)
            self._new[protocol] = self._tasks.spawn(handshake, "handshake")

    async def _handshake(self, taken: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        # An error here is one of the other side, or of nobody who ever spoke TLS.
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                taken,
                ssl=self._context,
                ssl_handshake_timeout=_HANDSHAKE_S,
                ssl_shutdown_timeout=_GOODBYE_S,
            )

    def _forget(self) -> None:
        """Those that are over."""
        alive = set(self._http.connections)
        for held in (self._new, self._used):
            for protocol, handshake in tuple(held.items()):
                if handshake.done() and protocol not in alive:
                    del held[protocol]

    def _make_room(self) -> bool:
        """End one; not where all are about to end by themselves."""
        for held in (self._new, self._used):
            for protocol, handshake in held.items():
                transport = getattr(protocol, "transport", None)
                if not handshake.done():
                    handshake.cancel()
                elif transport is not None:
                    transport.abort()
                else:
                    continue
                del held[protocol]
                return True
        return False
