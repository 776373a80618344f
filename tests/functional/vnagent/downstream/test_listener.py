# SPDX-License-Identifier: Apache-2.0
"""The socket options that a connection inherits from the listening socket, and accepts in one event."""

import asyncio
import contextlib
import itertools
import socket

import pytest

from tests.functional.vnagent.transport.test_keepalive import KEEPALIVE
from tests.waiting import holds_within
from vnagent.downstream.listener import READY_BY_ACCEPT, Listener
from vnagent.transport.event_loop import AgentLoop, watcher_of


async def accepted(taken: list[socket.socket], count: int) -> None:
    assert await asyncio.to_thread(holds_within, lambda: len(taken) == count, 10.0)


@pytest.mark.asyncio
async def test_accepted_sockets_inherit_the_listeners_options() -> None:
    taken: list[socket.socket] = []
    listener = Listener(
        asyncio.get_running_loop(), "127.0.0.1", 0, lambda sock, _host: taken.append(sock), lambda: False
    )
    listener.start()
    try:
        with socket.create_connection(listener.bound):
            await accepted(taken, 1)
            with contextlib.closing(taken[0]) as sock:
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
                assert {option: sock.getsockopt(*option) for option in KEEPALIVE} == KEEPALIVE
                assert not sock.getblocking()
    finally:
        listener.stop()


async def accepts_of_iterations(count: int) -> list[int]:
    """How many of so many waiting connections each iteration has accepted."""
    loop = asyncio.get_running_loop()
    taken: list[socket.socket] = []
    listener = Listener(loop, "127.0.0.1", 0, lambda sock, _host: taken.append(sock), lambda: False)
    with contextlib.ExitStack() as stack:
        stack.callback(listener.stop)
        for _ in range(count):
            stack.enter_context(socket.create_connection(listener.bound))
        listener.start()
        counts = [0]
        end_s = loop.time() + 10
        while counts[-1] < count:
            assert loop.time() < end_s, counts
            await asyncio.sleep(0)  # pace: iterations are counted
            counts.append(len(taken))
        for sock in taken:
            sock.close()
    return [now - before for before, now in itertools.pairwise(counts)]


@pytest.mark.asyncio
async def test_accepts_in_an_iteration_are_few() -> None:
    """60 us each: 16 clients that connected together delayed all other requests by 0.5 ms, twice."""
    assert max(await accepts_of_iterations(16)) == 2


def test_accepts_beside_busy_tenants_are_more() -> None:
    """Their iterations are long: with 2 in each, new connections waited for seconds."""

    async def accepts() -> list[int]:
        watcher = watcher_of(asyncio.get_running_loop())
        with contextlib.ExitStack() as stack:
            for _ in range(3 * READY_BY_ACCEPT):
                near, far = map(stack.enter_context, socket.socketpair())
                far.send(b"x")
                stack.callback(watcher.unwatch, near.fileno())
                watcher.watch(near.fileno(), lambda: None)
            return await accepts_of_iterations(16)

    with asyncio.Runner(loop_factory=AgentLoop) as runner:
        assert max(runner.run(accepts())) == 3
