# SPDX-License-Identifier: Apache-2.0
"""What a tenant may write at once, and how much then."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.core.write_rate import REFILL_S, WriteRate

MIB = 1 << 20


def test_all_that_a_tenant_may_have_goes_out_at_once() -> None:
    rate: WriteRate[str] = WriteRate(128 * MIB, 0.0)
    assert rate.per_s == MIB
    assert [rate.reserve_s(f"a-{number}", MIB, 0.0) for number in range(128)] == [0.0] * 128
    assert rate.reserve_s("b", 2 * MIB, 0.0) == 2.0
    assert rate.reserve_s("c", MIB, 0.0) == 3.0
    assert rate.reserve_s("b", 2 * MIB, 1.5) == 0.5
    assert rate.reserve_s("c", MIB, 2.5) == 0.5
    assert rate.reserve_s("b", 2 * MIB, 2.5) == 0.0
    assert rate.reserve_s("b", MIB, 2.5) == 1.5


def test_a_place_that_is_given_up_is_lost() -> None:
    rate: WriteRate[str] = WriteRate(MIB, 0.0)
    assert rate.reserve_s("a", 2 * MIB, 0.0) == REFILL_S
    rate.forget("a")
    assert rate.reserve_s("a", MIB, 0.0) == 2 * REFILL_S


@pytest.mark.parametrize("stored_bytes", [0, 1])
def test_a_tenant_that_may_have_nothing_writes_little(stored_bytes: int) -> None:
    rate: WriteRate[str] = WriteRate(stored_bytes, 0.0)
    assert rate.reserve_s("a", MIB, 0.0) == 0.0
    assert rate.reserve_s("a", 1000, 0.0) == pytest.approx(1000 / (MIB / REFILL_S))


def test_another_policy_counts_from_now_on() -> None:
    rate: WriteRate[str] = WriteRate(128 * MIB, 0.0)
    rate.set_stored_bytes(2 * MIB)
    assert rate.reserve_s("a", 2 * MIB, 1.0) == 0.0
    assert rate.reserve_s("b", 2 * MIB, 1.0) == REFILL_S


_STEPS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 3 * MIB), st.floats(0, 300)), min_size=1, max_size=60
)


@given(_STEPS)
def test_no_history_exceeds_the_rate_and_no_write_waits_for_ever(steps: list[tuple[int, int, float]]) -> None:
    """Whoever asks again when its time has come writes; until any time no more has gone out than may."""
    rate: WriteRate[int] = WriteRate(4 * MIB, 0.0)
    now_s, written, due_s = 0.0, 0, dict[int, tuple[float, int]]()
    for item, size_bytes, pause_s in steps:
        now_s += pause_s
        wait_s = rate.reserve_s(item, size_bytes, now_s)
        if wait_s == 0:
            written += due_s.pop(item, (0.0, size_bytes))[1]
            assert written <= 4 * MIB + now_s * rate.per_s + 1
        else:
            first = due_s.setdefault(item, (now_s + wait_s, size_bytes))
            assert now_s + wait_s == pytest.approx(first[0])
    for item, (due, _) in sorted(due_s.items(), key=lambda each: each[1]):
        assert rate.reserve_s(item, 1, max(now_s, due) + 0.001) == 0
