# SPDX-License-Identifier: Apache-2.0
"""One HTTP request to a shim's unix socket.

A connection carries one request (`Connection: close`), and the reply ends with the connection: both shims,
Go's net/http and Rust's hyper, close as asked. h11 reads it (docs/decisions/0035).
"""

import asyncio
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from kata_bridge.channels.stock.faults import NoAnswerError

# A shim passes on a ttrpc message of at most 4 MiB; and a head.
MAX_REPLY_BYTES = (4 << 20) + (64 << 10)
# Shims send none.
MAX_INTERIM_REPLIES = 4
MAX_HEAD_BYTES = 16 << 10
_READ_BYTES = 1 << 16
_MAX_SOCKET_PATH_BYTES = 107  # sockaddr_un.sun_path, 108 with its NUL (unix(7))


@dataclass(frozen=True, slots=True)
class HttpReply:
    status: int
    body: bytes


class HttpReplyError(Exception):
    """Not a complete HTTP reply."""


def parse(data: bytes) -> HttpReply:
    """Parse all bytes of a connection as one reply. Raises `HttpReplyError`."""
    # Loaded with the first guest of stock Kata.
    import h11

    if data.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES) < 0:
        is_large = len(data) > MAX_HEAD_BYTES
        raise HttpReplyError("the head of the reply is too large" if is_large else "not an HTTP reply")
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "shim")]))
    connection.send(h11.EndOfMessage())
    status, interim, parts = 0, 0, list[bytes]()
    try:
        connection.receive_data(data)
        connection.receive_data(b"")
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.InformationalResponse):  # legal without "Expect"
                interim += 1
                if interim > MAX_INTERIM_REPLIES:
                    raise HttpReplyError(f"more than {MAX_INTERIM_REPLIES} interim replies")
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
            else:
                raise HttpReplyError("not an HTTP reply")
    except h11.RemoteProtocolError as error:
        raise HttpReplyError(f"not a complete HTTP reply: {error}") from None
    return HttpReply(status, b"".join(parts))


async def request(socket_path: Path, method: str, target: str, body: bytes, timeout_s: float) -> HttpReply:
    """Send one request and return the reply, whatever its status.

    Raises `NoAnswerError`: nothing listens, the connection ends early, or `timeout_s` is over.
    """
    if len(os.fsencode(socket_path)) > _MAX_SOCKET_PATH_BYTES:
        raise NoAnswerError(f"{socket_path}: the path is longer than {_MAX_SOCKET_PATH_BYTES} bytes")
    is_sent = False
    # A bare socket: a stream drops what it has read when a write fails, and a shim that lacks an endpoint
    # replies and closes without reading the request.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.get_running_loop().sock_connect(sock, str(socket_path))
                is_sent = await _send(sock, method, target, body)
                data = await _read(sock)
        except TimeoutError:
            raise NoAnswerError(f"{socket_path}: no reply within {timeout_s:g} s", may_run=is_sent) from None
        except OSError as error:
            raise NoAnswerError(f"{socket_path}: {error.strerror or error}") from None
    try:
        return parse(data)
    except HttpReplyError as error:
        raise NoAnswerError(f"{socket_path}: connection closed, {error}") from None


async def _send(sock: socket.socket, method: str, target: str, body: bytes) -> bool:
    """Send the request; False if the peer stopped reading, which it may do after its reply."""
    head = (
        f"{method} {target} HTTP/1.1\r\nHost: shim\r\nConnection: close\r\n"
        f"Content-Type: application/octet-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    try:
        await asyncio.get_running_loop().sock_sendall(sock, head.encode("ascii") + body)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


async def _read(sock: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    data = bytearray()
    try:
        while more := await loop.sock_recv(sock, _READ_BYTES):
            data += more
            if len(data) > MAX_REPLY_BYTES:
                raise OSError(f"the reply is larger than {MAX_REPLY_BYTES} bytes")
    except ConnectionResetError:
        pass  # the bytes before it may be a complete reply
    return bytes(data)
