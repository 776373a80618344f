# SPDX-License-Identifier: Apache-2.0
import asyncio
from types import SimpleNamespace
from typing import Any

from daemonkit.metrics import Histogram
from syncer.metrics import TENANT_CLASSES
from syncer.work.queue import WorkQueue


def session(key: str, weight: int) -> Any:
    return SimpleNamespace(tenant=SimpleNamespace(key=key, weight=weight))


def test_depths_and_waits_are_those_of_classes() -> None:
    clock = [100.0]
    waited = {each: Histogram((1.0,)) for each in TENANT_CLASSES}
    queue = WorkQueue(lambda: clock[0], lambda: 0.5, waited)
    modest, strong = session("a", 1), session("b", 20)
    for each in (modest, strong):
        queue.attach(each)
    queue.add(modest, ("Pod", "x", "1"))
    queue.add(modest, ("Pod", "x", "2"))
    clock[0] = 103.0
    queue.add(strong, ("Pod", "x", "1"))
    queue.add_after(strong, ("Pod", "x", "2"), 60.0)
    clock[0] = 105.0
    assert queue.oldest_ages_s() == {("default",): 5.0, ("raised",): 0.0, ("high",): 2.0}
    assert {each: count for each, count in queue.totals().items() if count} == {
        ("default", "ready"): 2.0,
        ("high", "ready"): 1.0,
        ("high", "delayed"): 1.0,
    }

    async def take_all() -> None:
        for _ in range(3):
            await queue.get()

    asyncio.run(take_all())
    assert {each: (one.count, one.total) for each, one in waited.items()} == {
        "default": (2, 10.0),
        "raised": (0, 0),
        "high": (1, 2.0),
    }
    assert queue.totals()["default", "inFlight"] == 2.0
