# SPDX-License-Identifier: Apache-2.0
"""What a tenant owes after a turn that was too long, or after other work, and how the others have it."""

import asyncio
from pathlib import Path

from daemonkit.fairness.turns import HELD_SLICES
from tenancy.registry import Registry
from tests.functional.vnagent.agent_states import new_state
from tests.functional.vnagent.connection_links import run, until
from tests.functional.vnagent.polled_tenants import (
    EVENT_S,
    PolledTenants,
    polled,
    send,
    served_by_iteration,
)
from vnagent.transport.poll_groups import MAX_DEBT_S, TURN_S
from vnagent.transport.poller import SocketPoller

EVENT = EVENT_S / TURN_S
MAX_DEBT = MAX_DEBT_S / TURN_S


async def turns_left(
    tenants: PolledTenants, event: float, *, is_other_busy: bool, has_calls: bool = False
) -> tuple[int, int]:
    """Iterations from the first of two events of ten-a to the second, and turns of ten-b meanwhile.

    Both are ready from the start, and each takes `event` turns. Ten-b has an event in each iteration, or
    none. `has_calls`: ten-a has a call in each iteration, which takes no time.
    """
    slow = await tenants.links("ten-a", 2)
    other = await tenants.link("ten-b")
    if is_other_busy:
        other.far.write(bytes(8 << 20))
        await until(lambda: other.handler.received != b"", other.far.push)
    tenants.each_event(slow, event)
    tenants.each_event([other], 0.99)  # within a turn: it owes nothing
    send(slow)
    event_s = event * TURN_S
    ended_s, iterations = tenants.now_s + event_s, 0
    while not all(link.handler.received for link in slow):
        other.far.push()
        if has_calls:
            slow[0].transport.call_soon(lambda: None)
        await asyncio.sleep(0)  # pace: iterations are counted
        is_one_done = any(link.handler.received for link in slow)
        if not is_one_done:
            ended_s = tenants.now_s + event_s
        iterations += is_one_done
        assert iterations < 10_000
    return iterations, round((tenants.now_s - ended_s - event_s) / TURN_S)


@polled
async def test_a_longer_turn_is_left_to_others(tenants: PolledTenants) -> None:
    _, others = await turns_left(tenants, 10, is_other_busy=True)
    # Nine are owed; ten-b's turn may come first in the first iteration, and in the last one.
    assert 9 <= others <= 11


@polled
async def test_a_tenant_with_calls_owes_what_it_took(tenants: PolledTenants) -> None:
    """A tenant that pipelines or reads a large page. Its calls once made the others look idle."""
    _, others = await turns_left(tenants, 10, is_other_busy=True, has_calls=True)
    assert 9 <= others <= 11


@polled
async def test_what_a_tenant_owes_is_bounded(tenants: PolledTenants) -> None:
    _, others = await turns_left(tenants, 1000 * MAX_DEBT, is_other_busy=True)
    assert MAX_DEBT <= others <= MAX_DEBT + 2


@polled
async def test_a_tenant_owes_nothing_while_nobody_else_works(tenants: PolledTenants) -> None:
    iterations, others = await turns_left(tenants, 1000 * MAX_DEBT, is_other_busy=False)
    # The other one worked just before: an event of it may be on its way.
    assert (iterations <= 3 + HELD_SLICES, others) == (True, 0)


@polled
async def test_who_owes_least_is_next(tenants: PolledTenants) -> None:
    """Both always have an event ready, and all events are longer than a turn: both owe. What the first of
    them owed was forgotten, however much it was: it had 91 % of the time."""
    slow = await tenants.links("ten-a")
    quick = await tenants.links("ten-b", 2)
    tenants.repeat(slow, 20)
    tenants.repeat(quick, 2)
    shares = await tenants.shares()
    assert 0.4 < shares["ten-a"] < 0.6, shares


@polled
async def test_a_group_that_leaves_an_iteration_works(tenants: PolledTenants) -> None:
    """It has two events at once, and leaves an iteration to others behind each. If it did not seem to work
    there, more of what the reader of pages owes would be forgotten: it would have 76 % of the time."""
    reading = await tenants.links("ten-a")
    quick = await tenants.links("ten-b", 2)
    tenants.repeat(reading, 0, lambda: tenants.poller.loop.call_soon(tenants.charge, "ten-a", 5))
    tenants.repeat(quick, EVENT)
    shares = await tenants.shares()
    assert 0.4 < shares["ten-a"] < 0.7, shares


@polled
async def test_a_tenants_turns_are_counted(tenants: PolledTenants) -> None:
    links = await tenants.links("ten-a", 5)
    account = tenants.poller.account_of("ten-a")
    before_ns = account.used_ns
    tenants.each_event(links, 0.25 / TURN_S)
    send(links)
    await served_by_iteration(links)
    assert account.used_ns - before_ns == 5 * 0.25e9


@polled
async def test_what_else_was_done_for_a_tenant_is_left_to_others(tenants: PolledTenants) -> None:
    """vn-agent charged no tenant for pages, nor for decisions that waited for a read of pods: the
    tenant's sockets had as many turns as those of a neighbour that reads no page. Here it had 99 % of
    the time."""
    reading = await tenants.links("ten-a", 2)
    neighbour = await tenants.link("ten-b")

    def read() -> None:
        tenants.poller.loop.call_soon(tenants.charge, "ten-a", 5)
        send(reading)

    tenants.each_event(reading, 0, read)
    tenants.each_event([neighbour], EVENT, lambda: send([neighbour]))
    send([*reading, neighbour])
    assert 0.3 < (await tenants.shares())["ten-a"] < 0.7


@polled
async def test_a_debt_stays_while_a_neighbours_event_is_on_its_way(tenants: PolledTenants) -> None:
    """Each event of the neighbour leads to calls of the loop that send for its next one. What the other owed
    was forgotten in between: it had 92 % of the time."""
    reading = await tenants.link("ten-a")
    neighbour = await tenants.link("ten-b")
    call_soon = tenants.poller.loop.call_soon

    def render() -> None:
        tenants.charge("ten-a", 5)
        send([reading])

    def send_later() -> None:
        call_soon(send, [neighbour])

    tenants.each_event([reading], 0, lambda: call_soon(render))
    tenants.each_event([neighbour], EVENT, lambda: call_soon(send_later))
    send([reading, neighbour])
    assert 0.4 < (await tenants.shares())["ten-a"] < 0.6


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
