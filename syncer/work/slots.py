# SPDX-License-Identifier: Apache-2.0
"""Places for work, so that only so much of it is under way at once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Slots:
    """`acquire` one for each item. Release it with `yielded` during a request to a tenant's API server.

    Else a few tenants whose API servers hang would take all places from the others.
    """

    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)

    async def acquire(self) -> None:
        await self._places.acquire()

    def release(self) -> None:
        self._places.release()

    @contextlib.asynccontextmanager
    async def yielded(self) -> AsyncIterator[None]:
        self._places.release()
        try:
            yield
        finally:
            await self._places.acquire()
