# SPDX-License-Identifier: Apache-2.0
"""Servers that reply with their own and the peer's address, and clients in a guest."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Collection, Iterable

from ruleset.model import Endpoint
from tests.lab.namespaces import Lab, LabNamespace
from tests.waiting import wait_until

STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM

_POLL_S = 0.05


def _family(ip: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in ip else socket.AF_INET


class Servers:
    """Replies `OWN PEER` on all its sockets, on one thread, until the lab ends."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._selector = selectors.DefaultSelector()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def listen(
        self, namespace: LabNamespace, endpoints: Iterable[Endpoint], kind: socket.SocketKind = STREAM
    ) -> None:
        """Serve at these endpoints of `namespace`; all before `start`."""
        for endpoint in endpoints:
            made = self._lab.keep(namespace.socket(_family(endpoint.ip), kind))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((endpoint.ip, endpoint.port))
            if kind == STREAM:
                made.listen(128)
            self._selector.register(made, selectors.EVENT_READ, endpoint)

    def start(self) -> None:
        self._thread.start()
        self._lab.at_the_end(self._stop)

    def _stop(self) -> None:
        self._is_over.set()
        self._thread.join(10)
        self._selector.close()

    def _serve(self) -> None:
        while not self._is_over.is_set():
            for key, _ in self._selector.select(_POLL_S):
                server = key.fileobj
                assert isinstance(server, socket.socket)
                if server.type == STREAM:
                    accepted, peer = server.accept()
                    with accepted:
                        accepted.sendall(f"{key.data} {peer[0]}".encode())
                else:
                    _, peer = server.recvfrom(64)
                    server.sendto(f"{key.data} {peer[0]}".encode(), peer)


def exchange(
    guest: LabNamespace, ip: str, port: int, kind: socket.SocketKind = STREAM, *, wait_s: float = 5.0
) -> str:
    """The reply of the server behind `ip:port`. Raises ConnectionRefusedError, TimeoutError."""
    with guest.socket(_family(ip), kind) as client:
        client.settimeout(wait_s)
        client.connect((ip, port))
        if kind == DATAGRAM:
            client.send(b"?")
        return client.recv(128).decode()


def wait_until_reachable(
    guest: LabNamespace, endpoints: Collection[Endpoint], *, deadline_s: float = 10.0
) -> None:
    """Connect to each until it replies: on a fresh link neighbour discovery takes a moment."""
    expected = [str(endpoint) for endpoint in endpoints]
    wait_until(
        lambda: [outcome(guest, each.ip, each.port) for each in endpoints] == expected, within_s=deadline_s
    )


def outcome(guest: LabNamespace, ip: str, port: int, kind: socket.SocketKind = STREAM) -> str:
    """Where a connection ends: the server's address, `reject` or `drop`.

    A rejection must come at once: one that comes with a retransmission (1 s) does not count.
    """
    started = time.monotonic()
    try:
        return exchange(guest, ip, port, kind, wait_s=0.7).partition(" ")[0]
    except (ConnectionRefusedError, PermissionError):
        # The sender of a datagram gets EPERM if OUTPUT rejects it.
        return "reject" if time.monotonic() - started < 0.5 else "late reject"
    except TimeoutError:
        return "drop"
