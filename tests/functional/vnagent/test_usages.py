# SPDX-License-Identifier: Apache-2.0
"""Usages of many tenants are exchanged with the other workers in steps."""

import asyncio
import itertools
from pathlib import Path

import pytest

from tests.functional.vnagent.agent_states import new_state
from tests.functional.vnagent.connection_links import run
from vnagent.core.limits import PeerUsage, TenantUsage
from vnagent.state import EXCHANGED, AgentState
from vnagent.transport.poller import SocketPoller


class CountedPeers(PeerUsage):
    def __init__(self) -> None:
        self.exchanges = 0

    def exchange(self, usage: TenantUsage) -> None:
        self.exchanges += 1


def with_usages(state: AgentState, count: int) -> list[CountedPeers]:
    """The state has so many tenants, which have something open."""
    peers = [CountedPeers() for _ in range(count)]
    for number, each in enumerate(peers):
        usage = state.usage_of(f"ten-{number}")
        usage.peers, usage.waiting = each, 1
    return peers


@pytest.mark.parametrize("factor", [1, 2, 8])
def test_usages_are_exchanged_in_steps(tmp_path: Path, factor: int) -> None:
    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)
        peers = with_usages(state, factor * EXCHANGED)
        exchange = poller.loop.create_task(state.exchange_usages())
        done = [0]
        while not exchange.done():
            await asyncio.sleep(0)  # pace: iterations are counted
            done.append(sum(each.exchanges for each in peers))
        assert max(now - before for before, now in itertools.pairwise(done)) == EXCHANGED
        assert {each.exchanges for each in peers} == {1}

    run(body)


def test_a_forgotten_usage_is_not_exchanged_again(tmp_path: Path) -> None:
    """Its row in the table may be another tenant's by then."""

    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)
        peers = with_usages(state, 2 * EXCHANGED)
        exchange = poller.loop.create_task(state.exchange_usages())
        await asyncio.sleep(0)
        for number in range(2 * EXCHANGED):
            state.usage_of(f"ten-{number}").waiting = 0
        state.serve_tenants(state.registry, None, ())  # forgets those that are not registered
        await exchange
        assert {each.exchanges for each in peers} == {1, 2}  # the last one is that of the end
        assert sum(each.exchanges == 2 for each in peers) == EXCHANGED

    run(body)
