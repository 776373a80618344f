# SPDX-License-Identifier: Apache-2.0
"""Serves the connections of tenants in this process: from their first byte to the end of the drain."""

import asyncio
import functools
import socket

from daemonkit import logs
from daemonkit.admission.handshake_accounts import HandshakeAccounts
from vnagent.dispatch import Dispatcher
from vnagent.downstream.admission import Admission
from vnagent.downstream.client_connection import open_client
from vnagent.downstream.handshakes import Handshakes
from vnagent.downstream.token_port import TokenPort
from vnagent.state import AgentState

# Of a client that has connected: its handshake and its request's head, when this process takes no others.
FIRST_REQUEST_S = 1.0
_POLL_S = 0.01
# How long the loop waits for another thread of its process; Python's own 5 ms are ten echoes.
SWITCH_S = 0.0005

_log = logs.get(__name__)


class TenantServer:
    """Takes connections from listeners, and serves their requests by `dispatcher`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, state: AgentState, dispatcher: Dispatcher) -> None:
        self._state = state
        admission = Admission(state, HandshakeAccounts())
        serve = functools.partial(open_client, state, admission, dispatcher)
        self._handshakes = Handshakes(loop, state, admission.accounts, serve)

    async def start(self) -> None:
        self._handshakes.start()

    def accept(self, sock: socket.socket, host: str, token_port: TokenPort | None = None) -> None:
        """Take a connection from a listener, or close it while no tenant is served there."""
        self._handshakes.accept(sock, host, token_port)

    def make_room(self) -> bool:
        """Close one connection that has proven nothing, for its descriptor; False if there is none."""
        return self._handshakes.make_room()

    @property
    def open_count(self) -> int:
        """Connections in any state, and tunnels."""
        state = self._state
        return len(self._handshakes) + len(state.connections) + len(state.tunnels)

    async def drain(self, seconds: float) -> None:
        """Finish what has begun: first requests within FIRST_REQUEST_S, all others within `seconds`."""
        await self._finish_first_requests()
        await self._handshakes.end_all()
        _log.info("shutting down: waiting for streams", seconds=seconds, tunnels=len(self._state.tunnels))
        await self._state.drain(seconds)

    async def _finish_first_requests(self) -> None:
        """Give connections that were accepted the time to send a first request, or the rest of one."""
        poller = self._state.poller
        deadline = poller.now + FIRST_REQUEST_S
        while len(self._handshakes) or await self._state.has_awaited_requests():
            if poller.now >= deadline:
                return
            await asyncio.sleep(_POLL_S)
