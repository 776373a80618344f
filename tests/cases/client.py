# SPDX-License-Identifier: Apache-2.0
"""A TLS client that sends any bytes and records how the peer ended the connection.

It uses memory BIOs: `ssl.SSLSocket` cannot half-close, and reports a reset as an EOF.
One thread may send while another receives; a lock guards the TLS object.
"""

import contextlib
import enum
import select
import socket
import ssl
import struct
import threading
import time

from tests.cases.replies import ReceivedReply, parse_reply

_READ_BYTES = 256 * 1024
_STEP_S = 0.05


class PeerEnd(enum.Enum):
    """How the peer ended its direction."""

    CLOSE_NOTIFY = "close_notify"
    EOF = "FIN without close_notify"
    RESET = "reset"
    ALERT = "TLS alert"


class SendFailed(Exception):  # noqa: N818 - an outcome that callers expect, not a fault of theirs
    """The peer takes no more bytes: it ended the connection, or the time is up."""


class CaseClient:
    """One connection. `received` holds every plain byte so far, `end` how the peer ended."""

    def __init__(
        self,
        address: tuple[str, int],
        context: ssl.SSLContext | None,
        *,
        sni: str | None = None,
        timeout_s: float = 10.0,
        receive_buffer_bytes: int | None = None,
        source: str = "",
    ) -> None:
        """Connect, from the IP address `source` if it is given. Raises OSError."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.settimeout(timeout_s)
        try:
            if source:
                self._socket.bind((source, 0))
            self._socket.connect(address)
        except OSError:
            self._socket.close()
            raise
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._lock = threading.Lock()
        self._out_lock = threading.Lock()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        if context is not None:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=sni)
        self.received = bytearray()
        self.sent_bytes = 0
        self.end: PeerEnd | None = None
        self.ended_s: float | None = None
        self.error: str = ""
        self.is_closed = False
        self._is_sending_stopped = False

    def __enter__(self) -> "CaseClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def handshake(self, timeout_s: float = 10.0) -> bool:
        """Whether this end has finished. A refusal by a TLS 1.3 server shows at the first read."""
        if self._tls is None:
            return True
        deadline = time.monotonic() + timeout_s
        while self.end is None:
            try:
                with self._lock:
                    self._tls.do_handshake()
                self._flush(deadline)
                return True
            except ssl.SSLWantReadError:
                self._flush(deadline)
                if not self._fill(deadline - time.monotonic()) and time.monotonic() > deadline:
                    return False
            except ssl.SSLError as problem:
                self._ended(PeerEnd.ALERT, problem.reason or str(problem))
            except SendFailed:
                break
        return False

    @property
    def peer_certificate(self) -> bytes | None:
        """The server's certificate, DER; None without TLS or before the handshake."""
        return None if self._tls is None else self._tls.getpeercert(binary_form=True)

    def send(self, data: bytes, timeout_s: float = 10.0) -> None:
        """Hand all of `data` to the kernel, or raise SendFailed."""
        deadline = time.monotonic() + timeout_s
        if self._tls is None:
            self._write_raw(data, deadline)
            self.sent_bytes += len(data)
            return
        for start in range(0, len(data), 65536):
            piece = data[start : start + 65536]
            try:
                with self._lock:
                    self._tls.write(piece)
            except ssl.SSLError as problem:
                raise SendFailed(str(problem)) from problem
            self._flush(deadline)
            self.sent_bytes += len(piece)

    def receive(self, timeout_s: float) -> bytes:
        """Some bytes, or none when the time is up or the peer has ended."""
        deadline = time.monotonic() + timeout_s
        while True:
            data = self._decrypt()
            if data:
                self.received += data
                return data
            left = deadline - time.monotonic()
            if self.end is not None or left <= 0:
                return b""
            self._fill(left)

    def receive_until_end(self, timeout_s: float) -> bool:
        """Read until the peer ends; False when the time is up before."""
        deadline = time.monotonic() + timeout_s
        while self.end is None and time.monotonic() < deadline:
            self.receive(min(deadline - time.monotonic(), 0.5))
        return self.end is not None

    def stop_sending(self) -> None:
        """Let a blocked `send` of another thread fail at once."""
        self._is_sending_stopped = True

    def resume_sending(self) -> None:
        self._is_sending_stopped = False

    def half_close(self) -> None:
        """Send close_notify and FIN; go on receiving."""
        self._close_notify()
        self._shutdown()

    def finish(self) -> None:
        """Send FIN without close_notify; go on receiving."""
        self._shutdown()

    def close(self) -> None:
        """Send close_notify and FIN, and close the socket."""
        if not self.is_closed:
            self._close_notify()
            self.is_closed = True
            self._socket.close()

    def reset(self) -> None:
        """Send RST, and close the socket."""
        if not self.is_closed:
            self.is_closed = True
            linger = struct.pack("ii", 1, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._socket.close()

    def _close_notify(self) -> None:
        if self._tls is None or self.is_closed:
            return
        try:
            with self._lock:
                self._tls.unwrap()
        except ssl.SSLError:
            pass  # it waits for the peer's close_notify, which may come or not
        with contextlib.suppress(SendFailed):  # the peer has gone first
            self._flush(time.monotonic() + 1)

    def _shutdown(self) -> None:
        with contextlib.suppress(OSError):  # the peer has gone first
            self._socket.shutdown(socket.SHUT_WR)

    def _decrypt(self) -> bytes:
        if self._tls is None:
            return self._incoming.read()
        try:
            with self._lock:
                data = self._tls.read(_READ_BYTES)
            if not data:
                self._ended(PeerEnd.CLOSE_NOTIFY)
            return data
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLZeroReturnError:
            self._ended(PeerEnd.CLOSE_NOTIFY)
        except ssl.SSLError as problem:
            self._ended(PeerEnd.ALERT, problem.reason or str(problem))
        return b""

    def _fill(self, timeout_s: float) -> bool:
        """Bytes off the network into the incoming BIO; the end of the stream is noted."""
        if not self._poll(select.POLLIN, timeout_s):
            return False
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as problem:
            self._ended(PeerEnd.RESET, str(problem))
            return False
        if not data:
            self._ended(PeerEnd.EOF)
            return False
        with self._lock:
            self._incoming.write(data)
        return True

    def _flush(self, deadline: float) -> None:
        # The order of records must be the order on the wire: taken and sent under one lock.
        with self._out_lock:
            with self._lock:
                data = self._outgoing.read()
            self._write_raw(data, deadline)

    def _write_raw(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                if self._is_sending_stopped or self.end is not None or time.monotonic() > deadline:
                    raise SendFailed("the peer does not read") from None
                self._poll(select.POLLOUT, _STEP_S)
            except OSError as problem:
                raise SendFailed(str(problem)) from problem

    def _poll(self, event: int, timeout_s: float) -> bool:
        if self.is_closed:
            return False
        poller = select.poll()
        poller.register(self._socket, event)
        return bool(poller.poll(max(timeout_s, 0) * 1000))

    def _ended(self, how: PeerEnd, error: str = "") -> None:
        if self.end is None:
            self.end, self.error, self.ended_s = how, error, time.monotonic()


def receive_reply(
    client: CaseClient, method: str, timeout_s: float, *, start: int = 0
) -> ReceivedReply | None:
    """The first reply behind `start` received bytes, perhaps incomplete; None without its head.

    Raises BadReplyError.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        got = client.receive(max(0.0, deadline - time.monotonic()))
        reply = parse_reply(bytes(client.received[start:]), method, is_ended=client.end is not None)
        if not got or (reply is not None and reply.is_complete):
            return reply
