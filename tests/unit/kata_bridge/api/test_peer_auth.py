# SPDX-License-Identifier: Apache-2.0
import pytest

from kata_bridge.api.peer_auth import Allowed, Caller


@pytest.mark.parametrize(
    ("allowed", "is_admitted"),
    [
        (Allowed(frozenset({1000}), None), True),
        (Allowed(frozenset({0}), None), False),
        (Allowed(frozenset({0}), 50), True),
        (Allowed(frozenset({0}), 51), False),
        (Allowed(frozenset({0}), 0), False),
    ],
)
def test_users_and_members_of_the_group_may(allowed: Allowed, is_admitted: bool) -> None:
    assert allowed.admits(Caller(7, 1000, frozenset({1000, 50}))) is is_admitted
