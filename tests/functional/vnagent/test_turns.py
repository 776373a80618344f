# SPDX-License-Identifier: Apache-2.0
"""How much of one connection is served in one turn of the loop."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import cast

from tenancy.ownership import OwnerIndex
from tenancy.tenant import Role
from tests.functional.vnagent.far_end import FarEnd, loopback_pair
from tests.functional.vnagent.links import contexts, run, until
from tests.functional.vnagent.node import head
from vnagent.agent import Agent
from vnagent.channels import Channels
from vnagent.client import ClientConnection
from vnagent.core.access import AnswerHealth, Caller, Decision
from vnagent.core.limits import Turn
from vnagent.core.requests import Health, Request


class CountingAgent(SimpleNamespace):
    """As much of an agent as `/healthz` needs. `requests` counts by turn of the loop."""

    def __init__(self, channels: Channels) -> None:
        super().__init__(channels=channels, index=OwnerIndex([]), is_draining=False, date="")
        self.turn = 0
        self.requests: Counter[int] = Counter()
        channels.loop.call_soon(self._count_turn)

    def _count_turn(self) -> None:
        self.turn += 1
        self.channels.loop.call_soon(self._count_turn)

    def admit(self, connection: ClientConnection) -> bool:
        connection.caller = Caller("ten-a", Role.APISERVER, "00")
        return True

    def take_turn(self, _caller: Caller, *, has_waited: bool) -> Turn:
        assert not has_waited
        return Turn.SERVE

    def decide(self, request: Request, _caller: Caller) -> Decision:
        assert isinstance(request, Health)
        return AnswerHealth(request)

    def next_request_id(self) -> str:
        return "0" * 16

    def audit(self, *_: object) -> None:
        self.requests[self.turn] += 1

    def dismiss(self, _connection: ClientConnection, *, is_counted: bool) -> None:
        assert is_counted


def test_a_connection_that_pipelines_gets_one_request_a_turn() -> None:
    """However often its data arrives meanwhile; one more where the data itself brings the turn."""

    async def body(channels: Channels) -> None:
        server, client = contexts()
        near, sock = loopback_pair()
        agent = CountingAgent(channels)
        connection = ClientConnection(cast(Agent, agent), near, "far", server)
        connection.start()
        far = FarEnd(sock, client, is_server=False)
        try:
            await until(lambda: far.is_handshaken, far.shake, far.push, far.pull)
            far.say(head("GET /healthz") * 1000)
            for _ in range(60):
                far.say(head("GET /healthz"))
                far.push()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            await until(lambda: sum(agent.requests.values()) == 1060, far.push, far.pull)
            assert max(agent.requests.values()) <= 2
        finally:
            connection.abort()
            far.close()

    run(body)
