# SPDX-License-Identifier: Apache-2.0
"""One handshake begins in an iteration of the event loop: open connections are served in between."""

import asyncio
import socket
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import cast

import pytest

from daemonkit.admission.handshake_accounts import HandshakeAccounts
from vnagent.downstream.handshakes import Handshakes
from vnagent.metrics import AgentMetrics
from vnagent.state import AgentState

COUNT = 5


@dataclass(slots=True)
class RecordingState:
    """The part of the state that `Handshakes` uses. Records the loop iteration in which each began."""

    iterations: list[int]
    is_draining: bool = False
    metrics: AgentMetrics = field(default_factory=AgentMetrics)
    began: list[int] = field(default_factory=list)

    def context_for(self, _token_tenant: str | None) -> object:
        return True

    def open_client(self, sock: socket.socket, *_: object) -> None:
        self.began.append(len(self.iterations))
        sock.close()


@pytest.mark.asyncio
async def test_one_handshake_begins_per_loop_iteration() -> None:
    iterations: list[int] = []
    recorder = RecordingState(iterations)
    loop = asyncio.get_running_loop()
    state = cast(AgentState, recorder)
    handshakes = Handshakes(loop, state, HandshakeAccounts(), recorder.open_client)
    with ExitStack() as stack:
        stack.callback(handshakes.stop)
        for _ in range(COUNT):
            ours, theirs = (stack.enter_context(each) for each in socket.socketpair())
            theirs.send(b"\x16")
            handshakes.accept(ours, "192.0.2.1")
        handshakes.start()
        end_s = loop.time() + 20
        while len(recorder.began) < COUNT:
            assert loop.time() < end_s, recorder.began
            iterations.append(0)
            await asyncio.sleep(0)  # pace: iterations are counted
    assert sorted(set(recorder.began)) == recorder.began
