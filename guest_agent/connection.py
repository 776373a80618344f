# SPDX-License-Identifier: Apache-2.0
"""The agent's connection to its node: a socket, TLS 1.3, and one gRPC call in it.

One thread reads, acts and writes. Handing each message from thread to thread, as grpcio does, takes
longer than handling most of them. A second thread serves the connection only during long work: the
node sends keepalive pings, and the agent answers them while it loads a large ruleset for 12 s.
"""

import contextlib
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from daemonkit import logs
from daemonkit.http2 import Http2Error
from guest_agent.http2.call import GrpcCall

# The name in the server's certificate, whichever address leads to it: kata_bridge.guest_certificates.
SERVER_NAME = "kata-bridge.vcnode.internal"

_CONNECT_S = 10.0
_READ_BYTES = 1 << 16
_WRITE_BYTES = 1 << 14

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Keepalive:
    """When to ping an idle node, and how long to wait for the answer, as gRPC's keepalive.

    It finds a node that lost power, and must not ping more often than the node accepts.
    `busy_poll_s` is how often the connection is served during long work: the node waits 10 s for an
    answer.
    """

    idle_s: float = 30.0
    timeout_s: float = 10.0
    busy_poll_s: float = 2.0


class ConnectionLostError(Exception):
    """The connection is lost or was never made; the text has the reason."""


class NodeConnection:
    """A call that was started. `receive` and `send` are for one thread."""

    def __init__(self, connection: ssl.SSLSocket, call: GrpcCall, keepalive: Keepalive) -> None:
        """Takes over the connection after its handshake."""
        self._keepalive = keepalive
        connection.setblocking(False)
        self._connection = connection
        self._call = call
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._is_polled_to_write = False
        self._received_s = time.monotonic()
        self._pinged_s: float | None = None
        """When a ping was sent that is not answered yet."""
        # Guards all above. It is released while `receive` waits for bytes.
        self._lock = threading.Lock()
        self._is_receiving = False
        """Whether a thread waits for bytes, or is about to."""
        self._is_closed = threading.Event()
        self._busy_thread = threading.Thread(target=self._serve_while_busy, name="keepalive", daemon=True)
        self._busy_thread.start()

    def send(self, message: bytes) -> None:
        """Send a message. What the node has no room for is sent by the next `receive`."""
        with self._lock:
            self._call.send_message(message)
            self._write()

    def receive(self, until_s: float) -> bytes | None:
        """The node's next message; None if none comes until then (of `time.monotonic`).

        Sends unsent bytes first. Raises `ConnectionLostError`.
        """
        while True:
            with self._lock:
                self._is_receiving = False
                message = self._call.next_message() if self._call.is_flushed else None
                if message is not None:
                    return message
                if self._call.ended:
                    raise ConnectionLostError(self._call.ended)
                now_s = time.monotonic()
                if now_s >= until_s:
                    return None
                wake_s = min(until_s, self._keep_alive(now_s))
                # Bytes that TLS has read already do not show in poll.
                is_there = self._connection.pending() > 0
                self._is_receiving = True
            if is_there or self._poll.poll(max(0.0, wake_s - now_s) * 1e3):
                with self._lock:
                    self._exchange()

    def close(self) -> None:
        self._is_closed.set()
        self._busy_thread.join()
        with contextlib.suppress(OSError):
            self._connection.close()

    def _keep_alive(self, now_s: float) -> float:
        """Ping an idle node; return when to call this again. Raises `ConnectionLostError`."""
        if self._pinged_s is None:
            if now_s < self._received_s + self._keepalive.idle_s:
                return self._received_s + self._keepalive.idle_s
            self._pinged_s = now_s
            self._call.ping()
            self._write()
        due_s = self._pinged_s + self._keepalive.timeout_s
        if now_s >= due_s and not self._connection.pending() and not self._poll.poll(0):
            raise ConnectionLostError("the node does not answer pings")
        return max(due_s, now_s)

    def _exchange(self) -> None:
        """Read what has come, and write what there is room for. Never waits."""
        try:
            data = self._connection.recv(_READ_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            data = None
        except OSError as error:
            self._fail(error)
            return
        if data:
            self._received_s, self._pinged_s = time.monotonic(), None
            try:
                self._call.receive_data(data)
            except Http2Error as error:
                self._call.ended = self._call.ended or f"the node violates HTTP/2: {error}"
        elif data is not None:
            self._call.ended = self._call.ended or "the node closed the connection"
        self._write()

    def _write(self) -> None:
        out = self._call.data_to_send()
        try:
            while out:
                self._call.data_sent(self._connection.send(out[:_WRITE_BYTES]))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            self._fail(error)
            return
        if bool(out) is not self._is_polled_to_write:
            self._is_polled_to_write = bool(out)
            self._poll.modify(self._connection, select.POLLIN | (select.POLLOUT if out else 0))

    def _fail(self, error: OSError) -> None:
        self._call.ended = self._call.ended or f"the connection is lost: {error_text(error)}"

    def _serve_while_busy(self) -> None:
        """Read and write while the other thread is busy."""
        while not self._is_closed.wait(self._keepalive.busy_poll_s):
            with self._lock:
                # A thread in `receive` would wait in vain for the bytes that are read here.
                if not self._is_receiving and not self._call.ended and self._poll.poll(0):
                    self._exchange()


def dial(target: str, credentials: Path, path: str, keepalive: Keepalive = Keepalive()) -> NodeConnection:
    """Connect to `host:port`, `unix:PATH` or `vsock:CID:PORT` and start the call `path`.

    `credentials` is a directory with `ca.crt`, `tls.crt` and `tls.key`. Raises `ConnectionLostError`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(credentials / "ca.crt")
        context.load_cert_chain(credentials / "tls.crt", credentials / "tls.key")
    except OSError as error:
        raise ConnectionLostError(f"{credentials}: {error_text(error)}") from None
    raw = None
    try:
        raw = _connect(target)
        connection = context.wrap_socket(raw, server_hostname=SERVER_NAME)
    except OSError as error:
        if raw is not None:
            raw.close()
        raise ConnectionLostError(
            f"cannot connect, or a certificate was rejected: {error_text(error)}"
        ) from None
    return NodeConnection(connection, GrpcCall(path, SERVER_NAME), keepalive)


def _connect(target: str) -> socket.socket:
    """Raises `OSError`."""
    kind, _, rest = target.partition(":")
    host, _, port = target.rpartition(":")
    if kind not in ("unix", "vsock"):
        tcp = socket.create_connection((host.removeprefix("[").removesuffix("]"), int(port)), _CONNECT_S)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return tcp
    local = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_VSOCK, socket.SOCK_STREAM)
    local.settimeout(_CONNECT_S)
    try:
        local.connect(rest if kind == "unix" else (int(host.removeprefix("vsock:")), int(port)))
    except OSError:
        local.close()
        raise
    return local


def error_text(error: OSError) -> str:
    return error.strerror or str(error)


def wait_for_random_pool(getrandom: Callable[[int, int], bytes] = os.getrandom) -> None:
    """Return when TLS can take random bytes without waiting. Signals are handled meanwhile.

    getrandom(2) blocks until the kernel has gathered enough of them. A VM without a source of
    randomness may wait for minutes after boot, and OpenSSL would do so without a log line.
    """
    try:
        getrandom(1, os.GRND_NONBLOCK)
    except BlockingIOError:
        _log.warning(
            "waiting for the guest kernel's random pool, which TLS needs: give the VM a virtio-rng device"
        )
        getrandom(1, 0)
        _log.info("the guest kernel's random pool is ready")
    except OSError as error:
        # A kernel without the call, or a seccomp profile. TLS then has other sources, or its own error.
        _log.debug("cannot check the random pool", error=error)
