# SPDX-License-Identifier: Apache-2.0
"""The time that a tenant's sockets may take in a turn of the loop, and whose event is next."""

import functools
import itertools

from tests.functional.vnagent.connection_links import until
from tests.functional.vnagent.polled_tenants import (
    EVENT_S,
    MANY,
    PolledTenants,
    polled,
    send,
    served_by_iteration,
)
from vnagent.transport.poll_groups import TURN_S, WORKING_S
from vnagent.transport.poller import SHARED_EVENTS, TENANT_EVENTS
from vnagent.transport.tls_connection import SHARED_RECEIVE_BYTES

EVENT = EVENT_S / TURN_S


@polled
async def test_a_turn_beside_other_tenants_ends_by_its_time(tenants: PolledTenants) -> None:
    """Those that it had no time for are next: each of 48 is served in its order."""
    many = await tenants.links("ten-a", MANY)
    await tenants.links("ten-b")
    tenants.each_event(many, EVENT)
    send(many)
    counts = await served_by_iteration(many)
    assert (max(counts), sum(counts)) == (3, MANY)


@polled
async def test_sockets_that_stay_ready_take_turns(tenants: PolledTenants) -> None:
    """With one poll for a turn, epoll reported them in the same order each time: the last had to wait."""
    served = list[int]()
    busy = await tenants.links("ten-a", TENANT_EVENTS)
    await tenants.links("ten-b")
    for number, link in enumerate(busy):
        tenants.each_event([link], EVENT, functools.partial(served.append, number))
    for _ in range(16):
        send(busy, b"x" * 1000)  # several receives each
    await until(lambda: len(served) > TENANT_EVENTS)
    assert sorted(served[:TENANT_EVENTS]) == list(range(TENANT_EVENTS))


@polled
async def test_what_gets_ready_in_a_turn_is_next(tenants: PolledTenants) -> None:
    """A neighbour's request waits for the rest of one turn. It once waited for another whole one, as epoll
    reports the busy group first, which was ready before. Each turn is one event while both work."""
    busy = await tenants.links("ten-a", TENANT_EVENTS)
    neighbour = await tenants.link("ten-b")
    # Turns of the busy group so far, and as many as there were when the neighbour's event came.
    turns, begun, waited = 0, list[int](), list[int]()

    def count() -> None:
        nonlocal turns
        turns += 1
        if not begun:
            begun.append(turns)
            send([neighbour])

    tenants.each_event(busy, EVENT, count)
    neighbour.handler.at_data = lambda: waited.append(turns - begun.pop())
    send(busy)
    await until(lambda: turns == TENANT_EVENTS)
    # The neighbour did not work before the first one.
    assert waited[1:] == [0] * (len(waited) - 1)
    assert len(waited) >= TENANT_EVENTS // 2


@polled
async def test_turns_are_short_only_while_others_work(tenants: PolledTenants) -> None:
    """Each turn costs an iteration of the loop."""
    many = await tenants.links("ten-a", MANY)
    neighbour = await tenants.link("ten-b")
    tenants.each_event(many, EVENT)
    most = []
    for idle_s in (0.0, 2 * WORKING_S):  # the sum of floats may be less than one
        send([neighbour])
        await until(lambda: neighbour.handler.received != b"")
        tenants.now_s += idle_s
        for link in (neighbour, *many):
            link.handler.received.clear()
        send(many)
        most.append(max(await served_by_iteration(many)))
    assert most == [1, 3]


@polled
async def test_a_tenant_alone_is_not_bounded_by_time(tenants: PolledTenants) -> None:
    many = await tenants.links("ten-a", MANY)
    tenants.each_event(many, 10)
    send(many)
    assert max(await served_by_iteration(many)) == TENANT_EVENTS


@polled
async def test_unidentified_clients_are_bounded_by_time_too(tenants: PolledTenants) -> None:
    """The end of a handshake takes 1 ms: one in a turn as soon as a tenant has a connection."""
    unknown = await tenants.links(None, 3 * SHARED_EVENTS)
    tenants.each_event(unknown, 5)
    send(unknown[SHARED_EVENTS:])
    assert max(await served_by_iteration(unknown[SHARED_EVENTS:])) == SHARED_EVENTS
    await tenants.links("ten-b")
    send(unknown[:SHARED_EVENTS])
    assert max(await served_by_iteration(unknown[:SHARED_EVENTS])) == 1


@polled
async def test_receives_are_smaller_beside_other_tenants(tenants: PolledTenants) -> None:
    """Of a kubelet's output: 128 KiB at once would exceed a turn."""
    link = await tenants.link("ten-a", is_server=False)
    sizes = [0]
    link.handler.at_data = lambda: sizes.append(len(link.handler.received))
    link.far.write(bytes(2 << 20))
    await until(lambda: link.has_received(2 << 20), link.far.push)
    assert max(now - before for before, now in itertools.pairwise(sizes)) > SHARED_RECEIVE_BYTES
    await tenants.links("ten-b")
    link.handler.received.clear()
    sizes[:] = [0]
    link.far.write(bytes(2 << 20))
    await until(lambda: link.has_received(2 << 20), link.far.push)
    most = max(now - before for before, now in itertools.pairwise(sizes))
    # With the rest of a record that was received before.
    assert most < SHARED_RECEIVE_BYTES + (16 << 10)
