# SPDX-License-Identifier: Apache-2.0
"""Large answers of guests are read one at a time, beside the event loop.

A guest chooses what it answers: a ttrpc message of 4 MiB that holds empty fields alone takes two
seconds to decode, and the runtime throws a plugin out that does not answer it within two. Small
answers are read where they arrive. Large ones wait for one thread: each guest has one call at a
time, so none has more than one place in the queue, and the memory that reading takes is one answer's.
"""

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Of the densest message, some 10 ms. Most answers have a few hundred bytes.
INLINE_BYTES = 16 << 10

_reader = ThreadPoolExecutor(1, "large-answers")


async def run(size: int, parse: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return `parse(...)` of an answer of so many bytes or characters. Raises what it raises."""
    if size <= INLINE_BYTES:
        return parse(*args, **kwargs)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_reader, functools.partial(parse, *args, **kwargs))
