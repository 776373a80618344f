# SPDX-License-Identifier: Apache-2.0
"""Divides long work into steps of the event loop, between which others have their turns.

The work is a generator that yields where a step may end: so it is written, and tested, without a loop. What
it looks at may be another after each of its yields.
"""

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

# Of most objects each takes up to 10 us, and bytes of JSON are decoded in 10 ns each: 5 ms.
STEP_OBJECTS = 500
STEP_BYTES = 512 << 10


async def in_steps(work: Generator[None, None, T]) -> T:
    """The work in its pieces, each in a turn of its own."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: T = end.value
            return found
        await asyncio.sleep(0)


class WorkStep:
    """How much of many objects one step has looked at: `most` of them, which take up to 10 us each."""

    __slots__ = ("_bytes", "_most", "_objects")

    def __init__(self, most: int = STEP_OBJECTS) -> None:
        self._most = most
        self._objects = self._bytes = 0

    def count(self, size_bytes: int = 0) -> bool:
        """Count an object with `size_bytes` of decoded JSON. If it returns True the step is full: yield."""
        self._objects += 1
        self._bytes += size_bytes
        if self._objects < self._most and self._bytes < STEP_BYTES:
            return False
        self._objects = self._bytes = 0
        return True
