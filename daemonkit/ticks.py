# SPDX-License-Identifier: Apache-2.0
"""The times at which a process looks after what it looks after at intervals.

They are the multiples of the interval on the event loop's clock, or whole seconds behind them: who waits for
them is resumed in one iteration of the loop. A process at rest wakes up once for all of them, and finds its
memory in the processor's caches after the first.
"""

import asyncio
import math

# Of the interval: as asyncio's timers may run a little early, a tick that is nearer has been waited for.
_EARLY = 0.01


def next_tick_s(now_s: float, interval_s: float, behind_s: int = 0) -> float:
    """The next multiple of the interval after a time of the loop's clock, by more than a hundredth of it."""
    return (math.floor((now_s - behind_s) / interval_s + _EARLY) + 1) * interval_s + behind_s


async def next_tick(interval_s: float, behind_s: int = 0) -> None:
    """Wait for the next tick: for the interval at most, and a hundredth of it.

    Where there may be a thousand that wait, some are to be `behind_s` others.
    """
    loop = asyncio.get_running_loop()
    now_s = loop.time()
    await asyncio.sleep(next_tick_s(now_s, interval_s, behind_s) - now_s)
