# SPDX-License-Identifier: Apache-2.0
"""Relays bytes between agents and the node's one gRPC server, over any transport.

grpcio cannot listen on AF_VSOCK, so `listeners` do. TLS is end to end: the relay passes ciphertext. The
server can be reached through the relay alone, which adds three things that grpcio lacks:

- A connection can be ended at once. gRPC cannot end a call whose peer does not read.
- A connection has an origin, so that a certificate that comes out of another guest is refused.
- A client that does not offer TLS 1.3, or stays silent, costs a socket for some seconds.
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
from kata_bridge.channels.agent.tls_hello import HelloReader, HelloVerdict

# From connect to a first message over TLS; 30 guests at once on two busy cores need one second.
ATTACH_S = 15.0

# All at once, attached or not. A node has some 100 guests.
MAX_CONNECTIONS = 1_024
# Connections that the server has and that are not attached. Each costs it two sockets more and some 80 KB,
# while one that waits for its slot costs a socket; a slot is held for some 30 ms.
MAX_HANDSHAKES = 128
# Where another connection waits, a slot ends when its guest was silent for so long, or after so long in all.
# 30 guests at once on two busy cores need 1 s from end to end, and are fewer than there are slots.
STALLED_S = 1.0
HANDSHAKE_S = 3.0

# What one side sent and the other has not read yet.
_BUFFER_BYTES = 1 << 16
_DIAL_S = 5.0
_LAST_WORDS_S = 2.0
# For a refusal to reach the agent, before its connection is ended.
_REFUSAL_S = 1.0

_log = logs.get(__name__)


@dataclass(eq=False, slots=True)
class AgentConnection:
    """One agent's connection. The server calls `Relay.attached` once it knows whose it is."""

    origin: PeerOrigin
    guest_transport: asyncio.Transport
    server_transport: asyncio.Transport | None = None
    is_attached: bool = False
    budget: ReceiveBudget = field(default_factory=ReceiveBudget)
    timer: asyncio.TimerHandle | None = None
    # Dials the server; None unless the connection waits for its handshake slot.
    dial: Callable[[], Coroutine[Any, Any, None]] | None = None

    def abort(self) -> None:
        """End it now and drop what is buffered; both ends see a reset."""
        for transport in (self.guest_transport, self.server_transport):
            if transport is not None:
                transport.abort()


class Relay:
    """Pairs each accepted connection with one of its own to the server's unix socket."""

    def __init__(
        self,
        server_path: Path,
        *,
        has_single_owner: Callable[[Address], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`has_single_owner` is whether an address is that of exactly one guest."""
        self.server_path = server_path
        self.listeners = AgentListeners(lambda origin_of: _GuestSide(self, origin_of), has_single_owner)
        self._clock = clock
        self._tasks = Tasks("relay")
        self._connections: dict[AgentConnection, None] = {}  # the oldest first
        self._by_server_peer: dict[str, AgentConnection] = {}
        self._per_origin: Counter[str] = Counter()
        self._connect_rates = ConnectRateLimiter()
        self._unattached: ConnectionSlots[AgentConnection] = ConnectionSlots(MAX_CONNECTIONS)
        self._handshakes: HandshakeSlots[AgentConnection] = HandshakeSlots(
            MAX_HANDSHAKES, STALLED_S, HANDSHAKE_S
        )
        self._next_handshake: asyncio.TimerHandle | None = None
        self._is_closed = False

    def forget(self, sandbox: str) -> None:
        """Close the socket of a sandbox that was stopped, and end the connections that came by it."""
        self.listeners.forget(sandbox)
        for connection in tuple(self._connections):
            if connection.origin.sandbox == sandbox:
                connection.abort()

    def connection(self, peer: str) -> AgentConnection | None:
        """The connection of a call at the server, by grpc's name of its peer."""
        return self._by_server_peer.get(peer)

    def __len__(self) -> int:
        return len(self._connections)

    def count_origins(self) -> int:
        """How many origins are remembered for their rate."""
        self._connect_rates.evict_idle(self._clock())
        return len(self._connect_rates)

    async def close(self) -> None:
        self._is_closed = True
        await self.listeners.close()
        for connection in tuple(self._connections):
            connection.abort()
        if self._next_handshake is not None:
            self._next_handshake.cancel()
        await self._tasks.close(timeout_s=2)

    def try_admit(self, origin: PeerOrigin) -> str:
        """Count a new connection of this origin and make room for it. Empty, or why it is refused."""
        if not self.listeners.is_open_for(origin):
            return "its socket is closed"
        if not self._connect_rates.try_acquire(origin, self._clock()):
            return "the origin connects too often"
        if self._per_origin[origin.name] >= origin.limits[0]:
            return "the origin has too many connections"
        is_full = len(self._connections) >= MAX_CONNECTIONS and not self._make_room()
        return "the node has too many connections" if is_full else ""

    def _make_room(self) -> bool:
        """End the oldest unattached connection of the origin that has most of them.

        So a few addresses cannot keep all other guests out.
        """
        evicted = self._unattached.evict()
        if evicted is None:
            return False
        evicted.abort()
        self.closed(evicted)
        return True

    def opened(self, transport: asyncio.Transport, origin: PeerOrigin) -> AgentConnection | None:
        refusal = self.try_admit(origin)
        if refusal:
            _log.debug("connection refused", transport=origin.transport, origin=origin.name, reason=refusal)
            transport.abort()
            return None
        connection = AgentConnection(origin, transport)
        self._connections[connection] = None
        self._unattached.add(connection, origin.name)
        self._per_origin[origin.name] += 1
        connection.timer = asyncio.get_running_loop().call_later(ATTACH_S, self._abort_late, connection)
        return connection

    def _abort_late(self, connection: AgentConnection) -> None:
        if not connection.is_attached:
            origin = connection.origin
            _log.debug(
                "connection ended: not attached in time", transport=origin.transport, origin=origin.name
            )
            connection.abort()

    def attached(self, connection: AgentConnection) -> None:
        """The server knows whose it is: its deadline ends, and another gets its handshake slot."""
        connection.is_attached = True
        self._unattached.discard(connection)
        self._handshakes.over(connection, self._clock())
        self._assign_slots()

    def progressed(self, connection: AgentConnection) -> None:
        """The guest has sent bytes."""
        if not connection.is_attached:
            self._handshakes.progressed(connection, self._clock())

    def close_refused(self, connection: AgentConnection) -> None:
        """The server refused the guest: end the connection once the refusal has reached the guest."""
        if connection in self._connections and not connection.is_attached:
            asyncio.get_running_loop().call_later(_REFUSAL_S, self._abort_refused, connection)

    def _abort_refused(self, connection: AgentConnection) -> None:
        if not connection.is_attached:
            connection.abort()

    def enqueue(self, guest_side: "_GuestSide", connection: AgentConnection, first: bytes) -> None:
        """Wait for a handshake slot, then dial the server and pass `first` before all other bytes."""
        connection.dial = lambda: self._dial(guest_side, connection, first)
        self._handshakes.wait(connection, connection.origin.name)
        self._assign_slots()

    def _assign_slots(self) -> None:
        """Give handshake slots to waiting connections; come back when the next slot may be taken away."""
        if self._next_handshake is not None:
            self._next_handshake.cancel()
            self._next_handshake = None
        while not self._is_closed:
            step = self._handshakes.next(self._clock())
            if step.ended is not None:
                _log.debug("connection ended: others wait for its slot", origin=step.ended.origin.name)
                step.ended.abort()
                self._forget(step.ended)
            elif step.begun is not None:
                self._start_dial(step.begun)
            else:
                if step.again_s is not None:
                    loop = asyncio.get_running_loop()
                    self._next_handshake = loop.call_later(step.again_s, self._assign_slots)
                return

    def _start_dial(self, connection: AgentConnection) -> None:
        dial, connection.dial = connection.dial, None
        if dial is not None:
            self._tasks.spawn(dial(), "dial", when_over=lambda: self._dialled(connection))

    def _dialled(self, connection: AgentConnection) -> None:
        """Also called where the dialling was cancelled before its first step."""
        if connection.server_transport is None:
            connection.abort()

    async def _dial(self, guest_side: "_GuestSide", connection: AgentConnection, first: bytes) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_DIAL_S):
                dialled = await _connect(self.server_path)
                transport, _ = await loop.create_unix_connection(
                    lambda: _ServerSide(connection), sock=dialled
                )
        except (OSError, TimeoutError) as error:
            _log.error("gRPC server for agents does not answer", error=error)
            return
        connection.server_transport = transport
        if connection.guest_transport.is_closing():
            transport.abort()
            return
        self._by_server_peer[_grpc_peer(transport)] = connection
        transport.write(first)
        guest_side.connect(transport)

    def exceeded(self, connection: AgentConnection) -> None:
        """The guest sent more than its budget: end the connection."""
        origin, log = connection.origin, _log.warning if connection.is_attached else _log.debug
        log(
            "connection ended: receive budget exceeded without a message",
            transport=origin.transport,
            origin=origin.name,
        )
        connection.abort()

    def closed(self, connection: AgentConnection) -> None:
        self._forget(connection)
        self._assign_slots()

    def _forget(self, connection: AgentConnection) -> None:
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._unattached.discard(connection)
        self._handshakes.over(connection, self._clock())
        connection.dial = None
        name = connection.origin.name
        self._per_origin[name] -= 1
        if not self._per_origin[name]:
            del self._per_origin[name]
        if connection.timer is not None:
            connection.timer.cancel()
        if connection.server_transport is not None:
            self._by_server_peer.pop(_grpc_peer(connection.server_transport), None)


async def _connect(server_path: Path) -> socket.socket:
    """Connect to the server from a name that the kernel chooses. Raises `OSError`."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        made.bind(b"")  # unix(7), autobind: five hexadecimal digits in the abstract namespace
        await asyncio.get_running_loop().sock_connect(made, str(server_path))
    except BaseException:
        made.close()
        raise
    return made


def _grpc_peer(transport: asyncio.Transport) -> str:
    """How grpc's server names the peer of a connection of ours."""
    name: bytes = transport.get_extra_info("sockname")
    return f"unix-abstract:{name[1:].decode('ascii')}"


def _bounded(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """The transport, with our bound of what it buffers."""
    stream = cast("asyncio.Transport", transport)  # as all of sockets of streams are
    stream.set_write_buffer_limits(high=_BUFFER_BYTES)
    return stream


class _RelaySide(asyncio.Protocol):
    """One side of a pair. What it receives goes to the other, and waits until that is read."""

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


class _GuestSide(_RelaySide):
    """Inspects the hello of the guest's TLS client before the server is dialled."""

    def __init__(self, relay: Relay, origin_of: OriginOf) -> None:
        super().__init__()
        self._relay = relay
        self._origin_of = origin_of
        self._connection: AgentConnection | None = None
        self._transport: asyncio.Transport | None = None
        self._hello = HelloReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = self._transport = _bounded(transport)
        self._connection = self._relay.opened(stream, self._origin_of(stream))

    def data_received(self, data: bytes) -> None:
        if self._connection is not None and not self._connection.budget.try_spend(len(data)):
            self._relay.exceeded(self._connection)
            return
        if self.other is not None:
            self.other.write(data)
            if self._connection is not None:
                self._relay.progressed(self._connection)
            return
        if self._connection is None or self._transport is None:
            return
        verdict = self._hello.feed(data)
        if verdict is HelloVerdict.REJECTED:
            origin = self._connection.origin
            _log.debug(
                "connection refused", transport=origin.transport, origin=origin.name, reason=verdict.value
            )
            self._transport.abort()
        elif verdict is HelloVerdict.TLS13:
            self._transport.pause_reading()
            hello, self._hello = self._hello, HelloReader()
            self._relay.enqueue(self, self._connection, hello.received)

    def connect(self, server_transport: asyncio.Transport) -> None:
        """Pass bytes to the server from now on."""
        self.other = server_transport
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._relay.closed(self._connection)


class _ServerSide(_RelaySide):
    def __init__(self, connection: AgentConnection) -> None:
        super().__init__()
        self.other = connection.guest_transport
        self._budget = connection.budget

    def data_received(self, data: bytes) -> None:
        self._budget.server_sent(data)
        super().data_received(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        _bounded(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        guest_transport = self.other
        if guest_transport is None or guest_transport.is_closing():
            return
        # The server's last bytes go out first, to a guest that reads them.
        guest_transport.close()
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, guest_transport.abort)
