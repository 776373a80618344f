# SPDX-License-Identifier: Apache-2.0
"""Waits double up to their ceiling, however many failures there are, and spread over its upper half."""

import pytest

from daemonkit.backoff import backoff_s, spread_s


@pytest.mark.parametrize(
    ("failures", "wait_s"), [(1, 0.5), (2, 1.0), (3, 2.0), (6, 16.0), (7, 30.0), (100_000, 30.0)]
)
def test_a_wait_doubles_up_to_its_ceiling(failures: int, wait_s: float) -> None:
    assert backoff_s(failures, first_s=0.5, longest_s=30.0) == wait_s


@pytest.mark.parametrize(("jitter", "wait_s"), [(0.0, 2.0), (0.5, 3.0), (1.0, 4.0)])
def test_waits_are_spread_over_the_upper_half(jitter: float, wait_s: float) -> None:
    assert spread_s(4.0, jitter) == wait_s
