# SPDX-License-Identifier: Apache-2.0
"""How many connections of one origin are taken; the bytes are for tests/functional."""

import asyncio
from pathlib import Path

import pytest

from kata_bridge.channels.agent import peer_origin, relay
from kata_bridge.channels.agent.peer_origin import PeerOrigin
from kata_bridge.channels.agent.relay import Relay

NOWHERE = Path("/nonexistent/agents.sock")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def admitted(made: Relay, origin: PeerOrigin, times: int) -> int:
    return sum(made.admits(origin) == "" for _ in range(times))


def test_who_connects_too_often_is_let_in_again_later() -> None:
    clock = Clock()
    made = Relay(NOWHERE, clock=clock)
    guest, other = PeerOrigin("unix", "pid 1"), PeerOrigin("unix", "pid 2")
    assert admitted(made, guest, 100) == peer_origin.MAX_CONNECTS_PER_GUEST
    assert admitted(made, other, 1) == 1
    clock.now += peer_origin.CONNECTS_S + 1
    assert admitted(made, guest, 1) == 1


def test_behind_an_address_there_may_be_many_guests() -> None:
    made = Relay(NOWHERE, clock=Clock())
    assert admitted(made, PeerOrigin("tcp", "10.0.0.1"), 2_000) == peer_origin.MAX_CONNECTS_PER_ADDRESS


def test_what_comes_through_a_door_that_is_shut_is_not_taken() -> None:
    assert (
        Relay(NOWHERE, clock=Clock()).admits(PeerOrigin("hybrid-vsock", "sb", "sb")) == "its door is closed"
    )


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.asyncio
async def test_a_few_addresses_that_stay_silent_keep_nobody_out() -> None:
    made = Relay(NOWHERE, clock=Clock())
    attached = made.opened(Wire(), PeerOrigin("tcp", "10.1.0.1"))
    assert attached is not None
    made.attached(attached)
    silent = [
        made.opened(Wire(), PeerOrigin("tcp", f"10.2.0.{number}"))
        for number in range(5)
        for _ in range(peer_origin.MAX_PER_ADDRESS)
    ]
    assert len(made) == relay.MAX_CONNECTIONS
    guests = [made.opened(Wire(), PeerOrigin("tcp", f"10.1.0.{number}")) for number in range(2, 102)]
    assert None not in guests
    assert not any(wire.is_aborted for guest in guests if guest and isinstance(wire := guest.outer, Wire))
    assert isinstance(attached.outer, Wire)
    assert not attached.outer.is_aborted
    assert silent[0] is not None
    assert isinstance(silent[0].outer, Wire)
    assert silent[0].outer.is_aborted
    assert len(made) == relay.MAX_CONNECTIONS
    await made.close()


def test_a_call_is_known_by_the_connection_that_it_came_through() -> None:
    assert Relay(NOWHERE, clock=Clock()).connection("unix-abstract:00005") is None
