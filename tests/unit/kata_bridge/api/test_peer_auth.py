# SPDX-License-Identifier: Apache-2.0
import pytest

from kata_bridge.api.peer_auth import PeerPolicy, SocketPeer


@pytest.mark.parametrize(
    ("policy", "is_allowed"),
    [
        (PeerPolicy(frozenset({1000}), None), True),
        (PeerPolicy(frozenset({0}), None), False),
        (PeerPolicy(frozenset({0}), 50), True),
        (PeerPolicy(frozenset({0}), 51), False),
        (PeerPolicy(frozenset({0}), 0), False),
    ],
)
def test_listed_users_and_group_members_are_allowed(policy: PeerPolicy, is_allowed: bool) -> None:
    assert policy.is_allowed(SocketPeer(7, 1000, frozenset({1000, 50}))) is is_allowed
