# SPDX-License-Identifier: Apache-2.0
import asyncio
import threading

import pytest

from kata_bridge import off_loop
from kata_bridge.off_loop import INLINE_BYTES

pytestmark = pytest.mark.asyncio


async def test_small_response_is_parsed_on_the_loop() -> None:
    here = threading.get_ident()
    assert await off_loop.run(INLINE_BYTES, threading.get_ident) == here


async def test_large_responses_are_parsed_off_the_loop_in_turn() -> None:
    at_once: list[int] = []
    lock = threading.Lock()

    def parse() -> int:
        assert lock.acquire(blocking=False)
        at_once.append(threading.get_ident())
        lock.release()
        return threading.get_ident()

    readers = await asyncio.gather(*(off_loop.run(INLINE_BYTES + 1, parse) for _ in range(20)))
    assert set(readers) == set(at_once)
    assert len(set(readers)) == 1
    assert threading.get_ident() not in readers


async def test_error_of_the_parser_is_raised() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await off_loop.run(INLINE_BYTES + 1, int, "x")
