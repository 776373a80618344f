# SPDX-License-Identifier: Apache-2.0
"""Places for work, so that only so much of it is under way at once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from daemonkit.fairness.lease import Lease


class Slots:
    """`acquire` one for each item; its task is to `work_in` it, and gives it back once.

    Give it back with `yielded` during a request to a tenant's API server. Else a few tenants whose API
    servers hang would take all places from the others.
    """

    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)
        self._held: dict[asyncio.Task[Any] | None, Lease] = {}

    async def acquire(self) -> Lease:
        """Wait for a place."""
        await self._places.acquire()
        return Lease(self._places.release)

    @contextlib.contextmanager
    def work_in(self, place: Lease) -> Iterator[None]:
        """The current task works in this place, and gives it back at its end."""
        task = asyncio.current_task()
        self._held[task] = place
        try:
            yield
        finally:
            self._held.pop(task).release()

    @contextlib.asynccontextmanager
    async def yielded(self) -> AsyncIterator[None]:
        """Without the place of the current task, and in one again after it. Without one nothing happens."""
        task = asyncio.current_task()
        place = self._held.get(task)
        if place is None or not place.is_held:
            yield
            return
        place.release()
        try:
            yield
        finally:
            # Cancelled here it holds the old place, which has been given back.
            self._held[task] = await self.acquire()
