# SPDX-License-Identifier: Apache-2.0
"""Bytes between guests and the one gRPC server of this node, whatever the guests came through.

What listens is in `doors` (grpcio cannot listen on AF_VSOCK). TLS is end to end; what passes is
ciphertext. That the server can be reached in no other way gives three things it lacks:

- A connection can be ended from here at once. gRPC cannot end a call whose peer does not read.
- A connection has an origin, so that a certificate that comes out of another guest is refused.
- A client that does not offer TLS 1.3, or that stays silent, costs a socket for some seconds.
"""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from daemonkit import logs
from daemonkit.admission.connection_slots import ConnectionSlots
from daemonkit.admission.handshake_slots import HandshakeSlots
from daemonkit.tasks import Tasks
from kata_bridge.channels.agent.guest_addresses import Address
from kata_bridge.channels.agent.listeners import AgentListeners, OriginOf
from kata_bridge.channels.agent.peer_origin import ConnectRateLimiter, PeerOrigin
from kata_bridge.channels.agent.receive_budget import ReceiveBudget
from kata_bridge.channels.agent.tls_hello import HelloVerdict, inspect_hello

# From connect to a first message over TLS; 30 guests at once on two busy cores need one second.
ATTACH_S = 15.0

# All at once, against what has not proven who it is. A node has some 100 guests.
MAX_CONNECTIONS = 1_024
# Connections that the server has and that have not said who they are. Each costs it two sockets more
# and some 80 KB, while one that waits for its turn costs a socket; a turn takes some 30 ms.
MAX_HANDSHAKES = 128
# Where another waits, a turn ends when its guest has sent nothing for so long, or after so long in all.
# 30 guests at once on two busy cores need 1 s from end to end, and are fewer than there are turns.
STALLED_S = 1.0
HANDSHAKE_S = 3.0

# Of what one side sent and the other did not read yet.
_BUFFER_BYTES = 1 << 16
_DIAL_S = 5.0
_LAST_WORDS_S = 2.0
# For a refusal to reach the guest, before its connection is ended.
_REFUSAL_S = 1.0

_log = logs.get(__name__)


@dataclass(eq=False, slots=True)
class Connection:
    """One guest's connection. `is_attached` is set by whoever learns who it is; until then it is on time."""

    origin: PeerOrigin
    outer: asyncio.Transport
    inner: asyncio.Transport | None = None
    is_attached: bool = False
    allowance: ReceiveBudget = field(default_factory=ReceiveBudget)
    timer: asyncio.TimerHandle | None = None
    # Begins to pass bytes; while it waits for its turn.
    join: Callable[[], Coroutine[Any, Any, None]] | None = None

    def abort(self) -> None:
        """End it now, whatever is buffered; both ends see a reset."""
        for transport in (self.outer, self.inner):
            if transport is not None:
                transport.abort()


class Relay:
    """Joins each accepted connection with one of its own to the server's unix socket `behind`."""

    def __init__(
        self,
        behind: Path,
        *,
        is_guests: Callable[[Address], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_guests` says of an address whether it is one guest's own."""
        self.behind = behind
        self.doors = AgentListeners(lambda origin_of: _Outer(self, origin_of), is_guests)
        self._clock = clock
        self._tasks = Tasks("relay")
        self._connections: dict[Connection, None] = {}  # the oldest first
        self._by_inner: dict[str, Connection] = {}
        self._counts: Counter[str] = Counter()
        self._rates = ConnectRateLimiter()
        self._unattached: ConnectionSlots[Connection] = ConnectionSlots(MAX_CONNECTIONS)
        self._turns: HandshakeSlots[Connection] = HandshakeSlots(MAX_HANDSHAKES, STALLED_S, HANDSHAKE_S)
        self._next_turn: asyncio.TimerHandle | None = None
        self._is_closed = False

    def forget(self, sandbox: str) -> None:
        """Close the door of a sandbox that is gone, and end what came through it."""
        self.doors.forget(sandbox)
        for connection in tuple(self._connections):
            if connection.origin.sandbox == sandbox:
                connection.abort()

    def connection(self, peer: str) -> Connection | None:
        """The connection that a call of the server came through, by grpc's name of its peer."""
        return self._by_inner.get(peer)

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def origins(self) -> int:
        """How many origins are remembered for their rate."""
        self._rates.forget(self._clock())
        return len(self._rates)

    async def close(self) -> None:
        self._is_closed = True
        await self.doors.close()
        for connection in tuple(self._connections):
            connection.abort()
        if self._next_turn is not None:
            self._next_turn.cancel()
        await self._tasks.close(timeout_s=2)

    def admits(self, origin: PeerOrigin) -> str:
        """Empty, or why a connection of this origin is not taken now."""
        if not self.doors.leads(origin):
            return "its door is closed"
        if not self._rates.admits(origin, self._clock()):
            return "connects too often"
        if self._counts[origin.name] >= origin.limits[0]:
            return "too many connections of one origin"
        is_full = len(self._connections) >= MAX_CONNECTIONS and not self._make_room()
        return "too many connections" if is_full else ""

    def _make_room(self) -> bool:
        """End one that has not said who it is: the oldest of the origin that has most of them. So it
        is not in the power of a few addresses to keep all other guests out."""
        evicted = self._unattached.evict()
        if evicted is None:
            return False
        self._end(evicted)
        return True

    def _end(self, connection: Connection) -> None:
        connection.abort()
        self.closed(connection)

    def opened(self, transport: asyncio.Transport, origin: PeerOrigin) -> Connection | None:
        refusal = self.admits(origin)
        if refusal:
            _log.debug("connection refused", transport=origin.transport, origin=origin.name, reason=refusal)
            transport.abort()
            return None
        connection = Connection(origin, transport)
        self._connections[connection] = None
        self._unattached.add(connection, origin.name)
        self._counts[origin.name] += 1
        connection.timer = asyncio.get_running_loop().call_later(ATTACH_S, self._late, connection)
        return connection

    def _late(self, connection: Connection) -> None:
        if not connection.is_attached:
            origin = connection.origin
            _log.debug("connection ended: no stream in time", transport=origin.transport, origin=origin.name)
            connection.abort()

    def attached(self, connection: Connection) -> None:
        """It is known who it is: it is on time no longer, and another has its turn."""
        connection.is_attached = True
        self._unattached.discard(connection)
        self._turns.over(connection, self._clock())
        self._advance()

    def progressed(self, connection: Connection) -> None:
        """Its guest has sent something."""
        if not connection.is_attached:
            self._turns.progressed(connection, self._clock())

    def dismiss(self, connection: Connection) -> None:
        """It was refused. What the server has said reaches it, and then it is ended."""
        if connection in self._connections and not connection.is_attached:
            asyncio.get_running_loop().call_later(_REFUSAL_S, self._dismissed, connection)

    def _dismissed(self, connection: Connection) -> None:
        if not connection.is_attached:
            connection.abort()

    def join(self, outer: "_Outer", connection: Connection, first: bytes) -> None:
        """Begin to pass bytes when its turn has come, `first` before all others."""
        connection.join = lambda: self._dial(outer, connection, first)
        self._turns.wait(connection, connection.origin.name)
        self._advance()

    def _advance(self) -> None:
        """Give turns to those that wait, and look again when the next may be taken from somebody."""
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        while not self._is_closed:
            step = self._turns.next(self._clock())
            if step.ended is not None:
                _log.debug("connection ended: others wait", origin=step.ended.origin.name)
                step.ended.abort()
                self._forget(step.ended)
            elif step.begun is not None:
                self._begin(step.begun)
            else:
                if step.again_s is not None:
                    loop = asyncio.get_running_loop()
                    self._next_turn = loop.call_later(step.again_s, self._advance)
                return

    def _begin(self, connection: Connection) -> None:
        join, connection.join = connection.join, None
        if join is not None:
            self._tasks.spawn(join(), "dial", when_over=lambda: self._dialled(connection))

    def _dialled(self, connection: Connection) -> None:
        """Also where the dialling was ended before it began."""
        if connection.inner is None:
            connection.abort()

    async def _dial(self, outer: "_Outer", connection: Connection, first: bytes) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_DIAL_S):
                bound = await _connected(self.behind)
                inner, _ = await loop.create_unix_connection(lambda: _Inner(connection), sock=bound)
        except (OSError, TimeoutError) as error:
            _log.error("the server for guests does not answer", error=error)
            return
        connection.inner = inner
        if connection.outer.is_closing():
            inner.abort()
            return
        self._by_inner[_peer(inner)] = connection
        inner.write(first)
        outer.joined(inner)

    def exceeded(self, connection: Connection) -> None:
        """It sent more than its allowance: end it."""
        origin, log = connection.origin, _log.warning if connection.is_attached else _log.debug
        log("connection ended: bytes without a message", transport=origin.transport, origin=origin.name)
        connection.abort()

    def closed(self, connection: Connection) -> None:
        self._forget(connection)
        self._advance()

    def _forget(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._unattached.discard(connection)
        self._turns.over(connection, self._clock())
        connection.join = None
        name = connection.origin.name
        self._counts[name] -= 1
        if not self._counts[name]:
            del self._counts[name]
        if connection.timer is not None:
            connection.timer.cancel()
        if connection.inner is not None:
            self._by_inner.pop(_peer(connection.inner), None)


async def _connected(behind: Path) -> socket.socket:
    """A connection to the server, with a name of its own that the kernel chooses. Raises `OSError`."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        made.bind(b"")  # unix(7), autobind: five hexadecimal digits in the abstract namespace
        await asyncio.get_running_loop().sock_connect(made, str(behind))
    except BaseException:
        made.close()
        raise
    return made


def _peer(inner: asyncio.Transport) -> str:
    """How grpc's server names the other end of a connection of ours."""
    name: bytes = inner.get_extra_info("sockname")
    return f"unix-abstract:{name[1:].decode('ascii')}"


def _buffered(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """A connection's transport, with our bound of what it buffers."""
    stream = cast("asyncio.Transport", transport)  # as all of sockets of streams are
    stream.set_write_buffer_limits(high=_BUFFER_BYTES)
    return stream


class _Side(asyncio.Protocol):
    """One end of a pair. What one side sends waits for the other to read it."""

    def __init__(self) -> None:
        self.other: asyncio.Transport | None = None

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.resume_reading()


class _Outer(_Side):
    """The guest's end. Reads the beginning of its handshake before anything is dialled for it."""

    def __init__(self, relay: Relay, origin_of: OriginOf) -> None:
        super().__init__()
        self._relay = relay
        self._origin_of = origin_of
        self._connection: Connection | None = None
        self._transport: asyncio.Transport | None = None
        self._first = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = self._transport = _buffered(transport)
        self._connection = self._relay.opened(stream, self._origin_of(stream))

    def data_received(self, data: bytes) -> None:
        if self._connection is not None and not self._connection.allowance.spend(len(data)):
            self._relay.exceeded(self._connection)
            return
        if self.other is not None:
            self.other.write(data)
            if self._connection is not None:
                self._relay.progressed(self._connection)
            return
        if self._connection is None or self._transport is None:
            return
        self._first += data
        verdict = inspect_hello(self._first)
        if verdict is HelloVerdict.WRONG:
            origin = self._connection.origin
            _log.debug(
                "connection refused", transport=origin.transport, origin=origin.name, reason=verdict.value
            )
            self._transport.abort()
        elif verdict is HelloVerdict.TLS13:
            self._transport.pause_reading()
            self._relay.join(self, self._connection, self._first)
            self._first = b""

    def joined(self, inner: asyncio.Transport) -> None:
        """`inner` leads to the server: go on reading."""
        self.other = inner
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._relay.closed(self._connection)


class _Inner(_Side):
    """The server's end."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.other = connection.outer
        self._allowance = connection.allowance

    def data_received(self, data: bytes) -> None:
        self._allowance.answered(data)
        super().data_received(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        _buffered(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        outer = self.other
        if outer is None or outer.is_closing():
            return
        # The last words of the server go out first, to a guest that reads them.
        outer.close()
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, outer.abort)
