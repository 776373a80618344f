# SPDX-License-Identifier: Apache-2.0
import pytest

from daemonkit.kube.relist_guard import DistrustedRemoval, Lacking, RelistGuard, is_distrusted, trusted_at

HOLD_S = 60.0
WEB, SHOP = Lacking("Service", "a-web"), Lacking("Service", "a-shop")


@pytest.mark.parametrize(
    ("by_relist", "has_remaining", "is_contradicted", "expected"),
    [
        (True, False, True, True),
        (False, False, True, False),  # an event confirms the deletion
        (True, True, True, False),  # what fails lacks everything
        (True, False, False, False),  # nothing speaks for the removed objects
    ],
)
def test_only_an_empty_contradicted_relist_is_distrusted(
    by_relist: bool, has_remaining: bool, is_contradicted: bool, expected: bool
) -> None:
    removal = {"by_relist": by_relist, "has_remaining": has_remaining}
    assert is_distrusted(**removal, is_contradicted=is_contradicted) is expected


def test_a_daemon_without_witnesses_distrusts_an_empty_relist() -> None:
    assert is_distrusted(by_relist=True, has_remaining=False)


def test_a_removal_is_trusted_after_its_hold_time() -> None:
    guard = RelistGuard(HOLD_S)
    assert not guard.next_at
    guard.distrust(WEB, "a", ("x",), 7.0)
    assert guard.next_at == trusted_at(7.0, HOLD_S) == 67.0
    assert guard.trust_expired(66.9) == ()
    expired = guard.trust_expired(67.0)
    assert expired == (DistrustedRemoval(WEB, "a", frozenset({"x"}), 7.0),)
    assert not guard.removals


def test_another_relist_does_not_restart_the_hold_time() -> None:
    guard = RelistGuard(HOLD_S)
    guard.distrust(WEB, "a", ("x",), 7.0)
    guard.distrust(WEB, "a", ("x", "y"), 30.0)
    assert guard.get(WEB) == DistrustedRemoval(WEB, "a", frozenset({"x", "y"}), 7.0)


def test_a_confirmed_removal_returns_the_names_to_drop() -> None:
    guard = RelistGuard(HOLD_S)
    guard.distrust(WEB, "a", ("x", "y"), 7.0)
    guard.distrust(SHOP, "a", (), 8.0)
    assert guard.trust(WEB) == {"x", "y"}
    assert guard.trust(WEB) == frozenset()
    assert [each.lacking for each in guard.removals] == [SHOP]
    assert guard.next_at == 68.0
