# SPDX-License-Identifier: Apache-2.0
"""The time that a tenant's sockets may take in a turn of the loop, and what happens after a longer one."""

import asyncio
import contextlib
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from daemonkit.fairness.turns import HELD_SLICES
from tenancy.registry import Registry
from tests.functional.vnagent.agent_states import new_state
from tests.functional.vnagent.connection_links import ConnectionLink, connected_link, run, until
from vnagent.transport.handler import NO_USAGE
from vnagent.transport.poller import (
    CALLS,
    MAX_DEBT_S,
    SHARED_EVENTS,
    TENANT_EVENTS,
    TURN_S,
    WORKING_S,
    SocketPoller,
)
from vnagent.transport.tls_connection import SHARED_RECEIVE_BYTES

# Three of them exceed a turn.
EVENT_S = 0.45 * TURN_S
MANY = 3 * TENANT_EVENTS


class WorkClock:
    """A poller's clock from now on. It advances by what handlers take; what was before is long ago."""

    def __init__(self, poller: SocketPoller) -> None:
        self.now_s = poller.clock() + 100.0
        poller.clock = self

    def __call__(self) -> float:
        return self.now_s

    def take(self, link: ConnectionLink, seconds: float) -> None:
        """Each event of the link takes so long."""

        def work() -> None:
            self.now_s += seconds

        link.handler.at_data = work


async def links_of(
    stack: contextlib.AsyncExitStack, poller: SocketPoller, tenant: str | None, count: int = 1
) -> list[ConnectionLink]:
    """So many of the tenant's connections behind their handshakes; None: of clients without a tenant."""
    links = []
    for _ in range(count):
        link = await stack.enter_async_context(connected_link(poller, is_server=True))
        if tenant is not None:
            link.transport.join(poller.group_of(tenant, NO_USAGE))
        links.append(link)
    return links


def send(links: list[ConnectionLink], data: bytes = b"x") -> None:
    for link in links:
        link.far.write(data)
        link.far.push()


async def served_by_iteration(links: list[ConnectionLink]) -> list[int]:
    """How many links had their event, after each iteration until all had."""
    served = [0]
    while served[-1] < len(links):
        await asyncio.sleep(0)  # pace: iterations are counted
        served.append(sum(bool(link.handler.received) for link in links))
    return [now - before for before, now in itertools.pairwise(served)]


def test_a_turn_beside_other_tenants_ends_by_its_time() -> None:
    """Those that it had no time for are next: each of 48 is served in its order."""

    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            many = await links_of(stack, poller, "ten-a", MANY)
            await links_of(stack, poller, "ten-b")
            clock = WorkClock(poller)
            for link in many:
                clock.take(link, EVENT_S)
            send(many)
            counts = await served_by_iteration(many)
            assert (max(counts), sum(counts)) == (3, MANY)

    run(body)


def test_sockets_that_stay_ready_take_turns() -> None:
    """With one poll for a turn, epoll reported them in the same order each time: the last had to wait."""

    async def body(poller: SocketPoller) -> None:
        served = list[int]()

        def work(number: int) -> None:
            served.append(number)
            clock.now_s += EVENT_S

        async with contextlib.AsyncExitStack() as stack:
            busy = await links_of(stack, poller, "ten-a", TENANT_EVENTS)
            await links_of(stack, poller, "ten-b")
            clock = WorkClock(poller)
            for number, link in enumerate(busy):
                link.handler.at_data = functools.partial(work, number)
            for _ in range(16):
                send(busy, b"x" * 1000)  # several receives each
            await until(lambda: len(served) > TENANT_EVENTS)
            assert sorted(served[:TENANT_EVENTS]) == list(range(TENANT_EVENTS))

    run(body)


def test_what_gets_ready_in_a_turn_is_next() -> None:
    """A neighbour's request waits for the rest of one turn. It once waited for another whole one, as epoll
    reports the busy group first, which was ready before. Each turn is one event while both work."""

    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            busy = await links_of(stack, poller, "ten-a", TENANT_EVENTS)
            (neighbour,) = await links_of(stack, poller, "ten-b")
            # Turns of the busy group so far, and as many as there were when the neighbour's event came.
            clock, turns, begun, waited = WorkClock(poller), 0, list[int](), list[int]()

            def work() -> None:
                nonlocal turns
                turns += 1
                clock.now_s += EVENT_S
                if not begun:
                    begun.append(turns)
                    send([neighbour])

            for link in busy:
                link.handler.at_data = work
            neighbour.handler.at_data = lambda: waited.append(turns - begun.pop())
            send(busy)
            await until(lambda: turns == TENANT_EVENTS)
            # The neighbour did not work before the first one.
            assert waited[1:] == [0] * (len(waited) - 1)
            assert len(waited) >= TENANT_EVENTS // 2

    run(body)


def test_turns_are_short_only_while_others_work() -> None:
    """Each turn costs an iteration of the loop."""

    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            many = await links_of(stack, poller, "ten-a", MANY)
            (neighbour,) = await links_of(stack, poller, "ten-b")
            clock = WorkClock(poller)
            for link in many:
                clock.take(link, EVENT_S)
            most = []
            for idle_s in (0.0, 2 * WORKING_S):  # the sum of floats may be less than one
                send([neighbour])
                await until(lambda: neighbour.handler.received != b"")
                clock.now_s += idle_s
                for link in (neighbour, *many):
                    link.handler.received.clear()
                send(many)
                most.append(max(await served_by_iteration(many)))
            assert most == [1, 3]

    run(body)


def test_a_tenant_alone_is_not_bounded_by_time() -> None:
    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            many = await links_of(stack, poller, "ten-a", MANY)
            clock = WorkClock(poller)
            for link in many:
                clock.take(link, 10 * TURN_S)
            send(many)
            assert max(await served_by_iteration(many)) == TENANT_EVENTS

    run(body)


def test_unidentified_clients_are_bounded_by_time_too() -> None:
    """The end of a handshake takes 1 ms: one in a turn as soon as a tenant has a connection."""

    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            unknown = await links_of(stack, poller, None, 3 * SHARED_EVENTS)
            clock = WorkClock(poller)
            for link in unknown:
                clock.take(link, 5 * TURN_S)
            send(unknown[SHARED_EVENTS:])
            assert max(await served_by_iteration(unknown[SHARED_EVENTS:])) == SHARED_EVENTS
            await links_of(stack, poller, "ten-b")
            send(unknown[:SHARED_EVENTS])
            assert max(await served_by_iteration(unknown[:SHARED_EVENTS])) == 1

    run(body)


async def turns_left(
    poller: SocketPoller, event_s: float, *, is_other_busy: bool, has_calls: bool = False
) -> tuple[int, int]:
    """Iterations from the first of two events of ten-a to the second, and turns of ten-b meanwhile.

    Both are ready from the start, and each takes `event_s`. Ten-b has an event in each iteration, or none.
    `has_calls`: ten-a has a call in each iteration, which takes no time.
    """
    async with contextlib.AsyncExitStack() as stack:
        slow = await links_of(stack, poller, "ten-a", 2)
        (other,) = await links_of(stack, poller, "ten-b")
        clock = WorkClock(poller)
        if is_other_busy:
            other.far.write(bytes(8 << 20))
            await until(lambda: other.handler.received != b"", other.far.push)
        for link in slow:
            clock.take(link, event_s)
        clock.take(other, 0.99 * TURN_S)  # within a turn: it owes nothing
        send(slow)
        ended_s, iterations = clock.now_s + event_s, 0
        while not all(link.handler.received for link in slow):
            other.far.push()
            if has_calls:
                slow[0].transport.call_soon(lambda: None)
            await asyncio.sleep(0)  # pace: iterations are counted
            is_one_done = any(link.handler.received for link in slow)
            if not is_one_done:
                ended_s = clock.now_s + event_s
            iterations += is_one_done
            assert iterations < 10_000
        return iterations, round((clock.now_s - ended_s - event_s) / TURN_S)


def test_a_longer_turn_is_left_to_others() -> None:
    async def body(poller: SocketPoller) -> None:
        _, others = await turns_left(poller, 10 * TURN_S, is_other_busy=True)
        # Nine are owed; ten-b's turn may come first in the first iteration, and in the last one.
        assert 9 <= others <= 11

    run(body)


def test_a_tenant_with_calls_owes_what_it_took() -> None:
    """A tenant that pipelines or reads a large page. Its calls once made the others look idle."""

    async def body(poller: SocketPoller) -> None:
        _, others = await turns_left(poller, 10 * TURN_S, is_other_busy=True, has_calls=True)
        assert 9 <= others <= 11

    run(body)


def test_what_a_tenant_owes_is_bounded() -> None:
    async def body(poller: SocketPoller) -> None:
        _, others = await turns_left(poller, 1000 * MAX_DEBT_S, is_other_busy=True)
        most = MAX_DEBT_S / TURN_S
        assert most <= others <= most + 2

    run(body)


def test_a_tenant_owes_nothing_while_nobody_else_works() -> None:
    async def body(poller: SocketPoller) -> None:
        iterations, others = await turns_left(poller, 1000 * MAX_DEBT_S, is_other_busy=False)
        # The other one worked just before: an event of it may be on its way.
        assert (iterations <= 3 + HELD_SLICES, others) == (True, 0)

    run(body)


def test_a_tenants_turns_are_counted() -> None:
    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            links = await links_of(stack, poller, "ten-a", 5)
            account = poller.account_of("ten-a")
            before_ns = account.used_ns
            clock = WorkClock(poller)
            for link in links:
                clock.take(link, 0.25)
            send(links)
            await served_by_iteration(links)
            assert account.used_ns - before_ns == 5 * 0.25e9

    run(body)


def test_receives_are_smaller_beside_other_tenants() -> None:
    """Of a kubelet's output: 128 KiB at once would exceed a turn."""

    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            link = await stack.enter_async_context(connected_link(poller, is_server=False))
            link.transport.join(poller.group_of("ten-a", NO_USAGE))
            sizes = [0]
            link.handler.at_data = lambda: sizes.append(len(link.handler.received))
            link.far.write(bytes(2 << 20))
            await until(lambda: link.has_received(2 << 20), link.far.push)
            assert max(now - before for before, now in itertools.pairwise(sizes)) > SHARED_RECEIVE_BYTES
            await links_of(stack, poller, "ten-b")
            link.handler.received.clear()
            sizes[:] = [0]
            link.far.write(bytes(2 << 20))
            await until(lambda: link.has_received(2 << 20), link.far.push)
            most = max(now - before for before, now in itertools.pairwise(sizes))
            # With the rest of a record that was received before.
            assert most < SHARED_RECEIVE_BYTES + (16 << 10)

    run(body)


def test_calls_pay_what_their_group_owes() -> None:
    """A tenant whose work is calls had three quarters of the time beside one whose work is events."""

    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            (busy,) = await links_of(stack, poller, "ten-a")
            (neighbour,) = await links_of(stack, poller, "ten-b")
            clock, times = WorkClock(poller), {"busy": 0.0, "neighbour": 0.0}

            def call() -> None:
                times["busy"] += 5 * TURN_S
                clock.now_s += 5 * TURN_S
                busy.transport.call_soon(call)

            def work() -> None:
                times["neighbour"] += EVENT_S
                clock.now_s += EVENT_S
                send([neighbour])

            neighbour.handler.at_data = work
            send([neighbour])
            busy.transport.call_soon(call)
            await until(lambda: sum(times.values()) > 1000 * TURN_S)
            assert 0.3 < times["busy"] / sum(times.values()) < 0.6

    run(body)


class _Mixture(NamedTuple):
    """Times in turns. A tenant has a call and an event in each iteration, or no events; its neighbour has an
    event each `1 + gap` iterations. `first` is ready first, and so the first in each iteration."""

    call: float
    event: float | None
    neighbours: float
    gap: int
    first: str


async def _shares(poller: SocketPoller, mixture: _Mixture) -> dict[str, tuple[int, float]]:
    """How often each kind of work was done, and its part of the time."""
    done = dict.fromkeys(("call", "event", "neighbour"), 0)
    took = {"call": mixture.call, "event": mixture.event or 0.0, "neighbour": mixture.neighbours}
    async with contextlib.AsyncExitStack() as stack:
        mixed = await links_of(stack, poller, "ten-a", 3)
        neighbours = await links_of(stack, poller, "ten-b")
        clock, begun_s = WorkClock(poller), 0.0

        def work(kind: str, then: Callable[[], object]) -> None:
            done[kind] += 1
            clock.now_s += took[kind] * TURN_S
            then()

        def send_later(iterations: int) -> None:
            if iterations:
                poller.loop.call_soon(send_later, iterations - 1)
            else:
                send(neighbours)

        def call() -> None:
            work("call", lambda: mixed[0].transport.call_soon(call))

        for link in mixed:
            link.handler.at_data = lambda: work("event", lambda: send(mixed))
        neighbours[0].handler.at_data = lambda: work("neighbour", lambda: send_later(mixture.gap))
        for links in (mixed, neighbours) if mixture.first == "mixed" else (neighbours, mixed):
            if links is neighbours or mixture.event is not None:
                send(links)
        mixed[0].transport.call_soon(call)
        begun_s = clock.now_s
        await until(lambda: clock.now_s - begun_s > 1000 * TURN_S)
        taken = (clock.now_s - begun_s) / TURN_S
        return {kind: (count, count * took[kind] / taken) for kind, count in done.items()}


MIXTURES = itertools.starmap(
    _Mixture,
    itertools.product((0.2, 1.5, 5.0), (None, 0.45, 5.0), (0.45, 5.0), (0, 1, 2), ("mixed", "neighbour")),
)


def test_calls_and_events_of_one_tenant_pay_together() -> None:
    """A turn that was left to others paid, and the calls of the next iteration ran as if nobody else worked:
    with calls of 1 ms and events a tenant had 92 % of the time. And what it may do is for both: of its own
    work none keeps away the rest."""

    async def body(mixture: _Mixture, poller: SocketPoller) -> None:
        shares = await _shares(poller, mixture)
        # Of each call and each turn a part owes nothing, and the neighbour's turns may be shorter.
        assert shares["neighbour"][1] > (0.2 if mixture.event is None else 0.3), (mixture, shares)
        own = shares["call"][0], shares["event"][0]
        assert mixture.event is None or 2 * min(own) >= 0.9 * max(own), (mixture, shares)

    for mixture in MIXTURES:
        run(functools.partial(body, mixture))


def test_calls_of_a_group_alone_wait_for_nothing() -> None:
    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            (busy,) = await links_of(stack, poller, "ten-a")
            await links_of(stack, poller, "ten-b")
            clock, called = WorkClock(poller), list[int]()

            def call(number: int) -> None:
                called.append(number)
                clock.now_s += 5 * TURN_S

            for number in range(10):
                busy.transport.call_soon(functools.partial(call, number))
            for _ in range(
                10 + 1
            ):  # the first is left to others: the neighbour's handshake was the last turn
                await asyncio.sleep(0)  # pace: iterations are counted
            assert called == list(range(10))

    run(body)


def test_what_else_was_done_for_a_tenant_is_left_to_others() -> None:
    """Pages, and decisions behind a read of the pods, were charged to nobody: a tenant's sockets had as many
    turns beside them as those of a neighbour that reads no page. Here it had 99 % of the time."""

    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            reading = await links_of(stack, poller, "ten-a", 2)
            (neighbour,) = await links_of(stack, poller, "ten-b")
            clock, times = WorkClock(poller), {"reading": 0.0, "neighbour": 0.0}

            def render() -> None:
                times["reading"] += 5 * TURN_S
                clock.now_s += 5 * TURN_S
                poller.account_of("ten-a").charge(int(5 * TURN_S * 1e9))

            def read() -> None:
                poller.loop.call_soon(render)
                send(reading)

            def work() -> None:
                times["neighbour"] += EVENT_S
                clock.now_s += EVENT_S
                send([neighbour])

            for link in reading:
                link.handler.at_data = read
            neighbour.handler.at_data = work
            send([*reading, neighbour])
            await until(lambda: sum(times.values()) > 1000 * TURN_S)
            assert 0.3 < times["reading"] / sum(times.values()) < 0.7

    run(body)


def test_a_debt_stays_while_a_neighbours_event_is_on_its_way() -> None:
    """Each event of the neighbour leads to calls of the loop that send for its next one. What the other owed
    was forgotten in between: it had 92 % of the time."""

    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            (reading,) = await links_of(stack, poller, "ten-a")
            (neighbour,) = await links_of(stack, poller, "ten-b")
            clock, times = WorkClock(poller), {"reading": 0.0, "neighbour": 0.0}

            def render() -> None:
                times["reading"] += 5 * TURN_S
                clock.now_s += 5 * TURN_S
                poller.account_of("ten-a").charge(int(5 * TURN_S * 1e9))
                send([reading])

            def work() -> None:
                times["neighbour"] += EVENT_S
                clock.now_s += EVENT_S
                poller.loop.call_soon(ask)

            def ask() -> None:
                poller.loop.call_soon(send, [neighbour])

            def read() -> None:
                poller.loop.call_soon(render)

            reading.handler.at_data = read
            neighbour.handler.at_data = work
            send([reading, neighbour])
            await until(lambda: sum(times.values()) > 1000 * TURN_S)
            assert 0.4 < times["reading"] / sum(times.values()) < 0.6

    run(body)


def test_a_removed_tenants_account_is_closed(tmp_path: Path) -> None:
    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)
        account = state.account_of("ten-a")
        account.charge(5)
        assert state.by_tenant(lambda tenant, _: state.account_of(tenant).used_ns) == {("ten-a",): 5}
        state.serve_tenants(Registry(), None, ())
        assert state.by_tenant(lambda *_: 1) == {}
        assert state.account_of("ten-a") is not account

    run(body)


def test_deadlines_that_pass_together_are_calls_of_their_tenant() -> None:
    """A tenant's connections that stopped within a head ended in one step: 1 024 of them 9 s later."""

    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            links = await links_of(stack, poller, "ten-a", 5 * CALLS)
            still = await links_of(stack, poller, "ten-a")
            clock = WorkClock(poller)
            for link in links:
                clock.take(link, EVENT_S)
                link.transport.deadline = poller.now - 1
            passed = [0]
            while passed[-1] < len(links):
                await asyncio.sleep(0)  # pace: iterations are counted
                passed.append(sum("deadline" in link.handler.events for link in links))
            assert max(now - before for before, now in itertools.pairwise(passed)) == CALLS
            assert still[0].handler.events == ["handshake"]

    run(body)


def test_a_deadline_that_was_moved_meanwhile_has_not_passed() -> None:
    async def body(poller: SocketPoller) -> None:
        async with contextlib.AsyncExitStack() as stack:
            links = await links_of(stack, poller, "ten-a", 2 * CALLS)

            def move() -> None:
                for link in links[CALLS:]:
                    link.transport.deadline = poller.now + 3_600

            for link in links:
                link.transport.deadline = poller.now - 1
            await until(lambda: any("deadline" in link.handler.events for link in links))
            move()
            for _ in range(10):
                await asyncio.sleep(0)  # pace: iterations are counted
            assert [link.handler.events[1:] for link in links] == [["deadline"]] * CALLS + [[]] * CALLS

    run(body)
