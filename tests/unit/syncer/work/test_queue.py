# SPDX-License-Identifier: Apache-2.0
import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from daemonkit.metrics import Histogram
from daemonkit.tasks import Tasks
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


def test_who_waits_is_resumed_for_an_item_alone() -> None:
    """`done` wakes no worker, unless the item was added again while it was in flight."""
    looks: list[float] = []
    tenant, item = session("a", 1), ("Pod", "x", "1")

    def now() -> float:
        looks.append(0.0)
        return 0.0

    async def count(queue: WorkQueue, change: Callable[[], None]) -> int:
        looks.clear()
        change()
        for _ in range(5):
            await asyncio.sleep(0)
        return len(looks)

    async def work() -> None:
        queue = WorkQueue(now, lambda: 0.5, {each: Histogram((1.0,)) for each in TENANT_CLASSES})
        tasks = Tasks("test")
        queue.attach(tenant)
        queue.add(tenant, item)
        await queue.get()
        waiting = tasks.spawn(queue.get(), "get")
        assert await count(queue, lambda: None) == 1
        assert await count(queue, lambda: queue.done(tenant, item)) == 0
        assert await count(queue, lambda: queue.add(tenant, item)) == 2  # `add` looks at the clock, too
        assert waiting.done()
        waiting = tasks.spawn(queue.get(), "get")
        assert await count(queue, lambda: queue.add(tenant, item)) == 2  # it is in flight
        assert not waiting.done()
        assert await count(queue, lambda: queue.done(tenant, item)) == 1
        assert waiting.done()

    asyncio.run(work())
