# SPDX-License-Identifier: Apache-2.0
"""Waiting for a moment where others wait for us, and never for more than a share of all time."""

import asyncio
from contextlib import suppress


class Patience:
    """Waits at most `each_s` at a time, `at_once_s` in a row, and `share` of the time in the long run."""

    def __init__(self, each_s: float, share: float, at_once_s: float) -> None:
        self._each_s = each_s
        self._share = share
        self._at_once_s = at_once_s
        self._loop = asyncio.get_running_loop()
        self._left_s, self._at_s = at_once_s, self._loop.time()

    async def wait(self, event: asyncio.Event) -> None:
        """Wait for `event`, or not for so long."""
        now_s = self._loop.time()
        self._left_s = min(self._at_once_s, self._left_s + (now_s - self._at_s) * self._share)
        self._at_s = now_s
        if self._left_s < self._each_s:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._each_s):
                await event.wait()
        self._left_s -= self._loop.time() - now_s
