# SPDX-License-Identifier: Apache-2.0
"""How much of one connection, and of one tenant, is served in one turn of the loop."""

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

from tenancy.ownership import OwnerIndex
from tenancy.registry import Registry
from tenancy.tenant import Role
from tests.functional.vnagent.agents import new_agent
from tests.functional.vnagent.far_end import FarEnd, loopback_pair
from tests.functional.vnagent.links import Link, contexts, descriptors, new_link, run, shaken_link, until
from tests.functional.vnagent.node import head
from vnagent.core.access import AnswerHealth, Caller, Decision
from vnagent.core.limits import Turn, Use
from vnagent.core.requests import Health, Request
from vnagent.downstream.client_connection import ClientConnection
from vnagent.request_queue import WaitingRequests
from vnagent.state import Agent
from vnagent.transport.handler import NO_ACCOUNT
from vnagent.transport.poller import CALLS, SHARED_EVENTS, TENANT_EVENTS, Channels, Group
from vnagent.upstream.kubelet import Exchange, KubeletAddress, KubeletPool


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


# ---- tenants with many connections


async def links_of(
    stack: contextlib.AsyncExitStack, channels: Channels, tenant: str, count: int = 1
) -> list[Link]:
    """So many of the tenant's connections behind their handshakes."""
    links = []
    for _ in range(count):
        link = await stack.enter_async_context(shaken_link(channels, is_server=True))
        link.channel.join(channels.group_of(tenant, NO_ACCOUNT))
        links.append(link)
    return links


def test_in_one_turn_a_tenant_gets_a_few_of_its_events() -> None:
    """All are ready at once. What is left is served in the turns that follow, in order of becoming ready."""

    async def body(channels: Channels) -> None:
        async with contextlib.AsyncExitStack() as stack:
            many = await links_of(stack, channels, "ten-a", 3 * TENANT_EVENTS)
            (one,) = await links_of(stack, channels, "ten-b")
            for link in (*many, one):
                link.far.say(b"x")
                link.far.push()
            served = [0]
            while served[-1] < len(many):
                await asyncio.sleep(0)
                served.append(sum(bool(link.owner.received) for link in many))
                if served[-1]:
                    assert one.owner.received
            assert max(now - before for before, now in itertools.pairwise(served)) == TENANT_EVENTS

    run(body)


def test_in_one_turn_few_handshakes_end() -> None:
    """Each takes 1 ms of the loop, and one source may have 256 of them."""

    async def body(channels: Channels) -> None:
        with contextlib.ExitStack() as stack:
            links = [stack.enter_context(new_link(channels, is_server=True)) for _ in range(20)]
            for link in links:
                link.channel.start()
                link.far.shake()
                link.far.push()
            for link in links:
                await until(functools.partial(getattr, link.far, "is_handshaken"), link.far.pull)
            for link in links:
                link.far.push()
            ended = [0]
            while ended[-1] < len(links):
                await asyncio.sleep(0)
                ended.append(sum(link.owner.events == ["handshake"] for link in links))
            assert max(now - before for before, now in itertools.pairwise(ended)) == 4

    run(body)


def test_reads_of_the_kubelet_do_not_wait_for_connections_without_an_identity() -> None:
    """All tenants' pages wait for these reads. Where 256 clients without a registered certificate always had
    sent something new, a read had one event in 64 turns of the loop."""

    async def body(channels: Channels) -> None:
        async with contextlib.AsyncExitStack() as stack:
            many = [await stack.enter_async_context(shaken_link(channels, is_server=True)) for _ in range(40)]
            kubelet = await stack.enter_async_context(shaken_link(channels, is_server=False))
            kubelet.channel.join(group_of_a_read(channels))
            for link in (*many, kubelet):
                link.far.say(b"x")
                link.far.push()
            served = 0
            while not served:
                await asyncio.sleep(0)
                served = sum(bool(link.owner.received) for link in many)
            assert served <= SHARED_EVENTS
            assert kubelet.owner.received

    run(body)


def group_of_a_read(channels: Channels) -> Group:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = KubeletAddress("127.0.0.1", listener.getsockname()[1], "far")
        pool = KubeletPool(channels, address, contexts()[1])
        connection = pool.acquire(cast(Exchange, None), b"", timeout_s=None, is_upgrade=False)
        connection.abort()
        return connection.group


def test_in_one_turn_a_tenant_gets_a_few_of_its_calls() -> None:
    async def body(channels: Channels) -> None:
        async with contextlib.AsyncExitStack() as stack:
            (many,) = await links_of(stack, channels, "ten-a")
            (one,) = await links_of(stack, channels, "ten-b")
            called: list[int] = []
            for number in range(3 * CALLS):
                many.channel.soon(functools.partial(called.append, number))
            one.channel.soon(functools.partial(called.append, -1))
            await asyncio.sleep(0)
            assert called == [*range(CALLS), -1]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert called == [*range(CALLS), -1, *range(CALLS, 3 * CALLS)]

    run(body)


def test_a_channel_that_resumes_leaves_no_call() -> None:
    """Each resume left a call that had nothing to do: with 100 tunnels whose clients read slowly 65 of them
    waited in front of the tenant's next request."""

    async def body(channels: Channels) -> None:
        async with contextlib.AsyncExitStack() as stack:
            (link,) = await links_of(stack, channels, "ten-a")
            called: list[int] = []
            for _ in range(2 * CALLS):
                link.channel.pause()
                link.channel.resume()
            link.channel.soon(functools.partial(called.append, 1))
            await asyncio.sleep(0)
            assert called == [1]

    run(body)


def test_a_call_that_fails_ends_its_own_channel_alone() -> None:
    async def body(channels: Channels) -> None:
        faults: list[object] = []
        channels.loop.set_exception_handler(lambda _loop, context: faults.append(context["exception"]))
        async with contextlib.AsyncExitStack() as stack:
            links = await links_of(stack, channels, "ten-a", 2)
            called: list[int] = []
            links[0].channel.soon(lambda: called[7:8].remove(7))
            links[1].channel.soon(lambda: called.append(1))
            await until(links[0].has_ended, *links[0].movers)
            assert called == [1]
            assert [type(each) for each in faults] == [ValueError]
            assert not links[1].has_ended()

    run(body)


def test_calls_go_on_after_one_that_is_cancelled() -> None:
    async def body(channels: Channels) -> None:
        channels.loop.set_exception_handler(lambda _loop, _context: None)
        async with contextlib.AsyncExitStack() as stack:
            (link,) = await links_of(stack, channels, "ten-a")
            called: list[int] = []

            def cancelled() -> None:
                raise asyncio.CancelledError

            link.channel.soon(cancelled)
            link.channel.soon(functools.partial(called.append, 1))
            await until(lambda: called == [1])

    run(body)


def test_a_tenant_that_has_left_keeps_no_descriptor() -> None:
    async def body(channels: Channels) -> None:
        before = descriptors()
        async with contextlib.AsyncExitStack() as stack:
            await links_of(stack, channels, "ten-a")
            assert descriptors() > before
        await until(lambda: descriptors() == before)

    run(body)


def test_a_kernel_without_room_leaves_a_connection_where_it_is() -> None:
    """max_user_watches (epoll(7)) may be used up."""

    async def body(channels: Channels) -> None:
        def refuse(*_: object) -> None:
            raise OSError(errno.ENOSPC, "no watches left")

        async with shaken_link(channels, is_server=True) as link:
            full = SimpleNamespace(epoll=SimpleNamespace(register=refuse), size=0)
            link.channel.join(cast(Group, full))
            assert (link.channel.group, full.size) == (channels.shared, 0)
            link.far.say(b"x")
            await until(lambda: link.owner.received == b"x", link.far.push)

    run(body)


def test_without_a_descriptor_a_tenant_is_served_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(channels: Channels) -> None:
        def refuse() -> None:
            raise OSError(errno.EMFILE, "no descriptor")

        async with contextlib.AsyncExitStack() as stack:
            monkeypatch.setattr("vnagent.transport.poller.select.epoll", refuse)
            (one,) = await links_of(stack, channels, "ten-a")
            assert one.channel.group is channels.shared
            one.far.say(b"x")
            one.far.push()
            await until(lambda: one.owner.received == b"x")

    run(body)


def test_a_tenant_that_was_away_has_the_limit_of_its_new_account() -> None:
    """Its account goes when nothing is left of it. The group may still have a connection to the kubelet."""

    async def body(channels: Channels) -> None:
        async with shaken_link(channels, is_server=False) as idle:
            idle.channel.join(channels.group_of("ten-a", Use()))
            account = Use()
            assert channels.group_of("ten-a", account) is idle.channel.group
            assert idle.channel.group.account is account

    run(body)


# ---- connections that wait for their tenant's rate


class Queued:
    """The part of a connection that `WaitingRequests` uses. It records the turn in which it began."""

    channel = None

    def __init__(self, number: int, begun: list[int]) -> None:
        self._number = number
        self._begun = begun

    def stop_waiting(self) -> None:
        self._begun.append(self._number)


class Debtor(Queued):
    """The first of them takes all tokens: the others have to wait again."""

    tokens = 0

    def __init__(self, number: int, begun: list[int], waiting: WaitingRequests) -> None:
        super().__init__(number, begun)
        self._waiting = waiting

    def stop_waiting(self) -> None:
        if Debtor.tokens:
            Debtor.tokens -= 1
            super().stop_waiting()
        else:
            self._waiting.add(cast(ClientConnection, self), "ten-a")


def test_who_has_to_wait_again_keeps_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(channels: Channels) -> None:
        use, begun = Use(), list[int]()
        waiting = WaitingRequests(channels, lambda _: use, lambda _: use.waiting)
        for number in range(10):
            waiting.add(cast(ClientConnection, Debtor(number, begun, waiting)), "ten-a")
        for _ in range(10):
            monkeypatch.setattr(Debtor, "tokens", 1)
            await until(lambda: Debtor.tokens == 0)
        assert begun == list(range(10))
        assert use.waiting == 0

    run(body)


def test_requests_that_waited_begin_few_at_a_time_and_in_order() -> None:
    async def body(channels: Channels) -> None:
        use, begun = Use(), list[int]()
        waiting = WaitingRequests(channels, lambda _: use, lambda _: use.waiting)
        for number in range(50):
            waiting.add(cast(ClientConnection, Queued(number, begun)), "ten-a")
        assert use.waiting == 50
        most = 0
        while len(begun) < 50:
            before = len(begun)
            await asyncio.sleep(0)
            most = max(most, len(begun) - before)
        assert 0 < most <= 8  # two turns of the loop between two looks at it, at most
        assert begun == list(range(50))
        assert use.waiting == 0

    run(body)


class Waiting:
    """As much of a connection as waits for its turn."""

    def __init__(self) -> None:
        self.caller = Caller("ten-a", Role.APISERVER, "00")
        self.channel = None
        self.inline_account: str | None = None
        self.has_turn = False

    def stop_waiting(self) -> None:
        self.has_turn = True


def agent_of_one_request(channels: Channels, directory: Path) -> Agent:
    """One of whose tenants each may ask once a second, and ten-a has."""
    agent = new_agent(channels, directory, requests_per_second=1)
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
        agent = agent_of_one_request(channels, tmp_path)
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
        agent = agent_of_one_request(channels, tmp_path)
        ends(agent, waits(agent))
        agent.set_registry(Registry(), ())
        assert agent.take_turn(Waiting().caller, has_waited=False) is Turn.SERVE
        one = waits(agent)
        await until(lambda: one.has_turn)

    run(body)
