# SPDX-License-Identifier: Apache-2.0
"""How a daemon learns that the peer of an idle connection has vanished: a host is off, or the network."""

import socket
from typing import Final

# On a connection that is idle: asked after 30 s, and gone after 7 questions without an answer: 135 s. Go's
# server takes 150 s (15 s, and 9 times 15 s). A switch that starts anew takes one to two minutes.
KEEPALIVE_IDLE_S: Final = 30
KEEPALIVE_INTERVAL_S: Final = 15
KEEPALIVE_COUNT: Final = 7
KEEPALIVE_S: Final = KEEPALIVE_IDLE_S + KEEPALIVE_COUNT * KEEPALIVE_INTERVAL_S


def keep_alive(sock: socket.socket) -> None:
    """Set the options of a TCP socket; sockets that a listening one accepts inherit them. Raises OSError."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT)
