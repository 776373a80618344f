# SPDX-License-Identifier: Apache-2.0
import pytest

from syncer.core.retry_backoff import RetryBackoff, RetrySettings

SETTINGS = RetrySettings(first_s=1.0, longest_s=10.0, burst=2.0, per_s=0.5)


def test_each_failure_doubles_the_backoff_of_its_item() -> None:
    retries: RetryBackoff[str] = RetryBackoff(SETTINGS)
    assert [retries.on_failure("a", "one", 0.0, 1.0) for _ in range(6)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert retries.on_failure("a", "two", 0.0, 1.0) == 1.0
    assert retries.on_failure("b", "one", 0.0, 1.0) == 1.0
    assert [retries.failures("a", "one"), retries.failures("a", "two"), retries.failures("c", "one")] == [
        6,
        1,
        0,
    ]
    retries.forget("a", "one")
    retries.forget("a", "one")
    retries.forget("c", "one")
    assert retries.failures("a", "one") == 0
    assert retries.on_failure("a", "one", 0.0, 1.0) == 1.0


def test_a_backoff_is_bounded_after_any_number_of_failures() -> None:
    retries: RetryBackoff[str] = RetryBackoff(SETTINGS)
    assert {retries.on_failure("a", "one", 0.0, 1.0) for _ in range(5_000)} == {1.0, 2.0, 4.0, 8.0, 10.0}


@pytest.mark.parametrize(("jitter", "expected"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_jitter_draws_from_the_upper_half(jitter: float, expected: float) -> None:
    retries: RetryBackoff[str] = RetryBackoff(SETTINGS)
    assert retries.on_failure("a", "one", 0.0, jitter) == expected


def test_each_tenant_has_a_rate_of_its_own() -> None:
    retries: RetryBackoff[str] = RetryBackoff(SETTINGS)
    assert [retries.reserve_s("a", 0.0) for _ in range(5)] == [0.0, 0.0, 2.0, 4.0, 6.0]
    assert retries.reserve_s("b", 0.0) == 0.0
    assert retries.reserve_s("a", 10.0) == 0.0, "what was reserved is paid"
    retries.remove_tenant("a")
    retries.remove_tenant("a")
    assert [retries.reserve_s("a", 10.0) for _ in range(3)] == [0.0, 0.0, 2.0]


def test_tenants_at_rest_are_forgotten() -> None:
    retries: RetryBackoff[str] = RetryBackoff(SETTINGS)
    retries.on_failure("failing", "one", 0.0, 1.0)
    for number in range(1_000):
        now_s = 10.0 * number
        retries.on_failure(f"t{number}", "one", now_s, 1.0)
        retries.reserve_s(f"t{number}", now_s)
        retries.forget(f"t{number}", "one")
    assert len(retries) <= 65
    assert retries.failures("failing", "one") == 1


def test_a_tenant_in_debt_is_not_forgotten() -> None:
    retries: RetryBackoff[str] = RetryBackoff(SETTINGS)
    for _ in range(10):
        retries.reserve_s("debtor", 0.0)
    for number in range(1_000):
        retries.reserve_s(f"t{number}", 0.0)
    assert retries.reserve_s("debtor", 0.0) == 18.0
