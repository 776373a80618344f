# SPDX-License-Identifier: Apache-2.0
"""Keeps the port of a fake server that does not listen for a while.

A daemon that starts meanwhile on any free port gets another one, and the server listens again at the same.
"""

import socket


class HeldPort:
    """`hold` and `release`."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def hold(self, port: int) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))

    def release(self) -> None:
        """May be called twice."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
