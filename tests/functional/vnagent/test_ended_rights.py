# SPDX-License-Identifier: Apache-2.0
"""Connections and tunnels whose right has ended: they end in steps, and nothing more is served on them."""

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import cast

import pytest

from tenancy.registry import Registry
from tests.functional.vnagent.agent_states import new_state
from tests.functional.vnagent.connection_links import (
    run,
    until,
)
from tests.functional.vnagent.counting_agent import counted_connection
from tests.functional.vnagent.node import head
from tests.functional.vnagent.open_ports import (
    AT_ONCE,
    Clock,
    OpenPort,
    ended_by_iteration,
    open_count,
    open_many,
)
from vnagent.downstream.client_connection import ClientConnection
from vnagent.state import CHECKED
from vnagent.transport.poller import SocketPoller
from vnagent.transport.tunnel import Tunnel


class LookedAt:
    """A tunnel whose right does not end. It counts how often somebody looks."""

    def __init__(self) -> None:
        self.looks = 0

    @property
    def identity(self) -> object:
        self.looks += 1
        return None


@pytest.mark.parametrize("is_expiry", [False, True])
def test_rights_end_in_steps(tmp_path: Path, *, is_expiry: bool) -> None:
    """A thousand connections and as many tunnels of a removed tenant were closed in one step of 0.2 s."""

    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)
        many = open_many(state, 3 * AT_ONCE)

        def end() -> None:
            for _ in range(2):  # what is about to end is not ended again
                if is_expiry:
                    state.end_expired(2.0)
                else:
                    state.serve_tenants(Registry(), None, ())

        counts = await ended_by_iteration(state, end)
        assert sum(counts) == len(many)
        assert AT_ONCE <= max(counts) <= AT_ONCE + 1  # the last one begins within the time
        assert state.metrics.expired.value == (len(many) if is_expiry else 0)

    run(body)


def test_ten_thousand_connections_end_in_forty_iterations(tmp_path: Path) -> None:
    """By a count of 64 it took 157 of them: 8 s where each takes 50 ms for other tenants."""

    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)
        open_many(state, 5_000, end_s=0.000_04)
        counts = await ended_by_iteration(state, lambda: state.serve_tenants(Registry(), None, ()))
        assert len(counts) <= 40

    run(body)


@pytest.mark.parametrize("factor", [1, 2, 4, 8])
def test_rights_are_looked_at_in_steps(tmp_path: Path, factor: int) -> None:
    """All that was open was looked at in one step, also where nothing ends: 8 ms for 4 000 tunnels, and again
    each second."""

    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)
        state.poller.clock = Clock()
        tunnels = [LookedAt() for _ in range(factor * CHECKED)]
        state.tunnels.update(cast(Tunnel, each) for each in tunnels)
        state.serve_tenants(Registry(), None, ())
        looks = [0]
        while looks[-1] < len(tunnels):
            await asyncio.sleep(0)  # pace: iterations are counted
            looks.append(sum(each.looks for each in tunnels))
        assert max(now - before for before, now in itertools.pairwise(looks)) <= CHECKED
        assert {each.looks for each in tunnels} == {1}

    run(body)


@pytest.mark.parametrize("count", [1, 100, 10_000])
def test_nothing_is_looked_at_before_it_expires(tmp_path: Path, count: int) -> None:
    """All that was open was looked at each second: 4 % of a core for 20 000."""

    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)
        tunnels = [LookedAt() for _ in range(count)]
        for each in tunnels:
            state.add_tunnel(cast(Tunnel, each))
        late = OpenPort(state)
        state.add_tunnel(cast(Tunnel, late))
        before = sum(each.looks for each in tunnels)
        for now_s in (0.5, 1.0, 1.5):
            assert not state.is_ending(cast(ClientConnection, late))
            state.end_expired(now_s)
        assert sum(each.looks for each in tunnels) == before
        await asyncio.sleep(0)
        assert cast(Tunnel, late) not in state.tunnels

    run(body)


def test_an_ended_tunnel_does_not_expire(tmp_path: Path) -> None:
    """It would be kept until its certificate's end."""

    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)
        ends: list[OpenPort] = []
        tunnel = OpenPort(state, lambda: ends.append(tunnel))
        state.add_tunnel(cast(Tunnel, tunnel))
        state.on_tunnel_close(cast(Tunnel, tunnel))
        state.tunnels.add(cast(Tunnel, tunnel))
        state.end_expired(2.0)
        await asyncio.sleep(0)
        assert ends == []

    run(body)


def test_all_are_looked_at_again_after_a_change(tmp_path: Path) -> None:
    """The right of one that was looked at may end while the others are."""

    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)
        state.poller.clock = Clock()
        tunnels = [LookedAt() for _ in range(CHECKED + 1)]
        state.tunnels.update(cast(Tunnel, each) for each in tunnels)
        for _ in range(2):
            state.serve_tenants(Registry(), None, ())
        await until(lambda: all(each.looks == 2 for each in tunnels))
        assert not state.is_ending(cast(ClientConnection, OpenPort(state)))

    run(body)


def test_an_ending_connection_has_no_request_served() -> None:
    async def body(poller: SocketPoller) -> None:
        async with counted_connection(poller) as (agent, connection, far):
            far.write(head("GET /healthz"))
            await until(lambda: sum(agent.requests.values()) == 1, far.push, far.pull)
            agent.has_right_ended = True
            far.write(head("GET /healthz"))
            await until(lambda: not connection.transport.is_open, far.push)
        assert sum(agent.requests.values()) == 1

    run(body)


def test_those_that_are_about_to_end_are_known(tmp_path: Path) -> None:
    """None ends within the reload: 15 ms of ends and 9 ms of a reload were one step."""

    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)
        many = open_many(state, AT_ONCE)
        assert not any(state.is_ending(cast(ClientConnection, each)) for each in many)
        state.serve_tenants(Registry(), None, ())
        left = [*state.connections, *state.tunnels]
        assert len(left) == len(many)
        assert all(state.is_ending(cast(ClientConnection, each)) for each in left)
        await until(lambda: not open_count(state))

    run(body)


def test_what_becomes_a_tunnel_meanwhile_ends_too(tmp_path: Path) -> None:
    """The kubelet accepted the stream between the reload and its connection's turn to end."""

    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)
        open_many(state, AT_ONCE)
        state.serve_tenants(Registry(), None, ())
        late = OpenPort(state)
        state.add_tunnel(cast(Tunnel, late))
        await until(lambda: not open_count(state))

    run(body)


def test_one_end_that_fails_keeps_no_other_open(tmp_path: Path) -> None:
    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)

        def fail() -> None:
            raise LookupError("a handler's")

        failing = OpenPort(state, fail)
        state.connections.add(cast(ClientConnection, failing))
        open_many(state, AT_ONCE)
        errors: list[dict[str, object]] = []
        poller.loop.set_exception_handler(lambda _, context: errors.append(context))
        with contextlib.suppress(LookupError):
            state.serve_tenants(Registry(), None, ())
        await until(lambda: not open_count(state))

    run(body)
