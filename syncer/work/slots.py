# SPDX-License-Identifier: Apache-2.0
"""Places for work, so that only so much of it is under way at once."""

import asyncio
from typing import Any

from daemonkit.fairness.lease import Lease

_PlaceOfTask = dict[asyncio.Task[Any] | None, Lease]


class Slots:
    """`acquire` one for each item; its task is to `work_in` it, and gives it back once.

    Give it back with `yielded` during a request to a tenant's API server. Else a few tenants whose API
    servers hang would take all places from the others.
    """

    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)
        self._held: _PlaceOfTask = {}

    async def acquire(self) -> Lease:
        """Wait for a place."""
        await self._places.acquire()
        return Lease(self._places.release)

    def work_in(self, place: Lease) -> "_Work":
        """The current task works in this place, and gives it back at its end."""
        return _Work(self._held, place)

    def yielded(self) -> "_Yielded":
        """Without the place of the current task, and in one again after it. Without one nothing happens."""
        return _Yielded(self, self._held)


# Not generators: each item enters and leaves some of these, and a generator takes three times as long.
class _Work:
    __slots__ = ("_held", "_place", "_task")

    def __init__(self, held: _PlaceOfTask, place: Lease) -> None:
        self._held = held
        self._place = place
        self._task: asyncio.Task[Any] | None = None

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._held[self._task] = self._place

    def __exit__(self, *_: object) -> None:
        self._held.pop(self._task).release()


class _Yielded:
    __slots__ = ("_held", "_is_yielded", "_slots", "_task")

    def __init__(self, slots: Slots, held: _PlaceOfTask) -> None:
        self._slots = slots
        self._held = held
        self._task: asyncio.Task[Any] | None = None
        self._is_yielded = False

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        place = self._held.get(self._task)
        if place is not None and place.is_held:
            self._is_yielded = True
            place.release()

    async def __aexit__(self, *_: object) -> None:
        if self._is_yielded:
            # Cancelled here it holds the old place, which has been given back.
            self._held[self._task] = await self._slots.acquire()
