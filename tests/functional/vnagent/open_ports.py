# SPDX-License-Identifier: Apache-2.0
"""Fake connections and tunnels: to end one advances the poller's clock by a set time."""

import asyncio
import itertools
from collections.abc import Callable
from typing import cast

from daemonkit.fairness.lease import Lease
from tenancy.identity import Identified
from tenancy.tenant import Role
from vnagent.core.access import Caller
from vnagent.downstream.client_connection import ClientConnection
from vnagent.state import AgentState
from vnagent.transport.poller import ENDING_S
from vnagent.transport.tunnel import Tunnel

# Ends of so many milliseconds fill one iteration.
AT_ONCE = round(ENDING_S * 1000)
# Of a test in which something does not end.
MOST_ITERATIONS = 1_000


class Clock:
    """The processor time, which passes while something ends."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def pass_s(self, took_s: float) -> None:
        self.now_s += took_s


class OpenPort:
    """A connection or tunnel of a tenant's registered client, which counts its end."""

    def __init__(self, state: AgentState, at_end: Callable[[], None] = lambda: None) -> None:
        self.identity = Identified("ten-a", Role.APISERVER, "00", "00", not_after_s=1.0)
        self.caller = Caller("ten-a", Role.APISERVER, "00")
        self.exchange: object = None
        self.is_awaited = False
        self.lease = Lease(lambda: None)
        self._state = state
        self._at_end = at_end

    def abort(self) -> None:
        self._state.connections.discard(cast(ClientConnection, self))
        self._state.tunnels.discard(cast(Tunnel, self))
        self._at_end()

    def close(self) -> None:
        self.abort()


def open_many(state: AgentState, count: int, end_s: float = 0.001) -> list[OpenPort]:
    """Open `count` connections and as many tunnels; to end one takes `end_s`."""
    clock = state.poller.clock = Clock()
    found = [OpenPort(state, lambda: clock.pass_s(end_s)) for _ in range(2 * count)]
    state.connections.update(cast(ClientConnection, each) for each in found[:count])
    state.tunnels.update(cast(Tunnel, each) for each in found[count:])
    for each in found:
        state.watch_expiry(cast(ClientConnection, each))
    return found


def open_count(state: AgentState) -> int:
    return len(state.connections) + len(state.tunnels)


async def ended_by_iteration(state: AgentState, end: Callable[[], None]) -> list[int]:
    """How many ended in each iteration of the loop, until all had, or too many iterations."""
    left = [open_count(state)]
    end()
    left.append(open_count(state))
    while left[-1] and len(left) < MOST_ITERATIONS:
        await asyncio.sleep(0)  # pace: iterations are counted
        left.append(open_count(state))
    return [before - now for before, now in itertools.pairwise(left)]
