# SPDX-License-Identifier: Apache-2.0
"""The wait before a failed step is taken again. A caller that knows that the server answers may end it."""

import asyncio


class RetryPause:
    """Of one reflector: one wait at a time."""

    def __init__(self) -> None:
        self._end: asyncio.Future[None] | None = None

    def end(self) -> None:
        """End the wait, if there is one."""
        if self._end is not None and not self._end.done():
            self._end.set_result(None)

    async def was_ended(self, delay_s: float) -> bool:
        """Wait so long. Returns whether `end` was called meanwhile."""
        self._end = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(delay_s):
                await self._end
        except TimeoutError:
            return False
        finally:
            self._end = None
        return True
