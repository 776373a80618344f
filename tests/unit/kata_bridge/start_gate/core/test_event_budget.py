# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.token_bucket import TokenBucket
from kata_bridge.start_gate.core import event_budget
from kata_bridge.start_gate.core.event_budget import OWN_BURST, OWN_PER_S, Budget

OWN = int(OWN_BURST)


def budget() -> Budget:
    return Budget(TokenBucket(burst=25, per_s=2, tokens=25, at_s=0))


def taken(made: Budget, tenant: str, times: int, now_s: float = 0) -> int:
    return sum(made.take(tenant, now_s) for _ in range(times))


def test_a_tenant_alone_has_the_common_one_and_its_own() -> None:
    made = budget()
    assert taken(made, "a", 100) == 25 + OWN
    assert taken(made, "a", 100, now_s=10) == 20 + 1
    assert taken(made, "a", 100, now_s=1000) == 25 + OWN


def test_a_storm_of_one_leaves_the_others_theirs() -> None:
    made = budget()
    taken(made, "a", 1000)
    assert [taken(made, tenant, 10) for tenant in ("b", "c", "a")] == [OWN, OWN, 0]


@given(st.integers(1, 50))
def test_a_storm_that_never_ends_leaves_the_others_theirs_again_and_again(count: int) -> None:
    made = budget()
    for number in range(count):
        now_s = number / OWN_PER_S
        assert taken(made, "a", 100, now_s) >= 1
        assert made.take("b", now_s)


def test_tenants_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_budget, "MAX_TENANTS", 3)
    made = budget()
    for number in range(100):
        taken(made, f"t{number}", 50)
    assert len(made) == 3
    # The latest are those that are kept.
    assert [taken(made, f"t{number}", 50) for number in (99, 98, 97, 0)] == [0, 0, 0, OWN]
