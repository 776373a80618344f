# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.token_bucket import TokenBucket
from kata_bridge.start_gate.core import event_budget
from kata_bridge.start_gate.core.event_budget import TENANT_BURST, TENANT_PER_S, EventBudget

OWN = int(TENANT_BURST)


def new_budget() -> EventBudget:
    return EventBudget(TokenBucket(burst=25, per_s=2, tokens=25, at_s=0))


def acquired(budget: EventBudget, tenant: str, times: int, now_s: float = 0) -> int:
    """How many of so many attempts succeed."""
    return sum(budget.try_acquire(tenant, now_s) for _ in range(times))


def test_a_lone_tenant_has_the_shared_bucket_and_its_own() -> None:
    budget = new_budget()
    assert acquired(budget, "a", 100) == 25 + OWN
    assert acquired(budget, "a", 100, now_s=10) == 20 + 1
    assert acquired(budget, "a", 100, now_s=1000) == 25 + OWN


def test_one_tenants_storm_leaves_the_others_their_own_bucket() -> None:
    budget = new_budget()
    acquired(budget, "a", 1000)
    assert [acquired(budget, tenant, 10) for tenant in ("b", "c", "a")] == [OWN, OWN, 0]


@given(st.integers(1, 50))
def test_an_endless_storm_leaves_the_others_their_rate(count: int) -> None:
    budget = new_budget()
    for number in range(count):
        now_s = number / TENANT_PER_S
        assert acquired(budget, "a", 100, now_s) >= 1
        assert budget.try_acquire("b", now_s)


def test_the_oldest_tenants_are_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_budget, "MAX_TENANTS", 3)
    budget = new_budget()
    for number in range(100):
        acquired(budget, f"t{number}", 50)
    assert len(budget) == 3
    assert [acquired(budget, f"t{number}", 50) for number in (99, 98, 97, 0)] == [0, 0, 0, OWN]
