# SPDX-License-Identifier: Apache-2.0
"""Serves a daemon's status pages over HTTP on a unix socket or on loopback, and fetches them.

`/healthz` (the loop runs), `/readyz` (200 or 503 and the reasons), `/metrics`, `/status` (JSON),
`/log-level`, and the daemon's own pages. Never on another address: an apiserver proxies to any port of a
node's address, without a client certificate (`nodes/https:N:PORT/proxy`), so every tenant could read them.

The server reads one request without a body, answers and closes, within bounds. h11 knows the grammar.
"""

import asyncio
import errno
import ipaddress
import os
import socket
import stat
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from daemonkit import metrics
from daemonkit.files import directories
from daemonkit.listeners import stop_accepting
from daemonkit.status.pages import PageResponse, Pages, Query, Readiness, RenderPage, Reply, too_large
from daemonkit.tasks import Tasks

__all__ = [
    "ListenAddress",
    "Query",
    "Readiness",
    "RenderPage",
    "Reply",
    "StatusError",
    "StatusServer",
    "fetch",
]

ListenAddress = Path | tuple[str, int]

MAX_HEAD_BYTES = 8 << 10
MAX_CONNECTIONS = 16
DEADLINE_S = 5.0
MAX_REPLY_BYTES = 64 << 20
_READS_AFTER_REPLY = 16

# The group of the socket's directory may ask; the daemon's unit names that group.
SOCKET_MODE = 0o660
_MAX_SOCKET_PATH_BYTES = 107  # sockaddr_un.sun_path, 108 with its NUL (unix(7))

_CREDENTIALS = struct.Struct("3i")  # struct ucred, unix(7): pid, uid, gid


class StatusError(Exception):
    """The server cannot listen, or the reply is not a status server's."""


class StatusServer:
    """Serves a daemon's pages on `address`: the path of a unix socket, or (loopback host, port).

    `gather`, `readiness`, `status` and the daemon's `own` pages are asked at each request, on the loop; see
    `Pages`.
    """

    def __init__(
        self,
        address: ListenAddress,
        registry: metrics.Registry,
        *,
        readiness: Callable[[], Readiness],
        status: Callable[[], dict[str, object]],
        own: Mapping[str, RenderPage] | None = None,
        gather: Callable[[], Awaitable[None]] | None = None,
        max_connections: int = MAX_CONNECTIONS,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._address = _checked(address)
        self._pages = Pages(registry, readiness=readiness, status=status, own=own, gather=gather)
        self._max_connections = max_connections
        self._deadline_s = deadline_s
        self._server: asyncio.Server | None = None
        self._handlers = Tasks("status")
        self._inode: tuple[int, int] | None = None

    @property
    def bound(self) -> ListenAddress:
        """The address that it listens on, with the chosen port. Raises RuntimeError before `start`."""
        if self._server is None:
            raise RuntimeError("the status server is not started")
        if isinstance(self._address, Path):
            return self._address
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def start(self) -> None:
        """Listen. Replaces the socket file of a dead daemon, never of a living one.

        Raises `StatusError`, and `UnusableDirectoryError` for the directory of its socket.
        """
        try:
            listener = (
                self._listen_unix(self._address)
                if isinstance(self._address, Path)
                else _listen_tcp(self._address)
            )
        except directories.UnusableDirectoryError:
            raise
        except OSError as error:
            raise StatusError(f"{_name(self._address)}: {error.strerror or error}") from None
        self._server = await asyncio.start_server(
            self._accept, sock=listener, limit=MAX_HEAD_BYTES, start_serving=True
        )

    async def stop(self) -> None:
        """Stop listening, end open connections, and remove the socket file if it is ours."""
        if self._server is None:
            return
        await stop_accepting(self._server)
        await self._handlers.close(self._deadline_s)
        self._server = None
        if isinstance(self._address, Path) and _inode(self._address) == self._inode:
            self._address.unlink(missing_ok=True)

    def _listen_unix(self, path: Path) -> socket.socket:
        directories.prepare(path.parent)
        _remove_stale(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # The file is born with the umask's mode; a chmod after it leaves a moment in which
            # others could connect. Nothing else runs between these two lines: no await here.
            umask = os.umask(0o777 & ~SOCKET_MODE)
            try:
                listener.bind(str(path))
            finally:
                os.umask(umask)
            self._inode = _inode(path)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        return listener

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._handlers) >= self._max_connections:
            writer.transport.abort()
        else:
            serving = self._serve(reader, writer)
            self._handlers.spawn(serving, "connection", when_over=writer.transport.abort)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._answer(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # the client is gone or too slow

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        response: PageResponse
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            response = await self._pages.respond(head, can_change=_can_change(writer))
        except asyncio.LimitOverrunError:
            response = too_large()
        # The loop of vn-agent also carries tenants' bytes.
        writer.write(await asyncio.to_thread(response) if callable(response) else response)
        await writer.drain()
        writer.write_eof()
        # Wait for the client to close: an abort with its bytes unread would be a reset, and a
        # reset may overtake the reply. One that goes on sending has had its chance.
        for _ in range(_READS_AFTER_REPLY):
            if not await reader.read(MAX_HEAD_BYTES):
                break


def _can_change(writer: asyncio.StreamWriter) -> bool:
    """Whether the peer is root or the daemon's own user. A TCP connection does not name its user."""
    connection: socket.socket = writer.get_extra_info("socket")
    if connection.family != socket.AF_UNIX:
        return False
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return uid in (0, os.geteuid())


def fetch(address: ListenAddress, path: str, timeout_s: float, method: str = "GET") -> tuple[int, bytes]:
    """Ask a status server for a page; return status code and body.

    Blocks for at most `timeout_s`: for tools and tests, not for a loop. Raises `OSError` (also
    `TimeoutError`) without an answer. Raises `StatusError` when the reply is not that of a status server, is
    cut, or is too large.
    """
    # A daemon that imports this module asks no server.
    import h11

    deadline = time.monotonic() + timeout_s
    family = socket.AF_UNIX if isinstance(address, Path) else _family(address)
    connection = h11.Connection(h11.CLIENT)
    request = connection.send(h11.Request(method=method, target=path, headers=[("Host", "localhost")]))
    received, body, status = 0, bytearray(), 0
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(timeout_s)
        client.connect(str(address) if isinstance(address, Path) else address)
        client.sendall((request or b"") + (connection.send(h11.EndOfMessage()) or b""))
        try:
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    status = event.status_code
                    # Without it a reply that is cut looks like a whole one.
                    if not any(name == b"content-length" for name, _ in event.headers):
                        raise StatusError(f"{_name(address)}: the reply has no length")
                elif isinstance(event, h11.Data):
                    body += event.data
                elif event is h11.NEED_DATA:
                    data = client.recv(1 << 16)
                    connection.receive_data(data)
                    received += len(data)
                    if received > MAX_REPLY_BYTES:
                        raise StatusError(f"{_name(address)}: the reply is larger than {MAX_REPLY_BYTES}")
                    if (left_s := deadline - time.monotonic()) <= 0:
                        raise TimeoutError(f"{_name(address)}: no whole reply within {timeout_s} s")
                    client.settimeout(left_s)
                else:
                    raise StatusError(f"{_name(address)}: not a status server's reply")
            if connection.trailing_data[0]:
                raise StatusError(f"{_name(address)}: bytes after the reply")
        except h11.RemoteProtocolError as error:
            raise StatusError(f"{_name(address)}: not a whole reply of a status server: {error}") from None
    return status, bytes(body)


def _checked(address: ListenAddress) -> ListenAddress:
    """Return the address with its host as a literal; raise `StatusError` unless it is local."""
    if isinstance(address, Path):
        if len(os.fsencode(address)) > _MAX_SOCKET_PATH_BYTES:
            raise StatusError(f"{address}: longer than {_MAX_SOCKET_PATH_BYTES} bytes")
        return address
    host, port = address
    host = "127.0.0.1" if host == "localhost" else host
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise StatusError(f"{_name(address)}: not a loopback address; use 127.0.0.1, ::1 or a socket")
    return host, port


def _listen_tcp(address: tuple[str, int]) -> socket.socket:
    listener = socket.socket(_family(address), socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _family(address: tuple[str, int]) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET


def _remove_stale(path: Path) -> None:
    """Remove a socket file without a listener. Raises `OSError` for anything else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "a file that is not a socket exists there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise OSError(errno.EADDRINUSE, "another process listens on it")


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _name(address: ListenAddress) -> str:
    return str(address) if isinstance(address, Path) else f"{address[0]}:{address[1]}"
