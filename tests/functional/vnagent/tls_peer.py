# SPDX-License-Identifier: Apache-2.0
"""The peer of a TlsConnection under test: real TLS on a real socket, moved step by step.

Nothing here reads or sends by itself, so that a test decides which side is slow, which data arrives together
and which side leaves first.
"""

import contextlib
import enum
import fcntl
import socket
import ssl
import struct
import sys
import termios


class End(enum.Enum):
    """How the other side ended, as seen from here."""

    CLOSE_NOTIFY = "close_notify"
    EOF = "FIN without close_notify"
    RESET = "reset"


def loopback_pair(buffer_bytes: int | None = None) -> tuple[socket.socket, socket.socket]:
    """Two connected TCP sockets, not blocking; small buffers make partial sends the rule."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if buffer_bytes is not None:  # before the connection is established, or the window is larger already
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        listener.listen(1)
        near = socket.socket()
        if buffer_bytes is not None:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        near.connect(listener.getsockname())
        far, _ = listener.accept()
    for each in (near, far):
        each.setblocking(False)
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, far


class TlsPeer:
    """`received` is every plain byte so far, `end` how the other side ended."""

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, *, is_server: bool, name: str = "far"
    ) -> None:
        self._sock = sock
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._in, self._out, server_side=is_server, server_hostname=None if is_server else name
        )
        self._unsent = b""
        self._is_finishing = False
        self.is_handshake_done = False
        self.is_closed = False
        self.received = bytearray()
        self.end: End | None = None

    # ---- sending

    def write(self, data: bytes) -> None:
        """Encrypt; `push` sends it."""
        for start in range(0, len(data), 16384):
            self._tls.write(data[start : start + 16384])

    def push(self, limit_bytes: int | None = None) -> bool:
        """Send as much as the socket accepts, at most `limit_bytes`. True when all is sent."""
        if self.is_closed:
            return True
        self._unsent += self._out.read()
        piece = self._unsent if limit_bytes is None else self._unsent[:limit_bytes]
        try:
            if piece:
                self._unsent = self._unsent[self._sock.send(piece) :]
        except BlockingIOError:
            return False
        except OSError:
            self._unsent = b""
            self.end = self.end or End.RESET
        if not self._unsent and self._is_finishing:
            self._is_finishing = False
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)
        return not self._unsent

    @property
    def unsent_bytes(self) -> int:
        """The encrypted bytes that are written and not sent."""
        return len(self._unsent) + self._out.pending

    @property
    def has_arrived(self) -> bool:
        """Whether all that was pushed is at the other side's kernel (tcp(7), SIOCOUTQ)."""
        left = fcntl.ioctl(self._sock, termios.TIOCOUTQ, bytes(4))
        return not self._unsent and not int.from_bytes(left, sys.byteorder)

    def write_raw(self, data: bytes) -> None:
        """Write bytes that are not a record, after the written ones; `push` sends them."""
        self._unsent += self._out.read() + data

    def notify(self) -> None:
        """Write close_notify, without a FIN; `push` sends it."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()

    def finish(self, *, with_notify: bool, behind: bytes = b"") -> None:
        """Announce the end: the FIN follows when all is pushed. `behind` is sent after the announcement."""
        if with_notify:
            self.notify()
        self.write_raw(behind)
        self._is_finishing = True
        self.push()

    def reset(self) -> None:
        """RST, and away."""
        if not self.is_closed:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.is_closed = True
        self._sock.close()

    # ---- receiving

    def pull(self, limit_bytes: int = 65536) -> None:
        """Take at most so many bytes off the socket, and decrypt what there is."""
        if self.is_closed or self.end is not None:
            return
        try:
            data = self._sock.recv(limit_bytes)
        except BlockingIOError:
            data = None
        except OSError:
            self.end = End.RESET
            return
        if data:
            self._in.write(data)
        if not self.is_handshake_done:
            self.handshake()
        if self.is_handshake_done:
            self._decrypt()
        if data == b"" and self.end is None:
            self.end = End.EOF

    def drain(self) -> None:
        """Take off the socket what there is, and forget it."""
        with contextlib.suppress(BlockingIOError):
            while self._sock.recv(65536):
                pass

    def handshake(self) -> None:
        """Continue the handshake as far as possible; `push` sends its bytes."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        self.is_handshake_done = True

    def _decrypt(self) -> None:
        while self.end is None:
            try:
                data = self._tls.read(65536)
            except ssl.SSLWantReadError:
                return
            except ssl.SSLZeroReturnError:
                data = b""
            if not data:
                self.end = End.CLOSE_NOTIFY
            self.received += data
