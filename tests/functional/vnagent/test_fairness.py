# SPDX-License-Identifier: Apache-2.0
"""The share of one connection, and of one tenant, in an iteration of the loop."""

import asyncio
import contextlib
import errno
import functools
import itertools
import socket
import weakref
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tenancy.registry import Registry
from tenancy.tenant import Role
from tests.functional.vnagent.agent_states import new_state
from tests.functional.vnagent.connection_links import (
    ConnectionLink,
    connected_link,
    contexts,
    descriptors,
    new_link,
    run,
    until,
)
from tests.functional.vnagent.counting_agent import counted_connection
from tests.functional.vnagent.node import head
from vnagent.core.access import Caller
from vnagent.core.limits import RateVerdict, TenantUsage
from vnagent.downstream.client_connection import ClientConnection
from vnagent.request_queue import LOOKED_AT_ONCE, RequestQueue
from vnagent.state import AgentState
from vnagent.transport.handler import NO_USAGE
from vnagent.transport.poll_groups import CALLS, PollGroup
from vnagent.transport.poller import SHARED_EVENTS, TENANT_EVENTS, SocketPoller
from vnagent.transport.tls_connection import TlsConnection
from vnagent.upstream.pool import ResponseHandler, UpstreamAddress, UpstreamPool


def test_a_pipelining_connection_gets_one_request_an_iteration() -> None:
    """However often its data arrives meanwhile; one more if the data itself starts the request."""

    async def body(poller: SocketPoller) -> None:
        async with counted_connection(poller) as (agent, _, far):
            far.write(head("GET /healthz") * 1000)
            for _ in range(60):
                far.write(head("GET /healthz"))
                far.push()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            await until(lambda: sum(agent.requests.values()) == 1060, far.push, far.pull)
            assert max(agent.requests.values()) <= 2
        assert not agent.lease.is_held

    run(body)


# ---- tenants with many connections


async def links_of(
    stack: contextlib.AsyncExitStack, poller: SocketPoller, tenant: str, count: int = 1
) -> list[ConnectionLink]:
    """So many of the tenant's connections behind their handshakes."""
    links = []
    for _ in range(count):
        link = await stack.enter_async_context(connected_link(poller, is_server=True))
        link.transport.join(poller.group_of(tenant, NO_USAGE))
        links.append(link)
    return links


def test_a_tenants_events_per_iteration_are_bounded() -> None:
    """All are ready at once. The rest is served in the next iterations, in order of becoming ready."""

    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            many = await links_of(stack, poller, "ten-a", 3 * TENANT_EVENTS)
            (one,) = await links_of(stack, poller, "ten-b")
            poller.clock = lambda: 0.0  # the bound by time is another one
            for link in (*many, one):
                link.far.write(b"x")
                link.far.push()
            served = [0]
            while served[-1] < len(many):
                await asyncio.sleep(0)  # pace: iterations are counted
                served.append(sum(bool(link.handler.received) for link in many))
                if served[-1]:
                    assert one.handler.received
            assert max(now - before for before, now in itertools.pairwise(served)) == TENANT_EVENTS

    run(body)


def test_handshakes_ending_in_an_iteration_are_bounded() -> None:
    """Each takes 1 ms of the loop, and one source may have 256 of them."""

    async def body(poller: SocketPoller) -> None:
        with contextlib.ExitStack() as stack:
            links = [stack.enter_context(new_link(poller, is_server=True)) for _ in range(20)]
            for link in links:
                link.transport.start()
                link.far.handshake()
                link.far.push()
            for link in links:
                await until(functools.partial(getattr, link.far, "is_handshake_done"), link.far.pull)
            for link in links:
                link.far.push()
            ended = [0]
            while ended[-1] < len(links):
                await asyncio.sleep(0)  # pace: iterations are counted
                ended.append(sum(link.handler.events == ["handshake"] for link in links))
            assert max(now - before for before, now in itertools.pairwise(ended)) == 4

    run(body)


def test_kubelet_reads_do_not_wait_for_unidentified_clients() -> None:
    """All tenants' pages wait for these reads. While 256 clients without a registered certificate sent data
    all the time, a read had one event in 64 loop iterations."""

    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            many = [
                await stack.enter_async_context(connected_link(poller, is_server=True)) for _ in range(40)
            ]
            kubelet = await stack.enter_async_context(connected_link(poller, is_server=False))
            kubelet.transport.join(group_of_a_read(poller))
            for link in (*many, kubelet):
                link.far.write(b"x")
                link.far.push()
            served = 0
            while not served:
                await asyncio.sleep(0)  # pace: iterations are counted
                served = sum(bool(link.handler.received) for link in many)
            assert served <= SHARED_EVENTS
            assert kubelet.handler.received

    run(body)


def group_of_a_read(poller: SocketPoller) -> PollGroup:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = UpstreamAddress("127.0.0.1", listener.getsockname()[1], "far")
        pool = UpstreamPool(poller, address, contexts()[1])
        connection = pool.acquire(cast(ResponseHandler, None), b"", timeout_s=None, is_upgrade=False)
        connection.abort()
        return connection.group


def test_a_tenants_calls_per_iteration_are_bounded() -> None:
    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            (many,) = await links_of(stack, poller, "ten-a")
            (one,) = await links_of(stack, poller, "ten-b")
            poller.clock = lambda: 0.0  # the bound by time is another one
            called: list[int] = []
            for number in range(3 * CALLS):
                many.transport.call_soon(functools.partial(called.append, number))
            one.transport.call_soon(functools.partial(called.append, -1))
            await asyncio.sleep(0)
            assert called == [*range(CALLS), -1]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert called == [*range(CALLS), -1, *range(CALLS, 3 * CALLS)]

    run(body)


def recorded_starts(monkeypatch: pytest.MonkeyPatch) -> list[TlsConnection]:
    """The connections whose start was called, instead of the start."""
    begun: list[TlsConnection] = []

    def start(connection: TlsConnection) -> None:
        begun.append(connection)

    monkeypatch.setattr(TlsConnection, "start", start)
    return begun


def test_a_tenants_dials_per_iteration_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes 0.2 ms. Those of a tenant that opens 500 streams at once ran ahead of all turns."""
    begun = recorded_starts(monkeypatch)

    async def body(poller: SocketPoller) -> None:
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            address = UpstreamAddress("127.0.0.1", listener.getsockname()[1], "far")
            poller.clock = lambda: 0.0  # the bound by time is another one
            pool, group = UpstreamPool(poller, address, contexts()[1]), poller.group_of("ten-a", NO_USAGE)
            for _ in range(3 * CALLS):
                exchange = cast(ResponseHandler, None)
                connection = pool.acquire(exchange, b"", timeout_s=None, is_upgrade=False, group=group)
                stack.callback(connection.abort)
            counts = []
            for _ in range(3):
                await asyncio.sleep(0)  # pace: iterations are counted
                counts.append(len(begun))
            assert counts == [CALLS, 2 * CALLS, 3 * CALLS]

    run(body)


def test_a_neighbours_dial_waits_for_no_other_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    """All waited in one queue, that of vn-agent's own requests."""
    begun = recorded_starts(monkeypatch)

    async def body(poller: SocketPoller) -> None:
        with contextlib.ExitStack() as stack:
            poller.clock = lambda: 0.0  # the bound by time is another one
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            address = UpstreamAddress("127.0.0.1", listener.getsockname()[1], "far")
            pool = UpstreamPool(poller, address, contexts()[1])
            for tenant in ("ten-a",) * 10 * CALLS + ("ten-b",):
                group, exchange = poller.group_of(tenant, NO_USAGE), cast(ResponseHandler, None)
                connection = pool.acquire(exchange, b"", timeout_s=None, is_upgrade=False, group=group)
                stack.callback(connection.abort)
            assert poller.own.is_empty
            await asyncio.sleep(0)
            assert connection.transport in begun
            assert len(begun) == CALLS + 1

    run(body)


def test_resume_without_a_seen_end_schedules_no_call() -> None:
    """Each resume left a call that had nothing to do: with 100 tunnels whose clients read slowly 65 of them
    waited in front of the tenant's next request."""

    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            (link,) = await links_of(stack, poller, "ten-a")
            called: list[int] = []
            for _ in range(2 * CALLS):
                link.transport.pause()
                link.transport.resume()
            link.transport.call_soon(functools.partial(called.append, 1))
            await asyncio.sleep(0)
            assert called == [1]

    run(body)


def test_a_failing_call_ends_its_own_connection_only() -> None:
    async def body(poller: SocketPoller) -> None:
        faults: list[object] = []
        poller.loop.set_exception_handler(lambda _loop, context: faults.append(context["exception"]))
        async with contextlib.AsyncExitStack() as stack:
            links = await links_of(stack, poller, "ten-a", 2)
            called: list[int] = []
            links[0].transport.call_soon(lambda: called[7:8].remove(7))
            links[1].transport.call_soon(lambda: called.append(1))
            await until(links[0].has_ended, *links[0].movers)
            assert called == [1]
            assert [type(each) for each in faults] == [ValueError]
            assert not links[1].has_ended()

    run(body)


def test_calls_continue_after_a_cancelled_one() -> None:
    async def body(poller: SocketPoller) -> None:
        poller.loop.set_exception_handler(lambda _loop, _context: None)
        async with contextlib.AsyncExitStack() as stack:
            (link,) = await links_of(stack, poller, "ten-a")
            called: list[int] = []

            def cancelled() -> None:
                raise asyncio.CancelledError

            link.transport.call_soon(cancelled)
            link.transport.call_soon(functools.partial(called.append, 1))
            await until(lambda: called == [1])

    run(body)


def test_a_tenant_without_connections_keeps_no_descriptor() -> None:
    async def body(poller: SocketPoller) -> None:
        before = descriptors()
        async with contextlib.AsyncExitStack() as stack:
            await links_of(stack, poller, "ten-a")
            assert descriptors() > before
        await until(lambda: descriptors() == before)

    run(body)


def test_a_full_epoll_leaves_a_connection_in_its_group() -> None:
    """max_user_watches (epoll(7)) may be used up."""

    async def body(poller: SocketPoller) -> None:
        def refuse(*_: object) -> None:
            raise OSError(errno.ENOSPC, "no watches left")

        async with connected_link(poller, is_server=True) as link:
            full = SimpleNamespace(epoll=SimpleNamespace(register=refuse), size=0)
            link.transport.join(cast(PollGroup, full))
            assert (link.transport.group, full.size) == (poller.shared, 0)
            link.far.write(b"x")
            await until(lambda: link.handler.received == b"x", link.far.push)

    run(body)


def test_without_a_descriptor_a_tenant_joins_the_shared_group(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(poller: SocketPoller) -> None:
        def refuse() -> None:
            raise OSError(errno.EMFILE, "no descriptor")

        async with contextlib.AsyncExitStack() as stack:
            monkeypatch.setattr("vnagent.transport.poll_groups.select.epoll", refuse)
            (one,) = await links_of(stack, poller, "ten-a")
            assert one.transport.group is poller.shared
            one.far.write(b"x")
            one.far.push()
            await until(lambda: one.handler.received == b"x")

    run(body)


def test_a_returning_tenant_has_its_new_accounts_limit() -> None:
    """Its usage ends with its last connection. The group may still have a connection to the kubelet."""

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=False) as idle:
            idle.transport.join(poller.group_of("ten-a", TenantUsage()))
            usage = TenantUsage()
            assert poller.group_of("ten-a", usage) is idle.transport.group
            assert idle.transport.group.usage is usage

    run(body)


# ---- connections that wait for their tenant's rate


class Queued:
    """The part of a connection that `RequestQueue` uses. Records the order in which it began."""

    transport = None

    def __init__(self, number: int, begun: list[int]) -> None:
        self._number = number
        self._begun = begun

    def stop_waiting(self) -> None:
        self._begun.append(self._number)


class Debtor(Queued):
    """The first of them takes all tokens: the others have to wait again."""

    tokens = 0

    def __init__(self, number: int, begun: list[int], waiting: RequestQueue) -> None:
        super().__init__(number, begun)
        self._waiting = waiting

    def stop_waiting(self) -> None:
        if Debtor.tokens:
            Debtor.tokens -= 1
            super().stop_waiting()
        else:
            self._waiting.add(cast(ClientConnection, self), "ten-a")


def test_a_request_that_waits_again_keeps_its_position(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(poller: SocketPoller) -> None:
        use, begun = TenantUsage(), list[int]()
        waiting = RequestQueue(poller, lambda _: use, lambda _: use.waiting)
        for number in range(10):
            waiting.add(cast(ClientConnection, Debtor(number, begun, waiting)), "ten-a")
        for _ in range(10):
            monkeypatch.setattr(Debtor, "tokens", 1)
            await until(lambda: Debtor.tokens == 0)
        assert begun == list(range(10))
        assert use.waiting == 0

    run(body)


@pytest.mark.parametrize("others", [(), ("ten-b",)])
def test_queued_requests_begin_in_order_and_one_at_once(others: tuple[str, ...]) -> None:
    """Each of them delays other tenants' requests by 0.15 ms."""

    async def body(poller: SocketPoller) -> None:
        use, begun = TenantUsage(), list[int]()
        waiting = RequestQueue(poller, lambda _: use, lambda _: use.waiting)
        for tenant in others:
            poller.group_of(tenant, NO_USAGE).size = 1  # a connection
        for number in range(50):
            waiting.add(cast(ClientConnection, Queued(number, begun)), "ten-a")
        assert use.waiting == 50
        most = 0
        while len(begun) < 50:
            before = len(begun)
            await asyncio.sleep(0)  # pace: iterations are counted
            most = max(most, len(begun) - before)
        assert 0 < most <= 2  # at most two loop iterations between two checks
        assert begun == list(range(50))
        assert use.waiting == 0

    run(body)


@pytest.mark.parametrize("factor", [1, 2, 8])
def test_queues_are_looked_at_in_steps(factor: int) -> None:
    """Those of all tenants above their rates were looked at in one step, each 5 ms."""

    async def body(poller: SocketPoller) -> None:
        use, looks = TenantUsage(), Counter[str]()

        def ready_count(tenant: str) -> int:
            looks[tenant] += 1
            return 0

        waiting = RequestQueue(poller, lambda _: use, ready_count)
        count = factor * LOOKED_AT_ONCE
        for number in range(count):
            waiting.add(cast(ClientConnection, Queued(number, [])), f"ten-{number}")
        seen = [0]
        while len(looks) < count:
            await asyncio.sleep(0)  # pace: iterations are counted
            seen.append(looks.total())
        assert max(now - before for before, now in itertools.pairwise(seen)) == LOOKED_AT_ONCE
        assert set(looks.values()) == {1}

    run(body)


def test_queued_requests_are_charged_to_their_tenant() -> None:
    """They were served between all turns, in a timer: 0.15 ms each that their tenant owed nobody."""

    async def body(poller: SocketPoller) -> None:
        use, begun, now_s = TenantUsage(), list[int](), itertools.count()
        poller.clock = lambda: float(next(now_s))
        waiting = RequestQueue(poller, lambda _: use, lambda _: use.waiting)
        for number in range(3):
            waiting.add(cast(ClientConnection, Queued(number, begun)), "ten-a")
        await until(lambda: begun == [0, 1, 2])
        assert poller.account_of("ten-a").used_ns >= 3e9

    run(body)


class Waiting:
    """The part of a connection that waits in the queue."""

    def __init__(self) -> None:
        self.caller = Caller("ten-a", Role.APISERVER, "00")
        self.transport = None
        self.identity = None
        self.has_turn = False

    def stop_waiting(self) -> None:
        self.has_turn = True


def state_with_rate_used(poller: SocketPoller, directory: Path) -> AgentState:
    """Each tenant has a rate of one request a second, and ten-a has used it."""
    state = new_state(poller, directory, requests_per_second=1)
    assert state.admit_request(Waiting().caller, has_waited=False) is RateVerdict.SERVE
    return state


def queued(state: AgentState) -> Waiting:
    one = Waiting()
    state.queue_request(cast(ClientConnection, one))
    return one


def remove(state: AgentState, one: Waiting) -> None:
    state.remove(cast(ClientConnection, one))


def test_an_ended_connection_leaves_the_queue(tmp_path: Path) -> None:
    """It once stayed in the queue with its request of up to 192 KiB, which counted for no tenant. Clients
    that sent a request and left took half a MiB each."""

    async def body(poller: SocketPoller) -> None:
        state = state_with_rate_used(poller, tmp_path)
        one = queued(state)
        left = weakref.ref(one)
        remove(state, one)
        del one
        assert left() is None

    run(body)


def test_a_queue_survives_its_tenants_removal(tmp_path: Path) -> None:
    """A tenant that was removed and registered again begins with an empty queue. Its old requests once took
    the slots of new ones, forever."""

    async def body(poller: SocketPoller) -> None:
        state = state_with_rate_used(poller, tmp_path)
        remove(state, queued(state))
        state.serve_tenants(Registry(), None, ())
        assert state.admit_request(Waiting().caller, has_waited=False) is RateVerdict.SERVE
        one = queued(state)
        await until(lambda: one.has_turn)

    run(body)
