# SPDX-License-Identifier: Apache-2.0
"""What a tenant may write at once, and how much then."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.core.write_rate import REFILL_S, WriteRate

MIB = 1 << 20
# What has been written before is paid for.
LONG_AGO_S = -REFILL_S


def test_all_that_a_tenant_may_have_goes_out_at_once() -> None:
    rate: WriteRate[str] = WriteRate(128 * MIB, LONG_AGO_S)
    assert rate.per_s == MIB
    assert [rate.reserve_s(f"a-{number}", MIB, 0.0) for number in range(128)] == [0.0] * 128
    assert rate.reserve_s("b", 2 * MIB, 0.0) == 2.0
    assert rate.reserve_s("c", MIB, 0.0) == 3.0
    assert rate.reserve_s("b", 2 * MIB, 1.5) == 0.5
    assert rate.reserve_s("c", MIB, 2.5) == 0.5
    assert rate.reserve_s("b", 2 * MIB, 2.5) == 0.0
    assert rate.reserve_s("b", MIB, 2.5) == 1.5


def test_at_first_it_is_an_eighth() -> None:
    """So much goes out each time that the process is brought down, or another one serves the tenant."""
    rate: WriteRate[str] = WriteRate(128 * MIB, 0.0)
    assert [rate.reserve_s(f"a-{number}", MIB, 0.0) for number in range(16)] == [0.0] * 16
    assert rate.reserve_s("b", MIB, 0.0) == 1.0
    small: WriteRate[str] = WriteRate(2 * MIB, 0.0)
    assert small.reserve_s("a", MIB, 0.0) == 0.0, "one object at least"


def test_a_first_sync_takes_two_minutes_at_most() -> None:
    """The figures of docs/operate.md."""
    rate: WriteRate[int] = WriteRate(128 * MIB, 0.0)
    waits = [rate.reserve_s(number, 4_096, 0.0) for number in range(128 * MIB // 4_096)]
    assert (waits.index(next(filter(None, waits))), waits[-1]) == (4_096, 112.0)


def test_what_is_not_written_costs_nothing() -> None:
    rate: WriteRate[str] = WriteRate(MIB, LONG_AGO_S)
    assert rate.reserve_s("a", 2 * MIB, 0.0) == REFILL_S
    rate.forget("a")
    assert rate.reserve_s("a", MIB, 0.0) == 0.0
    assert rate.reserve_s("a", MIB, 0.0) == REFILL_S
    rate.forget("b")
    assert rate.reserve_s("b", MIB, 0.0) == 2 * REFILL_S


def test_what_was_refused_is_given_back() -> None:
    rate: WriteRate[str] = WriteRate(MIB, LONG_AGO_S)
    assert rate.reserve_s("a", MIB, 0.0) == 0.0
    rate.give_back(MIB)
    assert rate.reserve_s("a", MIB, 0.0) == 0.0
    assert rate.reserve_s("a", MIB, 0.0) == REFILL_S


def test_a_place_is_for_a_size() -> None:
    rate: WriteRate[int] = WriteRate(MIB, LONG_AGO_S)
    assert rate.reserve_s(-1, MIB, 0.0) == 0.0
    assert all(0 < rate.reserve_s(item, 100, 0.0) < 5 for item in range(100))
    waits = [rate.reserve_s(item, MIB, 5.0) for item in range(100)]
    assert waits[0] == pytest.approx(REFILL_S, rel=0.1)
    assert waits[-1] == pytest.approx(100 * REFILL_S, rel=0.1)
    # What has become smaller gives back what it is too much, and comes no earlier.
    assert all(rate.reserve_s(item, 1, 5.0) == waits[item] for item in range(100))
    assert rate.reserve_s(100, 1, 5.0) < 1


def test_what_takes_away_passes_for_a_while() -> None:
    rate: WriteRate[str] = WriteRate(8 * MIB, LONG_AGO_S)
    assert rate.try_take_away("a", 8 * MIB, 0.0)
    assert rate.reserve_s("a", MIB, 0.0) == 16.0
    assert [rate.try_take_away("a", MIB, 0.0) is not None for _ in range(3)] == [True, True, False]
    assert rate.reserve_s("a", MIB, 0.0) == 16.0, "its place was given back, and it has paid for itself"
    assert rate.try_take_away("b", MIB, REFILL_S)


def test_what_was_refused_is_given_back_where_it_was_charged() -> None:
    rate: WriteRate[str] = WriteRate(8 * MIB, LONG_AGO_S)
    charges = [rate.try_now(size_bytes, 0.0) for size_bytes in (8 * MIB, 2 * MIB)]
    assert rate.try_now(MIB, 0.0) is None
    for each in charges:
        assert each is not None
        each.give_back()
    assert rate.reserve_s("a", 8 * MIB, 0.0) == 0.0
    assert rate.reserve_s("b", MIB, 0.0) == 16.0
    assert [rate.try_now(MIB, 0.0) is not None for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("stored_bytes", [0, 1])
def test_a_tenant_that_may_have_nothing_writes_little(stored_bytes: int) -> None:
    rate: WriteRate[str] = WriteRate(stored_bytes, 0.0)
    assert rate.reserve_s("a", MIB, 0.0) == 0.0
    assert rate.reserve_s("a", 1000, 0.0) == pytest.approx(1000 / (MIB / REFILL_S))


def test_another_policy_counts_from_now_on() -> None:
    rate: WriteRate[str] = WriteRate(128 * MIB, LONG_AGO_S)
    rate.set_stored_bytes(2 * MIB)
    assert rate.reserve_s("a", 2 * MIB, 1.0) == 0.0
    assert rate.reserve_s("b", 2 * MIB, 1.0) == REFILL_S


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "take away", "forget"]),
        st.integers(0, 9),
        st.integers(1, 3 * MIB),
        st.floats(0, 300),
    ),
    min_size=1,
    max_size=60,
)


@given(_STEPS)
def test_no_history_exceeds_the_rate_and_no_write_waits_for_ever(
    steps: list[tuple[str, int, int, float]],
) -> None:
    """Whoever asks again when its time has come writes; until any time no more has gone out than may."""
    rate: WriteRate[int] = WriteRate(4 * MIB, 0.0)
    now_s, written, taken, due_s = 0.0, 0, 0, dict[int, tuple[float, int]]()
    for what, item, size_bytes, pause_s in steps:
        now_s += pause_s
        may = 4 * MIB + now_s * rate.per_s + 1
        if what == "forget":
            rate.forget(item)
            due_s.pop(item, None)
        elif what == "take away":
            taken += size_bytes if rate.try_take_away(item, size_bytes, now_s) else 0
            due_s.pop(item, None)
        elif (wait_s := rate.reserve_s(item, size_bytes, now_s)) == 0:
            written += size_bytes
            due_s.pop(item, None)
        else:
            was, _ = due_s.pop(item, (0.0, 0))
            assert now_s + wait_s >= was - 0.001
            due_s[item] = (now_s + wait_s, size_bytes)
        assert written <= may
        assert written + taken <= may * 5 / 4 + 3 * MIB
    waiting = sum(size_bytes for _, size_bytes in due_s.values())
    fresh_s = rate.reserve_s(-1, 1, now_s)
    assert fresh_s <= (waiting + 1) / rate.per_s + 1, "the debt is what waits"
    for item, (due, size_bytes) in sorted(due_s.items(), key=lambda each: each[1]):
        assert rate.reserve_s(item, size_bytes, max(now_s, due) + 0.001) == 0
