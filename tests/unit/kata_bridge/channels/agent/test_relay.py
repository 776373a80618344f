# SPDX-License-Identifier: Apache-2.0
"""Which connections are admitted; the relayed bytes are tested in tests/functional."""

import asyncio
from pathlib import Path

import pytest

from kata_bridge.channels.agent import peer_origin, relay
from kata_bridge.channels.agent.peer_origin import PeerOrigin
from kata_bridge.channels.agent.relay import Relay
from tests.unit.fake_clock import FakeClock

NOWHERE = Path("/nonexistent/agents.sock")


def admitted(subject: Relay, origin: PeerOrigin, times: int) -> int:
    return sum(subject.try_admit(origin) == "" for _ in range(times))


def test_connect_rate_of_an_origin_is_limited() -> None:
    clock = FakeClock()
    subject = Relay(NOWHERE, clock=clock)
    guest, other = PeerOrigin("unix", "pid 1"), PeerOrigin("unix", "pid 2")
    assert admitted(subject, guest, 100) == peer_origin.MAX_CONNECTS_PER_GUEST
    assert admitted(subject, other, 1) == 1
    clock.now += peer_origin.CONNECTS_S + 1
    assert admitted(subject, guest, 1) == 1


def test_shared_address_has_a_higher_limit() -> None:
    subject = Relay(NOWHERE, clock=FakeClock())
    assert admitted(subject, PeerOrigin("tcp", "10.0.0.1"), 2_000) == peer_origin.MAX_CONNECTS_PER_ADDRESS


def test_connection_by_a_closed_socket_is_refused() -> None:
    assert (
        Relay(NOWHERE, clock=FakeClock()).try_admit(PeerOrigin("hybrid-vsock", "sb", "sb"))
        == "its socket is closed"
    )


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.asyncio
async def test_silent_addresses_do_not_keep_guests_out() -> None:
    subject = Relay(NOWHERE, clock=FakeClock())
    attached = subject.opened(Wire(), PeerOrigin("tcp", "10.1.0.1"))
    assert attached is not None
    subject.attached(attached)
    silent = [
        subject.opened(Wire(), PeerOrigin("tcp", f"10.2.0.{number}"))
        for number in range(5)
        for _ in range(peer_origin.MAX_PER_ADDRESS)
    ]
    assert len(subject) == relay.MAX_CONNECTIONS
    guests = [subject.opened(Wire(), PeerOrigin("tcp", f"10.1.0.{number}")) for number in range(2, 102)]
    assert None not in guests
    assert not any(
        wire.is_aborted for guest in guests if guest and isinstance(wire := guest.guest_transport, Wire)
    )
    assert isinstance(attached.guest_transport, Wire)
    assert not attached.guest_transport.is_aborted
    assert silent[0] is not None
    assert isinstance(silent[0].guest_transport, Wire)
    assert silent[0].guest_transport.is_aborted
    assert len(subject) == relay.MAX_CONNECTIONS
    await subject.close()


def test_unknown_peer_has_no_connection() -> None:
    assert Relay(NOWHERE, clock=FakeClock()).connection("unix-abstract:00005") is None
