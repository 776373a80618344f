# SPDX-License-Identifier: Apache-2.0
"""The sockets that agents dial: TCP, unix, hybrid vsock (a unix socket for each VM), AF_VSOCK."""

import asyncio
import functools
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from daemonkit.listeners import stop_accepting
from daemonkit.tasks import Tasks
from kata_bridge.channels.agent.guest_addresses import Address
from kata_bridge.channels.agent.peer_origin import PeerOrigin, tcp_origin

_STOP_S = 2.0

OriginOf = Callable[[asyncio.Transport], PeerOrigin]
Accept = Callable[[OriginOf], asyncio.Protocol]


class AgentListeners:
    """Listens. `accept` makes the protocol of a connection, from the function that finds its origin.

    `has_single_owner` is whether an address is that of exactly one guest.
    """

    def __init__(self, accept: Accept, has_single_owner: Callable[[Address], bool]) -> None:
        self._accept = accept
        self._has_single_owner = has_single_owner
        self._tasks = Tasks("agent-listeners")
        self._open: dict[str, tuple[asyncio.Server, Path | None]] = {}
        self._is_closed = False

    def is_open_for(self, origin: PeerOrigin) -> bool:
        """Whether the socket that a connection came by is open still.

        A connection that was being accepted when its socket was closed arrives all the same.
        """
        return not self._is_closed and (origin.sandbox is None or _name_of(origin.sandbox) in self._open)

    async def listen_tcp(self, address: str, port: int) -> int:
        """Listen on an address; return the port, for `port` 0 a free one. Raises `OSError`."""
        server = await asyncio.get_running_loop().create_server(
            lambda: self._accept(self._tcp_origin), address, port
        )
        self._add(f"tcp {address}:{port}", server, None)
        return int(server.sockets[0].getsockname()[1])

    async def listen_unix(self, path: Path, *, sandbox: str | None = None) -> None:
        """Listen on a unix socket, mode 0600: for the guest `sandbox` alone, or for any.

        The VMM of a hybrid vsock connects to `<uds path>_<port>`. A socket that an earlier run left is
        replaced. Raises `OSError`.
        """
        _unlink(path)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            bound.bind(str(path))
            os.chmod(path, 0o600)  # noqa: PTH101 - and not pathlib's, which ruff takes for a slow one
            server = await asyncio.get_running_loop().create_unix_server(
                lambda: self._accept(functools.partial(_unix_origin, sandbox)), sock=bound
            )
        except BaseException:
            bound.close()
            raise
        self._add(f"unix {path}" if sandbox is None else _name_of(sandbox), server, path)

    async def listen_vsock(self, port: int) -> None:
        """Listen on AF_VSOCK for all VMs. Raises `OSError`, also where the kernel has no AF_VSOCK."""
        bound = socket.socket(
            socket.AF_VSOCK, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        )
        try:
            bound.bind((socket.VMADDR_CID_ANY, port))
            server = await asyncio.get_running_loop().create_server(
                lambda: self._accept(_vsock_origin), sock=bound
            )
        except BaseException:
            bound.close()
            raise
        self._add(f"vsock {port}", server, None)

    def forget(self, sandbox: str) -> None:
        """Close the socket of a sandbox that was stopped, if it has one."""
        found = self._open.pop(_name_of(sandbox), None)
        if found is not None:
            self._close_one(*found)

    async def close(self) -> None:
        self._is_closed = True
        for server, path in self._open.values():
            if path is not None:
                _unlink(path)
            await stop_accepting(server)
        self._open.clear()
        await self._tasks.close(_STOP_S)

    def _add(self, name: str, server: asyncio.Server, path: Path | None) -> None:
        """Add a listener, and close the older one of that name: a guest has one socket."""
        old, self._open[name] = self._open.get(name), (server, path)
        if old is not None:
            self._close_one(old[0], old[1] if old[1] != path else None)

    def _close_one(self, server: asyncio.Server, path: Path | None) -> None:
        if path is not None:
            _unlink(path)
        self._tasks.spawn(stop_accepting(server), "close", when_over=server.close)

    def _tcp_origin(self, transport: asyncio.Transport) -> PeerOrigin:
        return tcp_origin(str(transport.get_extra_info("peername")[0]), self._has_single_owner)


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


def _name_of(sandbox: str) -> str:
    return f"sandbox {sandbox}"


def _unix_origin(sandbox: str | None, transport: asyncio.Transport) -> PeerOrigin:
    if sandbox is not None:
        return PeerOrigin("hybrid-vsock", sandbox, sandbox)
    credentials = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return PeerOrigin("unix", f"pid {int.from_bytes(credentials[:4], sys.byteorder)}")


def _vsock_origin(transport: asyncio.Transport) -> PeerOrigin:
    cid = int(transport.get_extra_info("peername")[0])
    return PeerOrigin("vsock", f"cid {cid}", cid=cid)
