# SPDX-License-Identifier: Apache-2.0
"""The drain ends connections and tunnels in steps, between which the rest is served."""

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import cast

import pytest

from tests.functional.vnagent.agent_states import new_state
from tests.functional.vnagent.connection_links import DEADLINE_S, connected_link, iterate, run, until
from tests.functional.vnagent.open_ports import AT_ONCE, OpenPort, ended_by_iteration, open_many
from vnagent.downstream.client_connection import ClientConnection
from vnagent.exchange.port import Exchange
from vnagent.state import CHECKED
from vnagent.transport.poller import SocketPoller
from vnagent.transport.tunnel import Tunnel


@pytest.mark.parametrize("factor", [1, 2, 8])
@pytest.mark.parametrize("is_busy", [False, True])
def test_a_drain_ends_what_is_open_in_steps(tmp_path: Path, factor: int, *, is_busy: bool) -> None:
    """Ten thousand streams were closed in one step of 0.5 s, in which /healthz was not answered. `is_busy`:
    requests are in progress, which the end of the drain cuts."""

    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)
        many = open_many(state, factor * AT_ONCE)
        if is_busy:
            for each in many:
                each.exchange = cast(Exchange, each)
        drains: list[asyncio.Task[None]] = []
        counts = await ended_by_iteration(
            state, lambda: drains.append(poller.loop.create_task(state.drain(0.0)))
        )
        assert sum(counts) == len(many)
        assert max(counts) <= AT_ONCE + 1  # the last one begins within the time
        await drains[0]

    run(body)


@pytest.mark.parametrize("factor", [1, 2, 8])
def test_awaited_requests_are_looked_for_in_steps(tmp_path: Path, factor: int) -> None:
    """All connections were looked at in one step, each 10 ms of the drain's first second."""

    class Looked:
        looks = 0

        def __getattr__(self, _name: str) -> bool:
            Looked.looks += 1
            return False

    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)
        state.connections.update(cast(ClientConnection, Looked()) for _ in range(factor * CHECKED))
        found = poller.loop.create_task(state.has_awaited_requests())
        looks = [0]
        while not found.done():
            await asyncio.sleep(0)  # pace: iterations are counted
            looks.append(Looked.looks)
        assert looks[-1] == factor * CHECKED
        assert max(now - before for before, now in itertools.pairwise(looks)) <= CHECKED
        assert not await found

    run(body)


def test_an_awaited_request_is_found_behind_many(tmp_path: Path) -> None:
    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)
        open_many(state, 2 * CHECKED)
        awaited = OpenPort(state)
        awaited.is_awaited = True
        state.connections.add(cast(ClientConnection, awaited))
        assert await state.has_awaited_requests()

    run(body)


def test_what_becomes_a_tunnel_in_the_drain_is_not_idle(tmp_path: Path) -> None:
    """Its stream was accepted before its connection's turn to end, which would have cut the stream off."""

    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)

        def become_tunnel() -> None:
            """The one that is left does."""
            if state.connections:
                state.add_tunnel(cast(Tunnel, state.connections.pop()))

        state.connections.update(cast(ClientConnection, OpenPort(state, become_tunnel)) for _ in range(2))
        drain = poller.loop.create_task(state.drain(DEADLINE_S))
        await until(lambda: not state.connections)
        await iterate(3)
        assert len(state.tunnels) == 1
        drain.cancel()

    run(body)


def test_sockets_are_closed_in_steps_at_the_end() -> None:
    """What the drain had left was aborted in one step: 0.6 s for twenty thousand sockets."""

    async def body(poller: SocketPoller) -> None:
        count = 2 * AT_ONCE
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(count):
                await stack.enter_async_context(connected_link(poller, is_server=True))
            poller.clock = lambda: (count - len(poller.by_fd)) * 0.001
            closing = poller.loop.create_task(poller.abort_all())
            left = [count]
            while not closing.done():
                await asyncio.sleep(0)  # pace: iterations are counted
                left.append(len(poller.by_fd))
            assert left[-1] == 0
            assert max(before - now for before, now in itertools.pairwise(left)) <= AT_ONCE + 1

    run(body)
