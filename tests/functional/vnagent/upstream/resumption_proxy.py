# SPDX-License-Identifier: Apache-2.0
"""A proxy between vn-agent and the kubelet that breaks resumed sessions."""

import contextlib
import select
import socket
import struct
import threading
from enum import Enum

from daemonkit.admission.client_hello import extensions
from devkit.kubelet.server import FakeKubelet

_PRE_SHARED_KEY = 41  # RFC 8446, 4.2
_RECORD_HEADER_BYTES = 5
_WAIT_S = 10.0
_LINGER_NOT = struct.pack("ii", 1, 0)


class ProxyEnding(Enum):
    """What becomes of a connection that offers a session; all others pass."""

    RESET = "reset at the hello"
    SILENCE = "no answer to the hello"
    CLOSED = "closed behind the server's flight"


class ResumptionProxy:
    """A proxy on loopback in front of `kubelet`; `offered` counts connections with a session."""

    def __init__(self, ending: ProxyEnding) -> None:
        self.kubelet: FakeKubelet | None = None
        self.offered = 0
        self._ending = ending
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._accept, name="front")]

    def __enter__(self) -> "ResumptionProxy":
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_WAIT_S)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(near,), name="front's connection")
            self._threads.append(thread)
            thread.start()

    def _serve(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError):
            near.settimeout(_WAIT_S)
            hello = _record(near)
            types = {found for found, _, _ in extensions(hello[_RECORD_HEADER_BYTES:])}
            has_session = _PRE_SHARED_KEY in types
            self.offered += has_session
            if has_session and self._ending is ProxyEnding.RESET:
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
            elif has_session and self._ending is ProxyEnding.SILENCE:
                self._is_over.wait()
            else:
                assert self.kubelet is not None
                with socket.create_connection(("127.0.0.1", self.kubelet.port)) as far:
                    far.sendall(hello)
                    self._relay(near, far, ends_at_more=has_session)

    def _relay(self, near: socket.socket, far: socket.socket, *, ends_at_more: bool) -> None:
        other = {near: far, far: near}
        while not self._is_over.is_set():
            for one in select.select(list(other), (), (), 0.05)[0]:
                data = one.recv(65_536)
                if not data or (ends_at_more and one is near):
                    return
                other[one].sendall(data)


def _record(near: socket.socket) -> bytes:
    """The first record of TLS, with its header."""
    received = b""
    while len(received) < _RECORD_HEADER_BYTES or len(received) < _size(received):
        data = near.recv(65_536)
        if not data:
            raise ConnectionError
        received += data
    return received


def _size(received: bytes) -> int:
    return _RECORD_HEADER_BYTES + int.from_bytes(received[3:_RECORD_HEADER_BYTES])
