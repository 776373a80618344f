# SPDX-License-Identifier: Apache-2.0
"""The door of the bridge's socket: who may come in is asked of the kernel, at each connection.

grpc.aio does not let a server see whose process is at the other end of a unix socket. So we accept
ourselves, look (unix(7): SO_PEERCRED; SO_PEERGROUPS since Linux 4.13), and relay the bytes of those
who may to the gRPC server, whose own socket is in a directory that only root can enter.
docs/decisions has what else was tried.
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
# What waits in hand of either side; beyond it the other side is not read.
BUFFER_BYTES = 256 << 10

_UCRED = struct.Struct("=iii")  # struct ucred: pid, uid, gid
_SO_PEERGROUPS = 59  # linux/include/uapi/asm-generic/socket.h; not in Python's socket
_GROUPS_BYTES = 1024  # what Python's getsockopt allows: 256 groups
_DIAL_S = 5.0
_TURNS = 10

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Caller:
    """The process at the other end, as it was when it connected."""

    pid: int
    uid: int
    groups: frozenset[int]


@dataclass(frozen=True, slots=True)
class Allowed:
    """Who may come in: root, ourselves, these users, and members of this group."""

    uids: frozenset[int]
    gid: int | None

    def admits(self, caller: Caller) -> bool:
        return caller.uid in self.uids or self.gid in caller.groups


def caller_of(connection: socket.socket) -> Caller:
    """Ask the kernel who is at the other end. Raises `OSError`."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, gid = _UCRED.unpack(data)
    try:
        groups = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError:
        groups = b""  # an old kernel, or more groups than fit: the primary one has to do
    return Caller(pid, uid, frozenset((gid, *(each for (each,) in struct.iter_unpack("=I", groups)))))


def bind(path: Path, gid: int | None) -> socket.socket:
    """Make the socket, for group `gid`. Raises `OSError`.

    Only for the holder of the bridge's lock: what is in the way is a dead bridge's, and is removed.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise FileExistsError(17, "there is something that is no socket", str(path))
        path.unlink(missing_ok=True)
        # Born with its mode: a chmod would be of whatever has the name by then.
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


class Front:
    """Accepts on `listener` and relays those whom `allowed` admits to the unix socket `behind`."""

    def __init__(
        self,
        listener: socket.socket,
        behind: Path,
        allowed: Allowed,
        tasks: Tasks,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        self.allowed = allowed
        self._listener = listener
        self._behind = behind
        self._tasks = tasks
        self._on_refused = on_refused
        self._server: asyncio.Server | None = None
        self._sides: set[_Side] = set()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        made = loop.create_unix_server(lambda: _Side(self._sides, self._admit), sock=self._listener)
        self._server = await made

    async def stop(self) -> None:
        """Accept no more; what is under way goes on."""
        if self._server is not None:
            await stop_accepting(self._server)

    async def close(self) -> None:
        """End what is under way."""
        for side in tuple(self._sides):
            side.abort()
        # A transport's last call comes with a later turn of the loop.
        for _ in range(_TURNS):
            if not self._sides:
                break
            await asyncio.sleep(0)

    def _admit(self, side: "_Side", connection: socket.socket) -> None:
        """Begin the way to the server, or hang up."""
        try:
            caller = caller_of(connection)
        except OSError as error:
            _log.warning("caller refused, the kernel does not tell who it is", error=error)
            side.abort()
            return
        reason = ""
        if not self.allowed.admits(caller):
            self._on_refused()
            reason = "neither its user nor its groups may"
        elif len(self._sides) > 2 * MAX_CONNECTIONS:
            reason = "there are too many"
        if reason:
            _log.warning("caller refused", pid=caller.pid, uid=caller.uid, reason=reason)
            side.abort()
            return

        def over() -> None:
            if side.other is None:
                side.abort()

        self._tasks.spawn(self._join(side), "front", when_over=over)

    async def _join(self, outer: "_Side") -> None:
        inner = _Side(self._sides)
        try:
            async with asyncio.timeout(_DIAL_S):
                loop = asyncio.get_running_loop()
                await loop.create_unix_connection(lambda: inner, str(self._behind))
        except (OSError, TimeoutError) as error:
            _log.error("the server behind the socket does not answer", error=error)
            return
        outer.join(inner)


class _Side(asyncio.Protocol):
    """One end of a relayed connection.

    What comes before it is joined with another is kept, and no more is read: that is one read's
    worth. To pause in `connection_made` would not do, Python 3.11.2 (Debian 12) reads all the same.
    """

    def __init__(
        self, sides: "set[_Side]", admit: "Callable[[_Side, socket.socket], None] | None" = None
    ) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None
        self._early = b""
        self._has_ended = False
        self._sides = sides
        self._admit = admit

    def join(self, other: "_Side") -> None:
        """Begin to relay between the two."""
        if self.transport is None or other.transport is None:
            self.abort()
            other.abort()
            return
        self.other, other.other = other, self
        for side, transport in ((self, self.transport), (other, other.transport)):
            side.begin(transport)

    def begin(self, transport: asyncio.Transport) -> None:
        """Pass on what came early, and read on."""
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
        self._sides.add(self)
        if self._admit is not None:
            self._admit(self, stream.get_extra_info("socket"))

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
        self._sides.discard(self)
        self.transport = None
        if self.other is not None and self.other.transport is not None:
            # What is still to be written is written first.
            self.other.transport.close()
