# SPDX-License-Identifier: Apache-2.0
"""One connection to an agent that counts the requests which it starts in each iteration of the loop."""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

from daemonkit.fairness.lease import Lease
from tenancy.ownership import OwnerIndex
from tenancy.tenant import Role
from tests.functional.vnagent.connection_links import contexts, until
from tests.functional.vnagent.tls_peer import TlsPeer, loopback_pair
from vnagent.core.access import AnswerHealth, Caller, Decision
from vnagent.core.limits import RateVerdict
from vnagent.core.requests import Health, Request
from vnagent.dispatch import Dispatcher
from vnagent.downstream.admission import Admission
from vnagent.downstream.client_connection import ClientConnection
from vnagent.state import AgentState
from vnagent.transport.poller import SocketPoller


class CountingAgent(SimpleNamespace):
    """As much of the state, admission and dispatcher as `/healthz` needs. `requests` counts by iteration."""

    def __init__(self, poller: SocketPoller) -> None:
        super().__init__(poller=poller, index=OwnerIndex([]), is_draining=False)
        self.turn = 0
        self.requests: Counter[int] = Counter()
        self.lease = Lease(lambda: None)
        self.has_right_ended = False
        poller.loop.call_soon(self._count_turn)

    def _count_turn(self) -> None:
        self.turn += 1
        self.poller.loop.call_soon(self._count_turn)

    def admit(self, connection: ClientConnection) -> Lease:
        connection.caller = Caller("ten-a", Role.APISERVER, "00")
        return self.lease

    def admit_request(self, _caller: Caller, *, has_waited: bool, head_bytes: int) -> RateVerdict:
        assert not has_waited
        assert head_bytes
        return RateVerdict.SERVE

    def watch_expiry(self, _connection: ClientConnection) -> None:
        pass

    def is_ending(self, _connection: ClientConnection) -> bool:
        return self.has_right_ended

    def decide(self, request: Request, _caller: Caller) -> Decision:
        assert isinstance(request, Health)
        return AnswerHealth(request)

    def act(self, client: ClientConnection, _request: Request, _decision: Decision) -> None:
        self.requests[self.turn] += 1
        client.answer(b"x", is_close=False)

    def remove(self, _connection: ClientConnection) -> None:
        pass


@contextlib.asynccontextmanager
async def counted_connection(
    poller: SocketPoller,
) -> AsyncIterator[tuple[CountingAgent, ClientConnection, TlsPeer]]:
    """The agent, its end of the connection, and the client's, whose handshake is done."""
    server, client = contexts()
    near, sock = loopback_pair()
    agent = CountingAgent(poller)
    connection = ClientConnection(
        cast(AgentState, agent), cast(Admission, agent), cast(Dispatcher, agent), near, "far", server
    )
    connection.start()
    far = TlsPeer(sock, client, is_server=False)
    try:
        await until(lambda: far.is_handshake_done, far.handshake, far.push, far.pull)
        yield agent, connection, far
    finally:
        connection.abort()
        far.close()
