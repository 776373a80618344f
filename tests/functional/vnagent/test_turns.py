# SPDX-License-Identifier: Apache-2.0
"""How much of one connection is served in one turn of the loop."""

import asyncio
import weakref
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from daemonkit.tasks import Tasks
from tenancy.ownership import OwnerIndex
from tenancy.registry import Registry
from tenancy.tenant import Role
from tests.functional.vnagent.far_end import FarEnd, loopback_pair
from tests.functional.vnagent.links import contexts, run, until
from tests.functional.vnagent.node import head
from vnagent.agent import Agent
from vnagent.audit_log import AuditLog
from vnagent.channels import Channels
from vnagent.client import ClientConnection
from vnagent.core.access import AnswerHealth, Caller, Decision
from vnagent.core.limits import Limits, Turn
from vnagent.core.requests import Health, Request
from vnagent.kubelet import KubeletPool
from vnagent.metrics import Metrics
from vnagent.page_service import PageService


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

    def take_turn(self, _caller: Caller, *, has_waited: bool, head_bytes: int) -> Turn:
        assert not has_waited
        assert head_bytes
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


# ---- connections that wait for their tenant's rate


class Waiting:
    """As much of a connection as waits for its turn."""

    def __init__(self) -> None:
        self.caller = Caller("ten-a", Role.APISERVER, "00")
        self.channel = None
        self.has_turn = False

    def stop_waiting(self) -> None:
        self.has_turn = True


def new_agent(channels: Channels, directory: Path) -> Agent:
    """One of whose tenants each may ask once a second, and ten-a has."""
    metrics = Metrics()
    agent = Agent(
        channels=channels,
        kubelet=cast(KubeletPool, None),
        pages=cast(PageService, None),
        limits=Limits(connections=0, tunnels=0, requests_per_second=1),
        metrics=metrics,
        audit_log=AuditLog(channels.loop, directory / "audit", metrics.audit_lost),
        tasks=Tasks("agent"),
    )
    assert agent.take_turn(Waiting().caller, has_waited=False) is Turn.SERVE
    return agent


def waits(agent: Agent) -> Waiting:
    one = Waiting()
    agent.await_turn(cast(ClientConnection, one))
    return one


def ends(agent: Agent, one: Waiting) -> None:
    agent.dismiss(cast(ClientConnection, one), is_counted=False)


def test_a_connection_that_ends_waits_no_longer(tmp_path: Path) -> None:
    """It once stayed in the queue with its request of up to 192 KiB, which counted for no tenant any more:
    clients that asked and left took half a MiB each."""

    async def body(channels: Channels) -> None:
        agent = new_agent(channels, tmp_path)
        one = waits(agent)
        left = weakref.ref(one)
        ends(agent, one)
        del one
        assert left() is None

    run(body)


def test_who_waits_is_served_after_others_have_left_and_their_tenant_was_away(tmp_path: Path) -> None:
    """A tenant that was removed and registered again begins with nobody waiting; what it had in the queue
    before once took the turns of those that came then, for good."""

    async def body(channels: Channels) -> None:
        agent = new_agent(channels, tmp_path)
        ends(agent, waits(agent))
        agent.set_registry(Registry(), ())
        assert agent.take_turn(Waiting().caller, has_waited=False) is Turn.SERVE
        one = waits(agent)
        await until(lambda: one.has_turn)

    run(body)
