# SPDX-License-Identifier: Apache-2.0
"""When a VirtualCluster is reconciled again: after events, deadlines and failures, by a clock of the test."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from daemonkit.kube.resources import Key
from daemonkit.tasks import Tasks
from tenant_operator.run.queue import ReconcileQueue
from tests.unit.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio

ACME: Key = ("tenants", "acme")


class DrivenQueue:
    """The queue with one worker, which takes what is due at `clock.now`."""

    def __init__(self) -> None:
        self.clock = FakeClock(0.0)
        self.queue = ReconcileQueue(self.clock, lambda: 1.0)

    async def taken(self) -> Key | None:
        """What a worker gets now; None if it has to wait."""
        task = Tasks("worker").spawn(self.queue.take(), "take")
        for _ in range(3):
            await asyncio.sleep(0)
        if task.done():
            return task.result()
        task.cancel()
        return None

    async def tries(self, until_s: int, has_failed: bool, event: Callable[[Key], None]) -> list[int]:
        """In which seconds it is reconciled, if `event` comes in each of them, and during each try."""
        found: list[int] = []
        for second in range(until_s):
            self.clock.now = float(second)
            event(ACME)
            while await self.taken() is not None:
                found.append(second)
                event(ACME)
                self.queue.done(ACME, has_failed=has_failed)
                if found.count(second) > 3:
                    return found
        return found


@pytest.mark.parametrize("delay_s", [0.0, 1.0, 7.0])
async def test_own_events_and_deadlines_undo_no_backoff(delay_s: float) -> None:
    driven = DrivenQueue()
    driven.queue.add(ACME)
    assert await driven.taken() == ACME
    driven.queue.add_after(ACME, delay_s)
    driven.queue.done(ACME, has_failed=True)
    tries = await driven.tries(700, True, driven.queue.add_behind_backoff)
    assert tries == [1, 3, 7, 15, 31, 63, 127, 255, 511]


async def test_event_that_may_mend_it_is_tried_at_once() -> None:
    driven = DrivenQueue()
    driven.queue.add(ACME)
    assert await driven.taken() == ACME
    driven.queue.done(ACME, has_failed=True)
    assert await driven.taken() is None
    driven.queue.add(ACME)
    assert await driven.taken() == ACME
    driven.queue.add(ACME)
    driven.queue.done(ACME, has_failed=True)
    assert await driven.taken() == ACME


async def test_own_events_are_followed_while_all_is_well() -> None:
    driven = DrivenQueue()
    assert await driven.tries(2, False, driven.queue.add_behind_backoff) == [0, 0, 0, 0]


@pytest.mark.parametrize("results", list(itertools.product([True, False, None], repeat=4)))
async def test_wait_is_by_failures_in_a_row(results: tuple[bool | None, ...]) -> None:
    """A try that waits for a watch (None) neither fails nor mends."""
    driven, failures = DrivenQueue(), 0
    for has_failed in results:
        driven.queue.add(ACME)
        assert await driven.taken() == ACME
        driven.queue.done(ACME, has_failed=has_failed)
        failures = failures if has_failed is None else failures + 1 if has_failed else 0
        driven.queue.add_behind_backoff(ACME)
        waits = await driven.taken() is None
        assert waits == bool(failures)
        if not waits:
            driven.queue.done(ACME, has_failed=None)
    if results[-1]:
        driven.clock.now += 2.0 ** (failures - 1) - 0.5
        assert await driven.taken() is None
        driven.clock.now += 0.5
        assert await driven.taken() == ACME


async def test_what_is_gone_is_forgotten() -> None:
    driven = DrivenQueue()
    driven.queue.add(ACME)
    assert await driven.taken() == ACME
    driven.queue.done(ACME, has_failed=True)
    driven.queue.forget(ACME)
    driven.clock.now = 1e6
    assert await driven.taken() is None
