# SPDX-License-Identifier: Apache-2.0
"""The rings' client of API servers closes each connection, however early the server resets it."""

import gc
import select
import socket
import struct
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from devkit.pki import Authority
from tests.k8s.ring.api import TlsEndpoint
from tests.k8s.ring.network import NetworkNamespace

_COUNT = 5
_Socket = socket.socket
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class _Here(NetworkNamespace):
    """The namespace that the test runs in, which needs no rights."""

    def socket(self, family: socket.AddressFamily, kind: socket.SocketKind) -> _Socket:
        return socket.socket(family, kind)

    def connect(self, address: str, port: int, *, timeout_s: float = 10.0) -> _Socket:
        """Connected, and reset: the moment that a client which connects first must expect."""
        made = super().connect(address, port, timeout_s=timeout_s)
        select.select([made], [], [], timeout_s)
        return made


def test_connections_that_are_reset_are_closed() -> None:
    """By a server that ends before the handshake, such as a pod that is killed."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as thread:

        def reset_each() -> None:
            for _ in range(_COUNT):
                with listener.accept()[0] as connection:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

        done = thread.submit(reset_each)
        authority = Authority.create("servers").cert_pem
        here, port = _Here("here", "127.0.0.1"), listener.getsockname()[1]
        with warnings.catch_warnings(record=True) as unclosed:
            warnings.simplefilter("always", ResourceWarning)
            for _ in range(_COUNT):
                with pytest.raises(ConnectionResetError):
                    TlsEndpoint(here, "127.0.0.1", port, authority, None).request("GET", "/")
            gc.collect()
        done.result(10)
    assert [str(each.message) for each in unclosed] == []
