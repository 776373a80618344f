# SPDX-License-Identifier: Apache-2.0
"""The signer's sockets: the API server's endpoint, whose peers the kernel names, and the probes' port."""

import os
import socket
import struct
from contextlib import suppress

# struct ucred (unix(7)): pid, uid, gid.
_CREDENTIALS = struct.Struct("iII")
_BACKLOG = 16


def listen(path: str, *, is_shared: bool) -> socket.socket:
    """Listen on a Unix socket, in the place of one that an earlier process left. Raises `OSError`.

    Only the owner may connect; with `is_shared` also the group, by which the volume of a pod is shared. The
    socket appears under its name when it listens: a client never finds one that does not.
    """
    temporary = f"{path}.{os.getpid()}"
    with suppress(FileNotFoundError):
        os.unlink(temporary)  # noqa: PTH108 - pathlib takes 1.1 MB
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o117 if is_shared else 0o177)
    try:
        listener.bind(temporary)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        os.rename(temporary, path)  # noqa: PTH104 - as above
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


def listen_for_probes(port: int) -> socket.socket:
    """Listen on a port of all addresses, of both families where the pod has IPv6. Raises `OSError`."""
    try:
        listener = socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
        )
    except (OSError, ValueError):
        listener = socket.create_server(("", port), backlog=_BACKLOG)
    listener.setblocking(False)
    return listener


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end of a Unix socket."""
    return _credentials(connection)[1]


def endpoint_fault(path: str) -> str:
    """Why a client of this path does not reach this process; empty if it does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        try:
            connection.connect(path)
        except OSError as error:
            return f"{path}: {error.strerror}"
        if _credentials(connection)[0] != os.getpid():
            return f"{path}: another process listens there"
    return ""


def _credentials(connection: socket.socket) -> tuple[int, int, int]:
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(data)
    return pid, uid, gid
