# SPDX-License-Identifier: Apache-2.0
"""Connections over TLS, and how many of them there are, handshakes among them.

A connection costs a socket until its first byte, then waits for its turn to shake hands, by source. Where all
places are taken, the source with most connections that have brought no review loses its oldest, and then the
one whose last review is longest ago gives way: whoever does no more than hold connections loses them.
"""

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import Callable

from aiohttp import web

from daemonkit import logs
from daemonkit.admission.connection_slots import ConnectionSlots, source_of
from daemonkit.admission.handshake_slots import HandshakeSlots
from daemonkit.tasks import Tasks
from daemonkit.tls.openssl import end_inspection

# From accept to the first byte, and then for the handshake.
_HANDSHAKE_S = 5.0
_GOODBYE_S = 1.0
_BACKLOG = 1_024
# Silent ones, and those that wait for their turn: a socket and 1 KB each.
MAX_SILENT = 1_024
# At once; a turn takes milliseconds, and is taken back after STALLED_S where another waits.
MAX_HANDSHAKES = 64
STALLED_S = 1.0
# What a connection leaves behind goes in circles, with up to a megabyte of buffers, and Python looks for
# such things only when there are many more objects than before.
_COLLECT_AFTER = 32
_RETRY_S = 1.0  # without descriptors or memory the next one is not taken either

_log = logs.get(__name__)


class _Arrival:
    """A connection whose handshake has not ended."""

    __slots__ = ("handshake", "sock", "source", "timer")

    def __init__(self, sock: socket.socket, source: str) -> None:
        self.sock = sock
        self.source = source
        self.timer: asyncio.TimerHandle | None = None
        self.handshake: asyncio.Task[None] | None = None


class Connections:
    """Takes connections for `http`, at most `most` at once beside the silent ones. `context` gives the TLS
    context of the next one."""

    def __init__(self, http: web.Server, context: Callable[[], ssl.SSLContext], most: int) -> None:
        self._http = http
        self._context = context
        self._most = most
        self._tasks = Tasks("webhook")
        self._loop = asyncio.get_running_loop()
        self._silent: ConnectionSlots[_Arrival] = ConnectionSlots(MAX_SILENT)
        self._turns: HandshakeSlots[_Arrival] = HandshakeSlots(MAX_HANDSHAKES, STALLED_S, STALLED_S)
        self._next_turn: asyncio.TimerHandle | None = None
        self._arrivals: set[_Arrival] = set()
        self._is_stopped = False
        # Each with its handshake, which may be over.
        self._new: dict[asyncio.BaseProtocol, asyncio.Task[None]] = {}
        self._new_by_source: ConnectionSlots[asyncio.BaseProtocol] = ConnectionSlots(most)
        self._used: dict[asyncio.BaseProtocol, asyncio.Task[None]] = {}  # the last used last
        self._taken = 0

    def __len__(self) -> int:
        """Those that have begun their handshake, or are through with it."""
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
        self._is_stopped = True
        if self._next_turn is not None:
            self._next_turn.cancel()
        for arrival in tuple(self._arrivals):
            self._end(arrival)
        await self._tasks.close(_GOODBYE_S)

    def was_of_use(self, protocol: asyncio.BaseProtocol | None) -> None:
        """It has brought a review: all others give way before it."""
        if protocol is not None:
            handshake = self._new.pop(protocol, None) or self._used.pop(protocol, None)
            self._new_by_source.discard(protocol)
            if handshake is not None:
                self._used[protocol] = handshake

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                taken, peer = await self._loop.sock_accept(listener)
            except ConnectionError:
                continue  # gone before it was taken
            except OSError as error:
                evicted = self._silent.evict()
                if evicted is not None:
                    self._end(evicted)
                    continue
                _log.error("cannot take connections", reason=error.strerror)
                await asyncio.sleep(_RETRY_S)
                continue
            self._take(taken, source_of(peer[0]))

    # ---- before the handshake

    def _take(self, taken: socket.socket, source: str) -> None:
        arrival = _Arrival(taken, source)
        evicted = self._silent.add(arrival, source)
        if evicted is not None:
            self._end(evicted)
        self._arrivals.add(arrival)
        arrival.timer = self._loop.call_later(_HANDSHAKE_S, self._end, arrival)
        self._loop.add_reader(taken, self._on_first_byte, arrival)

    def _on_first_byte(self, arrival: _Arrival) -> None:
        self._loop.remove_reader(arrival.sock)
        try:
            is_gone = not arrival.sock.recv(1, socket.MSG_PEEK)
        except OSError:
            is_gone = True
        if is_gone:
            self._end(arrival)
            return
        self._turns.wait(arrival, arrival.source)
        self._advance()

    def _advance(self) -> None:
        """Give turns to those that wait, and look again when the next may be taken from somebody."""
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        while not self._is_stopped:
            step = self._turns.next(self._loop.time())
            if step.ended is not None:
                self._end(step.ended)
            elif step.begun is not None:
                self._begin(step.begun)
            else:
                if step.again_s is not None:
                    self._next_turn = self._loop.call_later(step.again_s, self._advance)
                return

    def _end(self, arrival: _Arrival) -> None:
        """Of one that has its turn the handshake ends, and with it the socket."""
        self._silent.discard(arrival)
        if arrival.handshake is not None:
            arrival.handshake.cancel()
        elif arrival in self._arrivals:
            self._loop.remove_reader(arrival.sock)
            arrival.sock.close()
            self._over(arrival)

    def _over(self, arrival: _Arrival) -> None:
        self._arrivals.discard(arrival)
        if arrival.timer is not None:
            arrival.timer.cancel()
        self._turns.over(arrival, self._loop.time())

    # ---- the handshake, and behind it

    def _begin(self, arrival: _Arrival) -> None:
        self._silent.discard(arrival)
        if arrival.timer is not None:
            arrival.timer.cancel()
        self._forget()
        if len(self) >= self._most:
            self._make_room()
        self._taken += 1
        if self._taken % _COLLECT_AFTER == 0:
            gc.collect()
        protocol = self._http()
        arrival.handshake = self._new[protocol] = self._tasks.spawn(
            self._handshake(arrival.sock, protocol), "handshake", when_over=lambda: self._shaken(arrival)
        )
        self._new_by_source.add(protocol, arrival.source)

    def _shaken(self, arrival: _Arrival) -> None:
        """Well or not; also where it ended before it began, when nothing has closed the socket."""
        if arrival.handshake is not None and arrival.handshake.cancelled():
            arrival.sock.close()
        self._over(arrival)
        self._advance()

    async def _handshake(self, taken: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        # An error here is one of the other side, or of nobody who ever spoke TLS.
        with contextlib.suppress(OSError):
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol,
                taken,
                ssl=self._context(),
                ssl_handshake_timeout=_HANDSHAKE_S,
                ssl_shutdown_timeout=_GOODBYE_S,
            )
            end_inspection(transport.get_extra_info("ssl_object"))

    def _forget(self) -> None:
        """Those that are over."""
        alive = set(self._http.connections)
        for held in (self._new, self._used):
            for protocol, handshake in tuple(held.items()):
                if handshake.done() and protocol not in alive:
                    del held[protocol]
                    self._new_by_source.discard(protocol)

    def _make_room(self) -> None:
        """End one."""
        protocol = self._new_by_source.evict()
        if protocol is not None:
            _abort(protocol, self._new.pop(protocol))
        elif self._used:
            protocol = next(iter(self._used))
            _abort(protocol, self._used.pop(protocol))


def _abort(protocol: asyncio.BaseProtocol, handshake: asyncio.Task[None]) -> None:
    """End a connection; one without a transport is closed, and its handler is about to end."""
    transport = getattr(protocol, "transport", None)
    if not handshake.done():
        handshake.cancel()
    elif transport is not None:
        transport.abort()
