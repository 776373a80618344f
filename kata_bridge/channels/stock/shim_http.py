# SPDX-License-Identifier: Apache-2.0
"""One HTTP request to a shim's unix socket.

A connection carries one request (`Connection: close`), and the reply ends with the connection: both shims,
Go's net/http and Rust's hyper, close as asked. An HTTP library would cost 14 MB; this is the part we need.
"""

import asyncio
import os
import re
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

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: [^\r\n]*+)?")
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*+(?:;.*+)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class HttpReply:
    status: int
    body: bytes


class HttpReplyError(Exception):
    """Not a complete HTTP reply."""


def parse(data: bytes) -> HttpReply:
    """Parse all bytes of a connection as one reply. Raises `HttpReplyError`."""
    status, at, lines = 100, 0, list[bytes]()
    for _ in range(1 + MAX_INTERIM_REPLIES):  # "100 Continue" is legal without "Expect"
        end = data.find(b"\r\n\r\n", at, at + MAX_HEAD_BYTES)
        status_line, *lines = data[at : max(at, end)].split(b"\r\n")
        match = _STATUS_LINE.fullmatch(status_line)
        if match is None:
            raise HttpReplyError("not an HTTP reply")
        status, at = int(match[1]), end + 4
        if status >= 200:
            break
    else:
        raise HttpReplyError(f"more than {MAX_INTERIM_REPLIES} interim replies")
    body = data[at:]
    fields = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)
    }
    if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
        return HttpReply(status, _joined(body))
    length = fields.get(b"content-length")
    if length is None:
        return HttpReply(status, body)
    if not length.isdigit() or len(length) > 12 or int(length) > len(body):
        raise HttpReplyError("the reply is incomplete")
    return HttpReply(status, body[: int(length)])


def _joined(body: bytes) -> bytes:
    """Undo `Transfer-Encoding: chunked` (RFC 9112 7.1); trailers are skipped."""
    parts: list[bytes] = []
    at = 0
    while True:
        end = body.find(b"\r\n", at)
        match = _CHUNK_SIZE.fullmatch(body, at, end) if end >= 0 else None
        if match is None:
            raise HttpReplyError("the reply is incomplete")
        size = int(match[1], 16)
        if size == 0:
            return b"".join(parts)
        start = end + 2
        if body[start + size : start + size + 2] != b"\r\n":
            raise HttpReplyError("the reply is incomplete")
        parts.append(body[start : start + size])
        at = start + size + 2


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
