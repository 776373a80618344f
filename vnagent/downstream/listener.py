# SPDX-License-Identifier: Apache-2.0
"""The listening socket: accepts a few connections in a turn, also when descriptors run out.

It takes every connection. Silent ones cost a socket, and `downstream.handshakes` evicts them by client
address. TCP_DEFER_ACCEPT would leave them in the kernel, whose queue knows no addresses and drops the next
honest one.
"""

import asyncio
import socket
from collections.abc import Callable

from daemonkit import logs
from daemonkit.keepalive import keep_alive
from vnagent.transport.event_loop import watcher_of

BACKLOG = 1024
# So many accepts in one event, of 60 us each; the rest gets its turn after other connections had theirs. With
# 8, clients that connected together delayed a neighbour's request by 0.5 ms.
ACCEPTS_AT_ONCE = 2
# Where more tenants are busy, an iteration takes longer: one accept for each so many of them.
READY_BY_ACCEPT = 8
_RETRY_S = 0.5

_log = logs.get(__name__)


def accepts_in_turn(ready_count: int) -> int:
    """How many connections to accept in an iteration in which so many descriptors are ready: each tenant's
    connections have one."""
    return max(ACCEPTS_AT_ONCE, ready_count // READY_BY_ACCEPT)


class Listener:
    """Owns the socket that tenants' apiservers dial."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: str,
        port: int,
        accept: Callable[[socket.socket, str], None],
        make_room: Callable[[], bool],
        kept: socket.socket | None = None,
    ) -> None:
        """Bind and listen, or go on with the socket `kept` from an earlier process.

        `accept` gets each connection with its peer's address; `make_room` closes one that has proven nothing,
        if there is one. Raises OSError.
        """
        self._loop = loop
        self._watcher = watcher_of(loop)
        self._accept = accept
        self._make_room = make_room
        if kept is not None:
            kept.setblocking(False)
            # The earlier process may have been an earlier version.
            keep_alive(kept)
            self.sock = kept
            return
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Accepted sockets have these from here (Linux): one call for all, not some for each.
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(self.sock)
            self.sock.bind((address, port))
            self.sock.listen(BACKLOG)
        except OSError:
            self.sock.close()
            raise

    @property
    def bound(self) -> tuple[str, int]:
        """The address and port it listens on."""
        host, port = self.sock.getsockname()[:2]
        return host, port

    def start(self) -> None:
        self._watcher.watch(self.sock.fileno(), self._on_readable)

    def stop(self) -> None:
        if self.sock.fileno() >= 0:
            self._watcher.unwatch(self.sock.fileno())
            self.sock.close()

    def _on_readable(self) -> None:
        for _ in range(accepts_in_turn(self._watcher.ready_count)):
            try:
                sock, peer = self.sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if self._make_room():
                    continue
                # Out of descriptors or memory: the connection stays in the backlog meanwhile.
                _log.error("connections cannot be accepted; they wait in the backlog", reason=error)
                self._pause(_RETRY_S)
                return
            sock.setblocking(False)
            self._accept(sock, peer[0])

    def _pause(self, seconds: float) -> None:
        """Leave new connections in the backlog for so long."""
        self._watcher.unwatch(self.sock.fileno())
        self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        if self.sock.fileno() < 0:
            return
        try:
            self.start()
        except OSError:  # the kernel still has no room to watch it
            self._loop.call_later(_RETRY_S, self._resume)
