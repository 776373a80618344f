# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.token_bucket import TokenBucket
from vnagent.core.limits import (
    LimitReason,
    Limits,
    RateVerdict,
    TenantUsage,
    admit_request,
    is_within,
    ready_count,
    retry_after_s,
    whole_seconds,
)
from vnagent.core.replies import TEXTS


@pytest.mark.parametrize(
    ("used", "limit", "expected"),
    [(1, 1, True), (2, 1, False), (3, 1, False), (1, 0, True), (10**6, 0, True)],
)
def test_is_within(used: int, limit: int, expected: bool) -> None:
    assert is_within(used, limit) is expected


def rate(per_second: int) -> Limits:
    return Limits(connections=0, tunnels=0, requests_per_second=per_second)


def test_a_large_head_takes_a_token_for_each_kib() -> None:
    """Otherwise 1000 heads of 190 KB a second would be within the rate, and each costs milliseconds."""
    use = TenantUsage()
    served = [admit_request(use, rate(1000), 10.0, head_bytes=190 << 10) for _ in range(20)]
    assert served.count(RateVerdict.SERVE) == 6
    # It is never too large for the rate, and what follows waits for it: a second at most.
    use = TenantUsage()
    served = [admit_request(use, rate(2), 10.0, head_bytes=190 << 10) for _ in range(2)]
    assert served == [RateVerdict.SERVE, RateVerdict.REFUSE]
    assert admit_request(use, rate(2), 10.4, has_waited=True) is RateVerdict.WAIT
    assert admit_request(use, rate(2), 11.0, has_waited=True) is RateVerdict.SERVE


def test_refused_large_heads_take_as_many_refusals() -> None:
    use = TenantUsage()
    verdicts = [admit_request(use, rate(1000), 10.0, head_bytes=190 << 10) for _ in range(20)]
    assert verdicts.count(RateVerdict.REFUSE) == 1
    assert verdicts.count(RateVerdict.WAIT) == 13
    assert ready_count(use, rate(1000), 10.0) == 0


def test_an_apiservers_head_takes_one_token() -> None:
    use = TenantUsage()
    verdicts = [admit_request(use, rate(1000), 10.0, head_bytes=1023) for _ in range(1000)]
    assert verdicts == [RateVerdict.SERVE] * 1000


@pytest.mark.parametrize(
    ("per_second", "times_s", "expected"),
    [
        # A burst of one second's worth, then one for each tick of the bucket.
        (2, [100.0, 100.0, 100.0, 100.4, 100.5, 100.5], [True, True, False, False, True, False]),
        (1, [0.0, 0.5, 1.0, 1.0], [True, False, True, False]),
        # Unused tokens are kept up to one second's worth.
        (2, [0.0, 3600.0, 3600.0, 3600.0], [True, True, True, False]),
        # A refusal takes nothing from the requests and does not start the wait anew.
        (1, [0.0, 0.4, 0.8, 1.0], [True, False, False, True]),
        # None.
        (0, [0.0] * 5, [True] * 5),
    ],
)
def test_requests(per_second: int, times_s: list[float], expected: list[bool]) -> None:
    use = TenantUsage()
    verdicts = [admit_request(use, rate(per_second), now) for now in times_s]
    assert [verdict is RateVerdict.SERVE for verdict in verdicts] == expected


@given(st.integers(1, 50), st.lists(st.floats(0, 2), max_size=100))
def test_never_more_than_a_second_of_burst_on_top_of_the_rate(per_second: int, steps: list[float]) -> None:
    use, now, taken = TenantUsage(), 0.0, 0
    for step in steps:
        now += step
        taken += admit_request(use, rate(per_second), now) is RateVerdict.SERVE
        assert taken <= per_second * (now + 1) + 1e-6
        assert use.requests is not None
        assert 0 <= use.requests.tokens <= per_second


@pytest.mark.parametrize(
    ("per_second", "at_first", "a_second_later"),
    [
        (10, [10, 100, 2890], [10, 10, 2980]),
        (100, [100, 100, 2800], [100, 10, 2890]),
        (1000, [1000, 100, 1900], [1000, 100, 1900]),
        (2000, [2000, 200, 800], [2000, 200, 800]),
    ],
)
def test_refusals_have_a_rate_of_their_own(
    per_second: int, at_first: list[int], a_second_later: list[int]
) -> None:
    """A tenth of the requests', 10 at least, after a burst of 100. What exceeds both waits unanswered."""
    use = TenantUsage()
    for now_s, expected in ((5.0, at_first), (6.0, a_second_later)):
        verdicts = [admit_request(use, rate(per_second), now_s) for _ in range(3000)]
        assert [
            verdicts.count(verdict) for verdict in (RateVerdict.SERVE, RateVerdict.REFUSE, RateVerdict.WAIT)
        ] == expected


def test_queued_requests_go_first() -> None:
    use = TenantUsage(
        waiting=3, requests=TokenBucket(2.0, 2.0, 2.0, 10.0), refusals=TokenBucket(100.0, 10.0, 1.0, 10.0)
    )
    assert admit_request(use, rate(2), 10.0) is RateVerdict.REFUSE
    assert admit_request(use, rate(2), 10.0) is RateVerdict.WAIT
    assert ready_count(use, rate(2), 10.0) == 2
    served = [admit_request(use, rate(2), 10.0, has_waited=True) for _ in range(3)]
    assert served == [RateVerdict.SERVE, RateVerdict.SERVE, RateVerdict.WAIT]
    assert ready_count(use, rate(2), 10.4) == 0
    assert ready_count(use, rate(0), 10.4) == 3


@pytest.mark.parametrize(
    ("per_second", "taken", "waiting", "expected"),
    [
        # A token comes within a second, behind those of queued requests.
        (1000, 1000, 0, 1),
        (1000, 1000, 3000, 4),
        (1, 1, 0, 1),
        (1, 1, 7, 8),
        (1, 1, 500, 60),
        (0, 0, 0, 1),
    ],
)
def test_retry_after_of_the_request_rate(per_second: int, taken: int, waiting: int, expected: int) -> None:
    use = TenantUsage()
    for _ in range(taken):
        assert admit_request(use, rate(per_second), 10.0) is RateVerdict.SERVE
    use.waiting = waiting
    assert retry_after_s("too-many-requests", use, rate(per_second), 10.0) == expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("too-many-connections", 10),
        ("too-many-tunnels", 10),
        ("too-many-log-follows", 10),
        ("too-much-unread", 10),
        ("too-many-lookups", 1),
        ("too-many-pages", 1),
        # A kubelet's own 429, whose time is not known here.
        ("kubelet-rejected", None),
    ],
)
def test_retry_after_of_other_limits(reason: str, expected: int | None) -> None:
    assert retry_after_s(reason, TenantUsage(), rate(1000), 10.0) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(-1.0, 1), (0.0, 1), (0.2, 1), (1.0, 1), (1.001, 2), (59.5, 60), (1e9, 60)]
)
def test_retry_after_is_a_whole_number_of_seconds(seconds: float, expected: int) -> None:
    assert whole_seconds(seconds) == expected


@pytest.mark.parametrize("reason", list(LimitReason))
def test_each_limit_has_a_sentence_and_a_retry_after(reason: LimitReason) -> None:
    """The sentence ends with what to do."""
    assert retry_after_s(reason, TenantUsage(), rate(1000), 10.0) is not None
    assert any(word in TEXTS[reason] for word in ("try again", "end some"))


@pytest.mark.parametrize("kind", ["connections", "tunnels", "log_follows", "lookups"])
def test_a_tenant_that_holds_something_is_not_idle(kind: str) -> None:
    use = TenantUsage()
    held = getattr(use, kind)
    before, lease, during = use.is_idle, use.lease(held, 1), use.is_idle
    assert lease is not None
    lease.release()
    assert (before, during, use.is_idle) == (True, False, True)


@pytest.mark.parametrize("name", ["handshake_bytes", "unsent_bytes", "waiting"])
def test_a_usage_that_counts_anything_is_not_idle(name: str) -> None:
    """One that is forgotten must leave nothing for other workers to count."""
    use = TenantUsage()
    assert use.is_idle
    setattr(use, name, 1)
    assert not use.is_idle


def test_a_lease_is_given_back_once() -> None:
    """However many ends its request has: two would give back two places, and the tenant have one too many."""
    usage = TenantUsage()
    one, two = usage.lease(usage.tunnels, 2), usage.lease(usage.tunnels, 2)
    assert one is not None
    assert two is not None
    assert usage.lease(usage.tunnels, 2) is None
    for _ in range(3):
        one.release()
    assert usage.tunnels.count == 1
    assert not usage.is_idle
    two.release()
    assert usage.is_idle
