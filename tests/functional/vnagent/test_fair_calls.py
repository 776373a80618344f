# SPDX-License-Identifier: Apache-2.0
"""Calls of a tenant's connections: how many are made in an iteration of the loop, and who pays for them."""

import asyncio
import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

from tests.functional.vnagent.polled_tenants import EVENT_S, PolledTenants, polled, send
from vnagent.transport.poll_groups import CALLS, TURN_S

EVENT = EVENT_S / TURN_S


@polled
async def test_calls_pay_what_their_group_owes(tenants: PolledTenants) -> None:
    """A tenant whose work is calls had three quarters of the time beside one whose work is events."""
    busy = await tenants.link("ten-a")
    neighbour = await tenants.link("ten-b")

    def call() -> None:
        tenants.work("ten-a", 5)
        busy.transport.call_soon(call)

    tenants.each_event([neighbour], EVENT, lambda: send([neighbour]))
    send([neighbour])
    busy.transport.call_soon(call)
    assert 0.3 < (await tenants.shares())["ten-a"] < 0.6


def test_whose_calls_are_made_works() -> None:
    """What a reader of pages owes is left to a neighbour that pipelines. Its calls are no turns, and so it
    did not seem to work: what the reader owed was forgotten, and it had up to 99 % of the time."""

    async def body(page: float, call: float, tenants: PolledTenants) -> None:
        reading = await tenants.links("ten-a")
        busy = await tenants.link("ten-b")

        def make_call() -> None:
            tenants.work("ten-b", call)
            busy.transport.call_soon(make_call)

        tenants.repeat(reading, 0.3, lambda: tenants.poller.loop.call_soon(tenants.charge, "ten-a", page))
        busy.transport.call_soon(make_call)
        shares = await tenants.shares()
        assert 0.4 < shares["ten-a"] < 0.62, (page, call, shares)

    for page, call in itertools.product((5.0, 20.0), (0.2, 0.45, 0.9, 1.5, 5.0)):
        polled(functools.partial(body, page, call))()


class _Mixture(NamedTuple):
    """Times in turns. A tenant has a call and an event in each iteration, or no events; its neighbour has an
    event each `1 + gap` iterations. `first` is ready first, and so the first in each iteration."""

    call: float
    event: float | None
    neighbours: float
    gap: int
    first: str


async def _shares(tenants: PolledTenants, mixture: _Mixture) -> dict[str, tuple[int, float]]:
    """How often each kind of work was done, and its part of the time."""
    done = dict.fromkeys(("call", "event", "neighbour"), 0)
    took = {"call": mixture.call, "event": mixture.event or 0.0, "neighbour": mixture.neighbours}
    mixed = await tenants.links("ten-a", 3)
    neighbours = await tenants.links("ten-b")

    def work(kind: str, then: Callable[[], object]) -> None:
        done[kind] += 1
        tenants.work(kind, took[kind])
        then()

    def send_later(iterations: int) -> None:
        if iterations:
            tenants.poller.loop.call_soon(send_later, iterations - 1)
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
    shares = await tenants.shares()
    return {kind: (count, shares.get(kind, 0.0)) for kind, count in done.items()}


MIXTURES = itertools.starmap(
    _Mixture,
    itertools.product((0.2, 1.5, 5.0), (None, 0.45, 5.0), (0.45, 5.0), (0, 1, 2), ("mixed", "neighbour")),
)


def test_calls_and_events_of_one_tenant_pay_together() -> None:
    """A turn that a tenant left to others paid its debt, and its calls ran in the next iteration as if it
    were alone: with calls of 1 ms and events a tenant had 92 % of the time. And what it may do is for
    both: of its own work none keeps away the rest."""

    async def body(mixture: _Mixture, tenants: PolledTenants) -> None:
        shares = await _shares(tenants, mixture)
        # Of each call and each turn a part owes nothing, and the neighbour's turns may be shorter.
        assert shares["neighbour"][1] > (0.2 if mixture.event is None else 0.3), (mixture, shares)
        own = shares["call"][0], shares["event"][0]
        assert mixture.event is None or 2 * min(own) >= 0.9 * max(own), (mixture, shares)

    for mixture in MIXTURES:
        polled(functools.partial(body, mixture))()


@polled
async def test_calls_of_a_group_alone_wait_for_nothing(tenants: PolledTenants) -> None:
    busy = await tenants.link("ten-a")
    await tenants.links("ten-b")
    called = list[int]()

    def call(number: int) -> None:
        called.append(number)
        tenants.work("ten-a", 5)

    for number in range(10):
        busy.transport.call_soon(functools.partial(call, number))
    for _ in range(10 + 1):  # the first is left to others: the neighbour's handshake was the last turn
        await asyncio.sleep(0)  # pace: iterations are counted
    assert called == list(range(10))


@polled
async def test_deadlines_that_pass_together_are_calls_of_their_tenant(tenants: PolledTenants) -> None:
    """A tenant's connections that stopped within a head ended in one step: 1 024 of them 9 s later."""
    links = await tenants.links("ten-a", 5 * CALLS)
    still = await tenants.link("ten-a")
    tenants.each_event(links, EVENT)
    for link in links:
        link.transport.deadline = tenants.poller.now - 1
    passed = [0]
    while passed[-1] < len(links):
        await asyncio.sleep(0)  # pace: iterations are counted
        passed.append(sum("deadline" in link.handler.events for link in links))
    assert max(now - before for before, now in itertools.pairwise(passed)) == CALLS
    assert still.handler.events == ["handshake"]


@polled
async def test_a_deadline_that_was_moved_meanwhile_has_not_passed(tenants: PolledTenants) -> None:
    links = await tenants.links("ten-a", 2 * CALLS)
    for link in links:
        link.transport.deadline = tenants.poller.now - 1
    left = links
    while len(left) == len(links):
        await asyncio.sleep(0)  # pace: iterations are counted
        left = [link for link in links if "deadline" not in link.handler.events]
    assert len(left) == CALLS
    for link in left:
        link.transport.deadline = tenants.poller.now + 3_600
    for _ in range(10):
        await asyncio.sleep(0)  # pace: iterations are counted
    assert [link.handler.events for link in left] == [["handshake"]] * CALLS
