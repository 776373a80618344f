# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.ticks import next_tick, next_tick_s


@pytest.mark.parametrize(
    ("now_s", "interval_s", "expected_s"),
    [
        (7.0, 1.0, 8.0),
        (7.3, 1.0, 8.0),
        (7.3, 5.0, 10.0),
        (10.0, 5.0, 15.0),
        # A timer that ran a little early: its tick is not waited for twice.
        (7.9999999, 1.0, 9.0),
        (9.9999999, 5.0, 15.0),
    ],
)
def test_ticks_are_multiples_of_the_interval(now_s: float, interval_s: float, expected_s: float) -> None:
    assert next_tick_s(now_s, interval_s) == expected_s


@pytest.mark.parametrize(
    ("now_s", "behind_s", "expected_s"),
    [(7.3, 0, 10.0), (7.3, 1, 11.0), (7.3, 3, 8.0), (8.0, 3, 13.0), (7.9999999, 3, 13.0), (1.0, 4, 4.0)],
)
def test_some_are_looked_after_behind_others(now_s: float, behind_s: int, expected_s: float) -> None:
    assert next_tick_s(now_s, 5.0, behind_s) == expected_s


@given(st.floats(0.0, 1e7), st.sampled_from([0.25, 1.0, 5.0, 60.0]))
def test_no_wait_is_longer_than_the_interval_or_almost_none(now_s: float, interval_s: float) -> None:
    wait_s = next_tick_s(now_s, interval_s) - now_s
    assert 0.009 * interval_s < wait_s <= 1.0101 * interval_s


@pytest.mark.asyncio
async def test_who_waits_for_ticks_is_resumed_at_the_same_times() -> None:
    loop = asyncio.get_running_loop()
    resumed: list[tuple[str, float]] = []

    async def watch(name: str, begin_s: float, interval_s: float) -> None:
        await asyncio.sleep(begin_s)
        for _ in range(3):
            await next_tick(interval_s)
            resumed.append((name, loop.time()))

    began_s = loop.time()
    await asyncio.gather(watch("a", 0.1, 1.0), watch("b", 0.7, 1.0), watch("c", 0.4, 3.0))
    by_name = {name: [at_s for each, at_s in resumed if each == name] for name in "abc"}
    assert by_name["a"] == by_name["b"]
    assert by_name["a"][-1] - began_s <= 3.1
    assert all(at_s == pytest.approx(round(at_s)) for _, at_s in resumed)
