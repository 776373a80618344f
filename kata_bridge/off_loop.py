# SPDX-License-Identifier: Apache-2.0
"""Parses large answers of guests off the event loop, one at a time.

A guest chooses what it answers. A ttrpc message of 4 MiB of empty fields takes two seconds to decode. The
runtime disconnects an NRI plugin that does not answer within two. Small answers are parsed at once; large
ones wait for one thread. A guest has one call at a time, so it has one place in that queue, and parsing takes
the memory of one answer.
"""

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Some 10 ms for the densest message. Most answers have a few hundred bytes.
INLINE_BYTES = 16 << 10

_thread = ThreadPoolExecutor(1, "off-loop")


async def run(size: int, parse: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return `parse(...)` of an answer of `size` bytes or characters. Raises what it raises."""
    if size <= INLINE_BYTES:
        return parse(*args, **kwargs)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_thread, functools.partial(parse, *args, **kwargs))
