# SPDX-License-Identifier: Apache-2.0
"""Accepts TLS connections within limits.

A connection costs a socket until its first byte. Then it waits for a handshake slot, by client address. When
all places are taken, the client address with most connections without a review loses its oldest; without such
a connection, the one with the oldest last review is closed. So idle connections go first.
"""

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import Callable

from aiohttp import web

from daemonkit import logs
from daemonkit.admission.connection_slots import ConnectionSlots, client_address_of
from daemonkit.admission.handshake_slots import HandshakeSlots
from daemonkit.tasks import Tasks
from daemonkit.tls.openssl import end_inspection

# From accept to the first byte, and then for the handshake.
_HANDSHAKE_S = 5.0
_CLOSE_TIMEOUT_S = 1.0
_BACKLOG = 1_024
# Connections without a byte or a handshake slot: a socket and 1 KB each.
MAX_SILENT = 1_024
# A handshake takes milliseconds; one slower than STALLED_S is ended if another waits.
MAX_HANDSHAKES = 64
STALLED_S = 1.0
# A closed connection is a cycle with up to a megabyte of buffers. Python collects cycles only after
# many more allocations than these are.
_COLLECT_AFTER = 32
_RETRY_S = 1.0  # out of descriptors or memory, the next accept fails too

_log = logs.get(__name__)


class _Arrival:
    """A connection whose handshake is not done."""

    __slots__ = ("client_address", "handshake", "sock", "timer")

    def __init__(self, sock: socket.socket, client_address: str) -> None:
        self.sock = sock
        self.client_address = client_address
        self.timer: asyncio.TimerHandle | None = None
        self.handshake: asyncio.Task[None] | None = None


class Connections:
    """Accepts connections for `http`, at most `most` at once besides silent ones.

    `context` returns the TLS context for the next one.
    """

    def __init__(self, http: web.Server, context: Callable[[], ssl.SSLContext], most: int) -> None:
        self._http = http
        self._context = context
        self._most = most
        self._tasks = Tasks("webhook")
        self._loop = asyncio.get_running_loop()
        self._silent: ConnectionSlots[_Arrival] = ConnectionSlots(MAX_SILENT)
        self._slots: HandshakeSlots[_Arrival] = HandshakeSlots(MAX_HANDSHAKES, STALLED_S, STALLED_S)
        self._next_slot: asyncio.TimerHandle | None = None
        self._arrivals: set[_Arrival] = set()
        self._is_stopped = False
        # Each with the task of its handshake, which may be done.
        self._new: dict[asyncio.BaseProtocol, asyncio.Task[None]] = {}
        self._new_by_client_address: ConnectionSlots[asyncio.BaseProtocol] = ConnectionSlots(most)
        self._used: dict[asyncio.BaseProtocol, asyncio.Task[None]] = {}  # the most recently used last
        self._accepted = 0

    def __len__(self) -> int:
        """Connections whose handshake has begun or is done."""
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
        """Stop accepting, and end handshakes. `http` ends the established connections."""
        self._is_stopped = True
        if self._next_slot is not None:
            self._next_slot.cancel()
        for arrival in tuple(self._arrivals):
            self._end(arrival)
        await self._tasks.close(_CLOSE_TIMEOUT_S)

    def mark_used(self, protocol: asyncio.BaseProtocol | None) -> None:
        """It brought a review: all others are evicted before it."""
        if protocol is not None:
            handshake = self._new.pop(protocol, None) or self._used.pop(protocol, None)
            self._new_by_client_address.discard(protocol)
            if handshake is not None:
                self._used[protocol] = handshake

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                taken, peer = await self._loop.sock_accept(listener)
            except ConnectionError:
                continue  # closed before it was accepted
            except OSError as error:
                evicted = self._silent.evict()
                if evicted is not None:
                    self._end(evicted)
                    continue
                _log.error("cannot accept connections, retrying", reason=error.strerror)
                await asyncio.sleep(_RETRY_S)
                continue
            self._take(taken, client_address_of(peer[0]))

    # ---- before the handshake

    def _take(self, taken: socket.socket, client_address: str) -> None:
        arrival = _Arrival(taken, client_address)
        evicted = self._silent.add(arrival, client_address)
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
        self._slots.wait(arrival, arrival.client_address)
        self._advance()

    def _advance(self) -> None:
        """Start handshakes in free slots, and end stalled ones that others wait for."""
        if self._next_slot is not None:
            self._next_slot.cancel()
            self._next_slot = None
        while not self._is_stopped:
            step = self._slots.next(self._loop.time())
            if step.ended is not None:
                self._end(step.ended)
            elif step.begun is not None:
                self._begin(step.begun)
            else:
                if step.again_s is not None:
                    self._next_slot = self._loop.call_later(step.again_s, self._advance)
                return

    def _end(self, arrival: _Arrival) -> None:
        """Close a connection; cancelling its handshake closes the socket."""
        self._silent.discard(arrival)
        if arrival.handshake is not None:
            arrival.handshake.cancel()
        elif arrival in self._arrivals:
            self._loop.remove_reader(arrival.sock)
            arrival.sock.close()
            self._forget_arrival(arrival)

    def _forget_arrival(self, arrival: _Arrival) -> None:
        self._arrivals.discard(arrival)
        if arrival.timer is not None:
            arrival.timer.cancel()
        self._slots.over(arrival, self._loop.time())

    # ---- the handshake, and after it

    def _begin(self, arrival: _Arrival) -> None:
        self._silent.discard(arrival)
        if arrival.timer is not None:
            arrival.timer.cancel()
        self._drop_closed()
        if len(self) >= self._most:
            self._make_room()
        self._accepted += 1
        if self._accepted % _COLLECT_AFTER == 0:
            gc.collect()
        protocol = self._http()
        arrival.handshake = self._new[protocol] = self._tasks.spawn(
            self._handshake(arrival.sock, protocol),
            "handshake",
            when_over=lambda: self._on_handshake_done(arrival),
        )
        self._new_by_client_address.add(protocol, arrival.client_address)

    def _on_handshake_done(self, arrival: _Arrival) -> None:
        """Also for a task that was cancelled before it began, which closed no socket."""
        if arrival.handshake is not None and arrival.handshake.cancelled():
            arrival.sock.close()
        self._forget_arrival(arrival)
        self._advance()

    async def _handshake(self, taken: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        # Only the peer can cause these errors.
        with contextlib.suppress(OSError):
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol,
                taken,
                ssl=self._context(),
                ssl_handshake_timeout=_HANDSHAKE_S,
                ssl_shutdown_timeout=_CLOSE_TIMEOUT_S,
            )
            end_inspection(transport.get_extra_info("ssl_object"))

    def _drop_closed(self) -> None:
        alive = set(self._http.connections)
        for group in (self._new, self._used):
            for protocol, handshake in tuple(group.items()):
                if handshake.done() and protocol not in alive:
                    del group[protocol]
                    self._new_by_client_address.discard(protocol)

    def _make_room(self) -> None:
        protocol = self._new_by_client_address.evict()
        if protocol is not None:
            _abort(protocol, self._new.pop(protocol))
        elif self._used:
            protocol = next(iter(self._used))
            _abort(protocol, self._used.pop(protocol))


def _abort(protocol: asyncio.BaseProtocol, handshake: asyncio.Task[None]) -> None:
    """End a connection. One without a transport is already closed."""
    transport = getattr(protocol, "transport", None)
    if not handshake.done():
        handshake.cancel()
    elif transport is not None:
        transport.abort()
