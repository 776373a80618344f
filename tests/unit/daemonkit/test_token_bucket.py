# SPDX-License-Identifier: Apache-2.0
"""So many at once, and then so many a second, whatever the pauses."""

from daemonkit.token_bucket import TokenBucket


def test_try_acquire_allows_a_burst_and_then_the_rate() -> None:
    bucket = TokenBucket(burst=3.0, per_s=2.0, tokens=3.0, at_s=10.0)
    assert [bucket.try_acquire(10.0) for _ in range(4)] == [True, True, True, False]
    assert not bucket.try_acquire(10.25)
    assert bucket.try_acquire(10.5)
    assert not bucket.try_acquire(10.5)


def test_a_long_pause_refills_no_more_than_a_burst() -> None:
    bucket = TokenBucket(burst=3.0, per_s=2.0, tokens=0.0, at_s=0.0)
    assert [bucket.try_acquire(1_000.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.try_acquire(1_000.5)


def test_reserve_waits_behind_earlier_reservations() -> None:
    bucket = TokenBucket(burst=2.0, per_s=2.0, tokens=2.0, at_s=0.0)
    assert [bucket.reserve(0.0) for _ in range(4)] == [0.0, 0.0, 0.5, 1.0]
    assert bucket.reserve(1.5) == 0.0
    assert not bucket.try_acquire(1.5)


def test_a_debt_is_waited_for() -> None:
    bucket = TokenBucket(burst=4.0, per_s=2.0, tokens=4.0, at_s=0.0)
    assert bucket.is_full(0.0)
    assert bucket.wait_s(0.0) == 0.0
    bucket.debit(10.0)
    assert not bucket.is_full(0.0)
    assert bucket.wait_s(0.0) == 3.0
    assert bucket.wait_s(2.0) == 1.0
    assert bucket.wait_s(3.0) == 0.0
    assert bucket.is_full(5.0)
