# SPDX-License-Identifier: Apache-2.0
"""Bytes between guests and the one gRPC server of this node, whatever the guests came through.

Everything that listens for guests lives here: TCP, a unix socket, hybrid vsock (the VMM connects to
a socket of that very sandbox) and AF_VSOCK (grpcio cannot listen on it). TLS is end to end; what
passes is ciphertext. That the server can be reached in no other way gives three things it lacks:

- A connection can be ended from here at once. gRPC cannot end a call whose peer does not read.
- A connection has an origin, so that a certificate that comes out of another guest is refused.
- A client that does not offer TLS 1.3, or that stays silent, costs a socket for some seconds.
"""

import asyncio
import functools
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from daemonkit import logs
from daemonkit.tasks import Tasks
from kata_bridge.channels.client_hello import Hello, judge

# From connect to a first message over TLS; 30 guests at once on two busy cores need one second.
ATTACH_S = 15.0

# A guest needs one connection, and a second for the moment in which it replaces the first; an agent
# that fails and comes back does so some 10 times in its first 10 s.
MAX_PER_GUEST, MAX_CONNECTS_PER_GUEST = 8, 40
# Behind an address there may be many guests.
MAX_PER_ADDRESS, MAX_CONNECTS_PER_ADDRESS = 256, 1_000
CONNECTS_S = 10.0
# All at once, against what has not proven who it is. A node has some 100 guests.
MAX_CONNECTIONS = 1_024

# Of what one side sent and the other did not read yet.
_BUFFER_BYTES = 1 << 16
_DIAL_S = 5.0
_LAST_WORDS_S = 2.0

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a connection came in. `name` is for people, and what limits are counted by.

    `sandbox`: it is that guest's own door, and no other may come through it. `cid` is the VM's
    number as the kernel vouches for it, for AF_VSOCK.
    """

    transport: str
    name: str
    sandbox: str | None = None
    cid: int | None = None


@dataclass(eq=False, slots=True)
class Connection:
    """One guest's connection. `is_attached` is set by whoever learns who it is; until then it is on time."""

    origin: Origin
    outer: asyncio.Transport
    inner: asyncio.Transport | None = None
    is_attached: bool = False
    timer: asyncio.TimerHandle | None = None

    def abort(self) -> None:
        """End it now, whatever is buffered; both ends see a reset."""
        for transport in (self.outer, self.inner):
            if transport is not None:
                transport.abort()


class Relay:
    """Joins each accepted connection with one of its own to `127.0.0.1:port` of the server."""

    def __init__(self, port: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.port = port
        self._clock = clock
        self._tasks = Tasks("relay")
        self._listeners: dict[str, tuple[asyncio.Server, Path | None]] = {}
        self._connections: dict[Connection, None] = {}  # the oldest first
        self._by_inner: dict[str, Connection] = {}
        self._counts: dict[str, int] = {}
        self._connects: dict[str, deque[float]] = {}

    async def listen_tcp(self, address: str, port: int) -> int:
        """Listen on an address; return the port, for `port` 0 the one that was found. Raises `OSError`."""
        server = await asyncio.get_running_loop().create_server(
            lambda: _Outer(self, _tcp_origin), address, port
        )
        self._listen(f"tcp {address}:{port}", server, None)
        return int(server.sockets[0].getsockname()[1])

    async def listen_unix(self, path: Path, *, sandbox: str | None = None) -> None:
        """Listen on a unix socket, mode 0600: with `sandbox` that guest's alone, without it anyone's.

        The VMM of a hybrid vsock connects to `<uds path>_<port>`. A socket that is left of an earlier
        run is replaced. Raises `OSError`.
        """
        _remove(path)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            bound.bind(str(path))
            os.chmod(path, 0o600)  # noqa: PTH101 - and not pathlib's, which ruff takes for a slow one
            server = await asyncio.get_running_loop().create_unix_server(
                lambda: _Outer(self, functools.partial(_unix_origin, sandbox)), sock=bound
            )
        except BaseException:
            bound.close()
            raise
        self._listen(f"unix {path}" if sandbox is None else f"sandbox {sandbox}", server, path)

    async def listen_vsock(self, port: int) -> None:
        """Listen on AF_VSOCK for all VMs. Raises `OSError`, also where the kernel has none."""
        bound = socket.socket(
            socket.AF_VSOCK, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        )
        try:
            bound.bind((socket.VMADDR_CID_ANY, port))
            server = await asyncio.get_running_loop().create_server(
                lambda: _Outer(self, _vsock_origin), sock=bound
            )
        except BaseException:
            bound.close()
            raise
        self._listen(f"vsock {port}", server, None)

    def _listen(self, name: str, server: asyncio.Server, path: Path | None) -> None:
        """Keep a listener, in the place of one of the same name: a guest has one door."""
        old, self._listeners[name] = self._listeners.get(name), (server, path)
        if old is not None:
            _close(old[0], old[1] if old[1] != path else None)

    def forget(self, sandbox: str) -> None:
        """Close the door of a sandbox that is gone, and end what came through it."""
        listener = self._listeners.pop(f"sandbox {sandbox}", None)
        if listener is not None:
            _close(*listener)
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
        return len(self._connects)

    async def close(self) -> None:
        for listener in self._listeners.values():
            _close(*listener)
        self._listeners.clear()
        for connection in tuple(self._connections):
            connection.abort()
        await self._tasks.close(timeout_s=2)

    def admits(self, origin: Origin) -> str:
        """Empty, or why a connection of this origin is not taken now."""
        now = self._clock()
        recent = self._connects.setdefault(origin.name, deque())
        while recent and recent[0] < now - CONNECTS_S:
            recent.popleft()
        most, most_connects = _limits(origin)
        if len(recent) >= most_connects:
            return "connects too often"
        recent.append(now)
        if len(self._connects) > MAX_CONNECTIONS:
            self._connects = {
                name: times for name, times in self._connects.items() if times[-1] > now - CONNECTS_S
            }
        if self._counts.get(origin.name, 0) >= most:
            return "too many connections of one origin"
        is_full = len(self._connections) >= MAX_CONNECTIONS and not self._make_room()
        return "too many connections" if is_full else ""

    def _make_room(self) -> bool:
        """End one that has not said who it is: the oldest of the origin that has most of them. So it
        is not in the power of a few addresses to keep all other guests out."""
        waiting: dict[str, list[Connection]] = {}
        for connection in self._connections:
            if not connection.is_attached:
                waiting.setdefault(connection.origin.name, []).append(connection)
        if not waiting:
            return False
        ended = max(waiting.values(), key=len)[0]
        ended.abort()
        self.closed(ended)
        return True

    def opened(self, transport: asyncio.Transport, origin: Origin) -> Connection | None:
        refusal = self.admits(origin)
        if refusal:
            _log.debug("connection refused", transport=origin.transport, origin=origin.name, reason=refusal)
            transport.abort()
            return None
        connection = Connection(origin, transport)
        self._connections[connection] = None
        self._counts[origin.name] = self._counts.get(origin.name, 0) + 1
        connection.timer = asyncio.get_running_loop().call_later(ATTACH_S, self._late, connection)
        return connection

    def _late(self, connection: Connection) -> None:
        if not connection.is_attached:
            origin = connection.origin
            _log.debug("connection ended: no stream in time", transport=origin.transport, origin=origin.name)
            connection.abort()

    def join(self, outer: "_Outer", connection: Connection, first: bytes) -> None:
        """Begin to pass bytes, `first` before all others."""
        self._tasks.spawn(self._dial(outer, connection, first), "dial")

    async def _dial(self, outer: "_Outer", connection: Connection, first: bytes) -> None:
        loop = asyncio.get_running_loop()
        try:
            inner, _ = await asyncio.wait_for(
                loop.create_connection(lambda: _Inner(connection.outer), "127.0.0.1", self.port), _DIAL_S
            )
        except (OSError, TimeoutError) as error:
            _log.error("the server for guests does not answer", error=error)
            connection.abort()
            return
        connection.inner = inner
        if connection.outer.is_closing():
            inner.abort()
            return
        self._by_inner[_peer(inner)] = connection
        inner.write(first)
        outer.joined(inner)

    def closed(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        del self._connections[connection]
        name = connection.origin.name
        self._counts[name] -= 1
        if not self._counts[name]:
            del self._counts[name]
        if connection.timer is not None:
            connection.timer.cancel()
        if connection.inner is not None:
            self._by_inner.pop(_peer(connection.inner), None)


def _limits(origin: Origin) -> tuple[int, int]:
    """How many connections of this origin at once, and how many within `CONNECTS_S`."""
    if origin.transport == "tcp":
        return MAX_PER_ADDRESS, MAX_CONNECTS_PER_ADDRESS
    return MAX_PER_GUEST, MAX_CONNECTS_PER_GUEST


def _tcp_origin(transport: asyncio.Transport) -> Origin:
    return Origin("tcp", str(transport.get_extra_info("peername")[0]))


def _unix_origin(sandbox: str | None, transport: asyncio.Transport) -> Origin:
    if sandbox is not None:
        return Origin("hybrid-vsock", sandbox, sandbox)
    credentials = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return Origin("unix", f"pid {int.from_bytes(credentials[:4], sys.byteorder)}")


def _vsock_origin(transport: asyncio.Transport) -> Origin:
    cid = int(transport.get_extra_info("peername")[0])
    return Origin("vsock", f"cid {cid}", cid=cid)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _close(server: asyncio.Server, path: Path | None) -> None:
    server.close()
    if path is not None:
        _remove(path)


def _peer(inner: asyncio.Transport) -> str:
    """How grpc's server names the other end of a connection of ours."""
    host, port = inner.get_extra_info("sockname")[:2]
    return f"ipv4:{host}:{port}"


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

    def __init__(self, relay: Relay, origin_of: Callable[[asyncio.Transport], Origin]) -> None:
        super().__init__()
        self._relay = relay
        self._origin_of = origin_of
        self._connection: Connection | None = None
        self._transport: asyncio.Transport | None = None
        self._first = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a stream's
        transport.set_write_buffer_limits(high=_BUFFER_BYTES)
        self._transport = transport
        origin = self._origin_of(transport)
        self._connection = self._relay.opened(transport, origin)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.write(data)
            return
        if self._connection is None or self._transport is None:
            return
        self._first += data
        verdict = judge(self._first)
        if verdict is Hello.WRONG:
            origin = self._connection.origin
            _log.debug(
                "connection refused", transport=origin.transport, origin=origin.name, reason=verdict.value
            )
            self._transport.abort()
        elif verdict is Hello.TLS13:
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

    def __init__(self, outer: asyncio.Transport) -> None:
        super().__init__()
        self.other = outer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a stream's
        transport.set_write_buffer_limits(high=_BUFFER_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        outer = self.other
        if outer is None or outer.is_closing():
            return
        # The last words of the server go out first, to a guest that reads them.
        outer.close()
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, outer.abort)
