# SPDX-License-Identifier: Apache-2.0
"""Authenticates the peers of kata-bridge's socket: the kernel names the process of each connection.

grpc.aio does not show a server which process is at the other end of a unix socket. So this proxy accepts the
connection, asks the kernel (unix(7): SO_PEERCRED; SO_PEERGROUPS since Linux 4.13), and relays the bytes of
allowed peers to the gRPC server. That server's own socket is in a directory that only root can enter.
docs/decisions/0011 has the alternatives.
"""

import asyncio
import os
import socket
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from daemonkit import logs
from daemonkit.listeners import stop_accepting
from daemonkit.tasks import Tasks

MODE = 0o660
MAX_CONNECTIONS = 64
# Buffered for either end; beyond it the other end is not read.
BUFFER_BYTES = 256 << 10

_UCRED = struct.Struct("=iii")  # struct ucred: pid, uid, gid
_SO_PEERGROUPS = 59  # linux/include/uapi/asm-generic/socket.h; not in Python's socket
_GROUPS_BYTES = 1024  # what Python's getsockopt allows: 256 groups
_DIAL_S = 5.0
# Iterations of the event loop in which aborted transports end.
_ITERATIONS = 10

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class SocketPeer:
    """The process at the other end, as it was when it connected."""

    pid: int
    uid: int
    groups: frozenset[int]


@dataclass(frozen=True, slots=True)
class PeerPolicy:
    """Who may connect: these users, and members of this group."""

    uids: frozenset[int]
    gid: int | None

    def is_allowed(self, peer: SocketPeer) -> bool:
        return peer.uid in self.uids or self.gid in peer.groups


def peer_of(connection: socket.socket) -> SocketPeer:
    """Ask the kernel which process is at the other end. Raises `OSError`."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, gid = _UCRED.unpack(data)
    try:
        groups = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError:
        groups = b""  # an old kernel, or more groups than fit: the primary group has to do
    return SocketPeer(pid, uid, frozenset((gid, *(each for (each,) in struct.iter_unpack("=I", groups)))))


def bind(path: Path, gid: int | None) -> socket.socket:
    """Make the socket, for group `gid`. Raises `OSError`.

    Take the node's lock first: a socket that is in the way is that of a dead kata-bridge, and is removed.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise FileExistsError(17, "exists and is not a socket", str(path))
        path.unlink(missing_ok=True)
        # Made with its mode: a later chmod could change another file that has its name by then.
        mask = os.umask(0o777 & ~(MODE if gid is not None else 0o600))
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        if gid is not None:
            os.chown(path, -1, gid, follow_symlinks=False)
        listener.setblocking(False)
        listener.listen(MAX_CONNECTIONS)
    except BaseException:
        listener.close()
        raise
    return listener


class PeerAuthProxy:
    """Accepts on `listener` and relays the peers that `policy` allows to the unix socket `server`."""

    def __init__(
        self,
        listener: socket.socket,
        server: Path,
        policy: PeerPolicy,
        tasks: Tasks,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        self._policy = policy
        self._listener = listener
        self._server_path = server
        self._tasks = tasks
        self._on_refused = on_refused
        self._accepting: asyncio.Server | None = None
        self._ends: set[_RelayEnd] = set()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        made = loop.create_unix_server(lambda: _RelayEnd(self._ends, self._authenticate), sock=self._listener)
        self._accepting = await made

    async def stop(self) -> None:
        """Accept no more connections; those that are open stay."""
        if self._accepting is not None:
            await stop_accepting(self._accepting)

    async def close(self) -> None:
        for end in tuple(self._ends):
            end.abort()
        # A transport calls connection_lost in a later iteration of the loop.
        for _ in range(_ITERATIONS):
            if not self._ends:
                break
            await asyncio.sleep(0)

    def _authenticate(self, end: "_RelayEnd", connection: socket.socket) -> None:
        """Connect the peer to the server, or close the connection."""
        try:
            peer = peer_of(connection)
        except OSError as error:
            _log.warning("peer refused, the kernel does not report its credentials", error=error)
            end.abort()
            return
        reason = ""
        if not self._policy.is_allowed(peer):
            self._on_refused()
            reason = "neither its user nor any of its groups is in listen.users and listen.group"
        elif len(self._ends) > 2 * MAX_CONNECTIONS:
            reason = f"more than {MAX_CONNECTIONS} connections"
        if reason:
            _log.warning("peer refused", pid=peer.pid, uid=peer.uid, reason=reason)
            end.abort()
            return

        def over() -> None:
            if end.other is None:
                end.abort()

        self._tasks.spawn(self._join(end), "peer auth", when_over=over)

    async def _join(self, outer: "_RelayEnd") -> None:
        inner = _RelayEnd(self._ends)
        try:
            async with asyncio.timeout(_DIAL_S):
                loop = asyncio.get_running_loop()
                await loop.create_unix_connection(lambda: inner, str(self._server_path))
        except (OSError, TimeoutError) as error:
            _log.error("the gRPC server behind the socket does not answer", error=error)
            return
        outer.join(inner)


class _RelayEnd(asyncio.Protocol):
    """One end of a relayed connection.

    Before it is joined with the other end it keeps the bytes of one read, and reads no more. A pause in
    `connection_made` would not do: Python 3.11.2 (Debian 12) reads all the same.
    """

    def __init__(
        self, ends: "set[_RelayEnd]", authenticate: "Callable[[_RelayEnd, socket.socket], None] | None" = None
    ) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _RelayEnd | None = None
        self._early = b""
        self._has_ended = False
        self._ends = ends
        self._authenticate = authenticate

    def join(self, other: "_RelayEnd") -> None:
        """Relay between the two from now on."""
        if self.transport is None or other.transport is None:
            self.abort()
            other.abort()
            return
        self.other, other.other = other, self
        for end, transport in ((self, self.transport), (other, other.transport)):
            end.begin(transport)

    def begin(self, transport: asyncio.Transport) -> None:
        """Pass on the bytes that were kept, and read on."""
        early, self._early = self._early, b""
        if early:
            self.data_received(early)
        if self._has_ended:
            self.eof_received()
        transport.resume_reading()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = self.transport = cast("asyncio.Transport", transport)  # as all of sockets of streams are
        stream.set_write_buffer_limits(high=BUFFER_BYTES)
        self._ends.add(self)
        if self._authenticate is not None:
            self._authenticate(self, stream.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early += data
            if self.transport is not None:
                self.transport.pause_reading()
        elif self.other.transport is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        if self.other is None:
            self._has_ended = True
        elif self.other.transport is not None:
            self.other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self._ends.discard(self)
        self.transport = None
        if self.other is not None and self.other.transport is not None:
            # close() writes what is buffered first.
            self.other.transport.close()
