# SPDX-License-Identifier: Apache-2.0
import ipaddress

import pytest

from kata_bridge.channels.agent import peer_origin
from kata_bridge.channels.agent.peer_origin import ConnectRateLimiter, PeerOrigin, tcp_origin

OWN = frozenset(map(ipaddress.ip_address, ("10.0.0.1", "2001:db8::1")))


@pytest.mark.parametrize(
    ("peer", "name", "most"),
    [
        ("10.0.0.1", "10.0.0.1", peer_origin.MAX_PER_GUEST),
        ("::ffff:10.0.0.1", "10.0.0.1", peer_origin.MAX_PER_GUEST),
        ("10.0.0.2", "10.0.0.2", peer_origin.MAX_PER_ADDRESS),
        ("2001:db8::1", "2001:db8::1", peer_origin.MAX_PER_GUEST),
        ("2001:db8::2", "2001:db8::/64", peer_origin.MAX_PER_ADDRESS),
        ("2001:db8:0:0:ffff:ffff:ffff:ffff", "2001:db8::/64", peer_origin.MAX_PER_ADDRESS),
        ("2001:db8:0:1::2", "2001:db8:0:1::/64", peer_origin.MAX_PER_ADDRESS),
        ("fe80::1%eth0", "fe80::/64", peer_origin.MAX_PER_ADDRESS),
    ],
)
def test_origin_of_a_tcp_connection(peer: str, name: str, most: int) -> None:
    origin = tcp_origin(peer, OWN.__contains__)
    assert (origin.name, origin.limits[0]) == (name, most)


def test_addresses_of_one_link_share_a_limit() -> None:
    limiter = ConnectRateLimiter()
    peers = (f"2001:db8::{number:x}" for number in range(1, 5_001))
    admitted = sum(limiter.try_acquire(tcp_origin(peer, lambda _: False), 100.0) for peer in peers)
    assert admitted == peer_origin.MAX_CONNECTS_PER_ADDRESS
    assert len(limiter) == 1
    assert limiter.try_acquire(tcp_origin("2001:db8:0:1::1", lambda _: False), 100.0)


def test_unused_rate_refills_up_to_the_limit() -> None:
    limiter, guest = ConnectRateLimiter(), PeerOrigin("hybrid-vsock", "a", "a")
    for _ in range(peer_origin.MAX_CONNECTS_PER_GUEST):
        assert limiter.try_acquire(guest, 100.0)
    assert not limiter.try_acquire(guest, 100.0)
    each_s = peer_origin.CONNECTS_S / peer_origin.MAX_CONNECTS_PER_GUEST
    assert not limiter.try_acquire(guest, 100.0 + each_s * 0.9)
    assert limiter.try_acquire(guest, 100.0 + each_s * 2.5)
    admitted = sum(limiter.try_acquire(guest, 1_000.0) for _ in range(100))
    assert admitted == peer_origin.MAX_CONNECTS_PER_GUEST


def test_limits_of_a_guest_and_of_an_address_are_separate() -> None:
    limiter = ConnectRateLimiter()
    behind, own = tcp_origin("10.0.0.1", lambda _: False), tcp_origin("10.0.0.1", lambda _: True)
    assert limiter.try_acquire(behind, 100.0)
    assert sum(limiter.try_acquire(own, 100.0) for _ in range(100)) == peer_origin.MAX_CONNECTS_PER_GUEST
    rest = sum(limiter.try_acquire(behind, 100.0) for _ in range(2_000))
    assert rest == peer_origin.MAX_CONNECTS_PER_ADDRESS - 1


def test_remembered_origins_are_bounded() -> None:
    limiter = ConnectRateLimiter()
    for number in range(3 * peer_origin.MAX_REMEMBERED):
        assert limiter.try_acquire(tcp_origin(f"2001:db8:{number:x}::1", lambda _: False), 100.0)
        assert len(limiter) <= peer_origin.MAX_REMEMBERED
    limiter.try_acquire(PeerOrigin("tcp", "later"), 100.0 + peer_origin.CONNECTS_S)
    assert len(limiter) == 1, "an origin with a full bucket is dropped"
