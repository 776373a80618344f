# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vnagent.core.limits import Limits, Use, has_room, takes_request


@pytest.mark.parametrize(
    ("held", "limit", "expected"),
    [(0, 1, True), (1, 1, False), (2, 1, False), (0, 0, True), (10**6, 0, True)],
)
def test_room(held: int, limit: int, expected: bool) -> None:
    assert has_room(held, limit) is expected


def rate(per_second: int) -> Limits:
    return Limits(connections=0, tunnels=0, requests_per_second=per_second)


@pytest.mark.parametrize(
    ("per_second", "times_s", "expected"),
    [
        # A burst of one second's worth, then one for each tick of the bucket.
        (2, [100.0, 100.0, 100.0, 100.4, 100.5, 100.5], [True, True, False, False, True, False]),
        (1, [0.0, 0.5, 1.0, 1.0], [True, False, True, False]),
        # What was not used is not kept beyond a second's worth.
        (2, [0.0, 3600.0, 3600.0, 3600.0], [True, True, True, False]),
        # A refusal costs nothing and does not start the wait anew.
        (1, [0.0, 0.4, 0.8, 1.0], [True, False, False, True]),
        # None.
        (0, [0.0] * 5, [True] * 5),
    ],
)
def test_requests(per_second: int, times_s: list[float], expected: list[bool]) -> None:
    use = Use()
    assert [takes_request(use, rate(per_second), now) for now in times_s] == expected


@given(st.integers(1, 50), st.lists(st.floats(0, 2), max_size=100))
def test_never_more_than_a_second_of_burst_on_top_of_the_rate(per_second: int, steps: list[float]) -> None:
    use, now, taken = Use(), 0.0, 0
    for step in steps:
        now += step
        taken += takes_request(use, rate(per_second), now)
        assert taken <= per_second * (now + 1) + 1e-6
        assert 0 <= use.tokens <= per_second
