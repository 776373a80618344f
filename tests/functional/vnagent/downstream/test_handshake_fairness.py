# SPDX-License-Identifier: Apache-2.0
"""Handshakes that begin on the event loop: how many in an iteration, and of a tenant beside others."""

import asyncio
import socket
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from daemonkit.admission.handshake_accounts import HandshakeAccounts
from tests.functional.vnagent.agent_states import new_state
from vnagent.core.bearer_token import VerifiedToken
from vnagent.downstream.admission import Admission, Admitted
from vnagent.downstream.handshakes import Handshakes
from vnagent.metrics import AgentMetrics
from vnagent.state import AgentState
from vnagent.transport.handler import NO_USAGE
from vnagent.transport.poller import SocketPoller


@dataclass(slots=True)
class RecordingState:
    """The part of the state that `Handshakes` uses. Records the loop iteration in which each began."""

    poller: SocketPoller
    iterations: list[int]
    is_draining: bool = False
    metrics: AgentMetrics = field(default_factory=AgentMetrics)
    began: list[int] = field(default_factory=list)

    def context_for(self, _token_tenant: str | None) -> object:
        return True

    def open_client(self, sock: socket.socket, *_: object) -> None:
        self.began.append(len(self.iterations))
        sock.close()


class RecordingAccounts(HandshakeAccounts):
    """Records whether several tenants had connections at each handshake."""

    def __init__(self) -> None:
        super().__init__()
        self.shared: list[bool] = []

    def try_begin_on_loop(self, client_address: str, now_s: float, *, is_shared: bool = False) -> bool:
        self.shared.append(is_shared)
        return super().try_begin_on_loop(client_address, now_s, is_shared=is_shared)


async def begin(count: int, *tenants: str, own: str = "") -> tuple[RecordingState, RecordingAccounts]:
    """So many clients send their first byte at once, while `tenants` have connections. Their address had a
    connection of the tenant `own`."""
    loop = asyncio.get_running_loop()
    poller, iterations, accounts = SocketPoller(loop), list[int](), RecordingAccounts()
    recorder = RecordingState(poller, iterations)
    handshakes = Handshakes(loop, cast(AgentState, recorder), accounts, recorder.open_client)
    with ExitStack() as stack:
        stack.callback(poller.stop)
        stack.callback(handshakes.stop)
        for tenant in tenants:
            poller.group_of(tenant, NO_USAGE)
        accounts.assign("192.0.2.1", own)
        for _ in range(count):
            ours, theirs = (stack.enter_context(each) for each in socket.socketpair())
            theirs.send(b"\x16")
            handshakes.accept(ours, "192.0.2.1")
        handshakes.start()
        end_s = loop.time() + 20
        while len(recorder.began) < count:
            assert loop.time() < end_s, recorder.began
            iterations.append(0)
            await asyncio.sleep(0)  # pace: iterations are counted
    return recorder, accounts


@pytest.mark.asyncio
async def test_one_handshake_begins_per_loop_iteration() -> None:
    """Open connections are served in between."""
    recorder, _ = await begin(5)
    assert sorted(set(recorder.began)) == recorder.began


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("tenants", "own", "is_shared"),
    [
        ((), "ten-a", False),
        (("ten-a",), "ten-a", False),
        (("ten-b",), "ten-a", True),
        (("ten-a",), "", True),
        (("ten-a", "ten-b"), "ten-a", True),
    ],
)
async def test_handshakes_beside_other_tenants_are_few(
    tenants: tuple[str, ...], own: str, is_shared: bool
) -> None:
    """A tenant alone delays no other: it has the loop as before. So it is for clients of its authority whose
    connections do not count, beside another tenant's."""
    _, accounts = await begin(1, *tenants, own=own)
    assert accounts.shared == [is_shared]


@dataclass(slots=True, eq=False)
class FakeTransport:
    """A connection whose handshake is done, for `Admission`."""

    handshake_bytes: int = 0

    def bind(self, usage: object) -> None:
        """Its bytes are not counted here."""

    def join(self, group: object) -> None:
        """It is not polled."""


@dataclass(slots=True, eq=False)
class FakeConnection:
    transport: FakeTransport
    client_address: str


@pytest.mark.asyncio
async def test_a_counted_connection_is_of_its_tenant(tmp_path: Path) -> None:
    """Handshakes of its address are beside others where another tenant has connections."""
    poller, accounts = SocketPoller(asyncio.get_running_loop()), HandshakeAccounts()
    try:
        admission = Admission(new_state(poller, tmp_path), accounts)
        connection = cast(Admitted, FakeConnection(FakeTransport(), "192.0.2.1"))
        assert admission.admit_token(connection, VerifiedToken("ten-a", "issuer", 0.0))
    finally:
        poller.stop()
    assert accounts.tenant_of("192.0.2.1") == "ten-a"
