# SPDX-License-Identifier: Apache-2.0
"""The agent's connection to its node: a socket, TLS 1.3, and one gRPC call in it.

One thread reads, acts and writes: to hand each message from thread to thread, as grpcio does, takes
longer than what the agent does with most of them. A second thread is there for long work alone: the
node asks for signs of life, and a guest that loads a large ruleset for 12 s still gives them.
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
from guest_agent.http2.call import Call
from guest_agent.http2.hpack import BadHttp2

# What the server's certificate says, whatever address leads to it: kata_bridge.credentials.
SERVER_NAME = "kata-bridge.vcnode.internal"

_CONNECT_S = 10.0
_READ_BYTES = 1 << 16
_WRITE_BYTES = 1 << 14

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """After how long a quiet node is asked for a sign of life, and how long that is waited for.

    It is for a node that lost power, whose silence looks like quiet; not more often than the node
    accepts. `attend_s`: how often one looks for what the node asks while long work is done; it waits
    10 s for an answer.
    """

    quiet_s: float = 30.0
    answer_s: float = 10.0
    attend_s: float = 2.0


class Lost(Exception):  # noqa: N818 - how every connection ends
    """There is no connection, or none any more; says why."""


class Wire:
    """A call that was begun. `receive` and `say` are for one thread."""

    def __init__(self, connection: ssl.SSLSocket, call: Call, patience: Patience) -> None:
        """Takes over the connection, which is through with its handshake."""
        self._patience = patience
        connection.setblocking(False)
        self._connection = connection
        self._call = call
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._is_polled_to_write = False
        self._heard_s = time.monotonic()
        self._pinged_s: float | None = None
        """When a sign of life was asked for that has not come."""
        # Of all above. Whoever reads waits for bytes without it.
        self._lock = threading.Lock()
        self._is_receiving = False
        """Whether a thread waits for bytes, or is about to."""
        self._is_over = threading.Event()
        self._attendant = threading.Thread(target=self._attend, name="wire", daemon=True)
        self._attendant.start()

    def say(self, message: bytes) -> None:
        """Send a message; what the node has no room for now goes with the next `receive`."""
        with self._lock:
            self._call.say(message)
            self._write()

    def receive(self, until_s: float) -> bytes | None:
        """The node's next message, None if there is none by then (of `time.monotonic`).

        Waits for room first where something is unsent. Raises `Lost`.
        """
        while True:
            with self._lock:
                self._is_receiving = False
                message = self._call.next() if self._call.has_sent else None
                if message is not None:
                    return message
                if self._call.ended:
                    raise Lost(self._call.ended)
                now_s = time.monotonic()
                if now_s >= until_s:
                    return None
                wake_s = min(until_s, self._next_sign(now_s))
                # With bytes that TLS has already there is nothing to wait for.
                is_there = self._connection.pending() > 0
                self._is_receiving = True
            if is_there or self._poll.poll(max(0.0, wake_s - now_s) * 1e3):
                with self._lock:
                    self._exchange()

    def close(self) -> None:
        """End the connection."""
        self._is_over.set()
        self._attendant.join()
        with contextlib.suppress(OSError):
            self._connection.close()

    def _next_sign(self, now_s: float) -> float:
        """When to look again whether the node lives; asks it for a sign if it was quiet for long."""
        if self._pinged_s is None:
            if now_s < self._heard_s + self._patience.quiet_s:
                return self._heard_s + self._patience.quiet_s
            self._pinged_s = now_s
            self._call.ping()
            self._write()
        due_s = self._pinged_s + self._patience.answer_s
        if now_s >= due_s and not self._connection.pending() and not self._poll.poll(0):
            raise Lost("the node does not answer any more")
        return max(due_s, now_s)

    def _exchange(self) -> None:
        """Read what is there, and write what there is room for. Never waits."""
        try:
            data = self._connection.recv(_READ_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            data = None
        except OSError as error:
            self._fail(error)
            return
        if data:
            self._heard_s, self._pinged_s = time.monotonic(), None
            try:
                self._call.feed(data)
            except BadHttp2 as error:
                self._call.ended = self._call.ended or f"the node does not speak as it should: {error}"
        elif data is not None:
            self._call.ended = self._call.ended or "the node hung up"
        self._write()

    def _write(self) -> None:
        out = self._call.to_send()
        try:
            while out:
                self._call.sent(self._connection.send(out[:_WRITE_BYTES]))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            self._fail(error)
            return
        if bool(out) is not self._is_polled_to_write:
            self._is_polled_to_write = bool(out)
            self._poll.modify(self._connection, select.POLLIN | (select.POLLOUT if out else 0))

    def _fail(self, error: OSError) -> None:
        self._call.ended = self._call.ended or f"the connection is lost: {words(error)}"

    def _attend(self) -> None:
        """Read and write while the other thread is long at work."""
        while not self._is_over.wait(self._patience.attend_s):
            with self._lock:
                # What it reads, one that waits for bytes would wait for in vain.
                if not self._is_receiving and not self._call.ended and self._poll.poll(0):
                    self._exchange()


def dial(target: str, credentials: Path, path: str, patience: Patience = Patience()) -> Wire:
    """Connect to `host:port`, `unix:PATH` or `vsock:CID:PORT` and begin the call `path`. Raises `Lost`.

    `credentials` is a directory with `ca.crt`, `tls.crt` and `tls.key`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(credentials / "ca.crt")
        context.load_cert_chain(credentials / "tls.crt", credentials / "tls.key")
    except OSError as error:
        raise Lost(f"{credentials}: {words(error)}") from None
    raw = None
    try:
        raw = _connect(target)
        connection = context.wrap_socket(raw, server_hostname=SERVER_NAME)
    except OSError as error:
        if raw is not None:
            raw.close()
        raise Lost(
            f"the node does not answer, or its certificate or ours is refused: {words(error)}"
        ) from None
    return Wire(connection, Call(path, SERVER_NAME), patience)


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


def words(error: OSError) -> str:
    """What went wrong, for the log."""
    return error.strerror or str(error)


def wait_for_random_pool(getrandom: Callable[[int, int], bytes] = os.getrandom) -> None:
    """Return when TLS can take random bytes without waiting. Signals are handled meanwhile.

    getrandom(2) blocks until the kernel has gathered enough of them. A VM without a source of
    randomness may wait for minutes after boot, and OpenSSL would do so without a word.
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
        # A kernel without the call, or a seccomp profile: TLS has other ways, or an error of its own.
        _log.debug("cannot look at the random pool", error=error)
