# SPDX-License-Identifier: Apache-2.0
"""A failure is tried again for ever, and delays no other VirtualCluster."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tenant_operator.run.queue import ReconcileQueue

pytestmark = pytest.mark.asyncio

ACME, OTHER = ("tenants", "acme"), ("tenants", "other")


def _queue() -> ReconcileQueue:
    """With the longest of all delays that a jitter makes."""
    return ReconcileQueue(asyncio.get_running_loop().time, lambda: 1.0)


async def test_failures_are_tried_again_for_ever() -> None:
    """From one second to five minutes: upstream's manager gave up after three."""
    queue, taken_at = _queue(), []
    queue.add(ACME)
    for _ in range(12):
        assert await queue.take() == ACME
        taken_at.append(asyncio.get_running_loop().time())
        queue.done(ACME, has_failed=True)
    delays = [round(after - before) for before, after in itertools.pairwise(taken_at)]
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


async def test_failing_tenant_delays_no_other() -> None:
    queue = _queue()
    queue.add(ACME)
    await queue.take()
    queue.add(OTHER)
    assert await queue.take() == OTHER
    queue.done(ACME, has_failed=True)


async def test_one_is_reconciled_once_at_a_time() -> None:
    """A change meanwhile has it done once more, however many changes there are."""
    queue = _queue()
    queue.add(ACME)
    await queue.take()
    for _ in range(3):
        queue.add(ACME)
    assert len(queue) == 0
    queue.done(ACME, has_failed=False)
    assert len(queue) == 1
