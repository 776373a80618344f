# SPDX-License-Identifier: Apache-2.0
"""Connections that are silent, or whose handshake has not ended, end in steps."""

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.functional.vnagent.agent_states import ThreadOnlyAccounts, new_handshakes, new_state
from tests.functional.vnagent.connection_links import run
from tests.functional.vnagent.open_ports import AT_ONCE
from tests.functional.vnagent.tls_peer import loopback_pair
from vnagent.downstream import handshakes as connections
from vnagent.downstream.handshakes import ENDED_AT_ONCE, Handshakes
from vnagent.transport.poller import SocketPoller


@asynccontextmanager
async def silent_connections(poller: SocketPoller, directory: Path, count: int) -> AsyncIterator[Handshakes]:
    """So many connections that have sent nothing."""
    state = new_state(poller, directory)
    state.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    handshakes = new_handshakes(state, ThreadOnlyAccounts())
    with ExitStack() as stack:
        for _ in range(count):
            near, far = loopback_pair()
            stack.callback(far.close)
            handshakes.accept(near, "127.0.0.1")
        assert len(handshakes) == count
        yield handshakes
    handshakes.stop()


async def most_in_an_iteration(handshakes: Handshakes) -> int:
    """How many end in an iteration of the loop at most, until all have, or in a hundred iterations."""
    left = [len(handshakes)]
    for _ in range(100):
        await asyncio.sleep(0)  # pace: iterations are counted
        left.append(len(handshakes))
    assert left[-1] == 0
    return max(before - now for before, now in itertools.pairwise(left))


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_silent_connections_end_in_steps(
    tmp_path: Path, factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four thousand of one flood ended in one step of 0.1 s, 9 s later."""
    monkeypatch.setattr(connections, "HANDSHAKE_S", -1.0)

    async def body(poller: SocketPoller) -> None:
        async with silent_connections(poller, tmp_path, factor * ENDED_AT_ONCE) as handshakes:
            # The first step is the start's own.
            poller.loop.call_soon(handshakes.start)
            assert await most_in_an_iteration(handshakes) == ENDED_AT_ONCE

    run(body)


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_a_drain_ends_handshakes_in_steps(tmp_path: Path, factor: int) -> None:
    async def body(poller: SocketPoller) -> None:
        count = factor * AT_ONCE
        async with silent_connections(poller, tmp_path, count) as handshakes:
            handshakes.start()
            poller.clock = lambda: (count - len(handshakes)) * 0.001
            ending = poller.loop.create_task(handshakes.end_all())
            assert await most_in_an_iteration(handshakes) <= AT_ONCE + 1
            await ending

    run(body)
