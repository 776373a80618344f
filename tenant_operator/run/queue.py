# SPDX-License-Identifier: Apache-2.0
"""Which VirtualCluster is reconciled when: at once after a change, later when a deadline is due or a step
failed.

One at a time of each, several at once of all. A change while one is reconciled has it done once more.

After a failure only what may mend it comes before the next try: the operator's own writes, and what it learns
itself, would otherwise have a failing step tried as fast as the API server answers.
"""

import asyncio
import heapq
from collections.abc import Callable

from daemonkit.backoff import backoff_s, spread_s
from daemonkit.kube.resources import Key

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 300.0


class ReconcileQueue:
    """`clock` and `jitter` come from outside."""

    def __init__(self, clock: Callable[[], float], jitter: Callable[[], float]) -> None:
        self._clock = clock
        self._jitter = jitter
        self._ready: dict[Key, None] = {}
        self._running: set[Key] = set()
        self._again: set[Key] = set()
        self._again_later: set[Key] = set()
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: Key) -> None:
        """Have it reconciled as soon as a worker is free."""
        if key in self._running:
            self._again.add(key)
            return
        self._ready[key] = None
        self._changed.set()

    def add_behind_backoff(self, key: Key) -> None:
        """Like `add`, but while a step of it fails the next try is not made earlier."""
        if key in self._running:
            self._again_later.add(key)
        elif key not in self._failures:
            self.add(key)

    def add_after(self, key: Key, delay_s: float) -> None:
        """Have it reconciled after this time, or earlier where an earlier time is known; while a step of it
        fails, with the next try."""
        if key in self._failures and key not in self._running:
            return
        at = self._clock() + delay_s
        if at < self._due.get(key, float("inf")):
            self._set_due(key, at)

    def _set_due(self, key: Key, at: float) -> None:
        self._due[key] = at
        heapq.heappush(self._heap, (at, key))
        self._changed.set()

    async def take(self) -> Key:
        """The next one; `done` has to follow."""
        while True:
            self._take_due()
            if self._ready:
                key = next(iter(self._ready))
                del self._ready[key]
                self._running.add(key)
                return key
            self._changed.clear()
            wait_s = self._heap[0][0] - self._clock() if self._heap else None
            try:
                async with asyncio.timeout(None if wait_s is None else max(wait_s, 0.001)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _take_due(self) -> None:
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._due.get(key) != at:
                continue
            del self._due[key]
            if key in self._running:
                self._again_later.add(key)
            else:
                self.add(key)

    def done(self, key: Key, *, has_failed: bool | None) -> None:
        """It was reconciled. After a failure it is tried again, each time later, for ever; what else was due
        waits for that. None: nothing was tried, and the failures before still count."""
        self._running.discard(key)
        is_again = key in self._again or (key in self._again_later and not has_failed)
        self._again.discard(key)
        self._again_later.discard(key)
        if has_failed:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            ceiling_s = backoff_s(failures, first_s=FIRST_RETRY_S, longest_s=LONGEST_RETRY_S)
            self._set_due(key, self._clock() + spread_s(ceiling_s, self._jitter()))
        elif has_failed is False:
            self._failures.pop(key, None)
        if is_again:
            self.add(key)

    def forget(self, key: Key) -> None:
        """It is gone."""
        self._due.pop(key, None)
        self._failures.pop(key, None)
        self._again.discard(key)
        self._again_later.discard(key)
