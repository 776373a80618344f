# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from daemonkit.kube.retry_pause import RetryPause

pytestmark = pytest.mark.asyncio


async def test_a_pause_ends_when_it_is_over() -> None:
    assert not await RetryPause().was_ended(0.0)


async def test_who_knows_more_ends_a_pause() -> None:
    pause = RetryPause()
    pause.end()  # none waits: nothing is kept for the next one
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(pause.was_ended(3_600.0))
        await asyncio.sleep(0)
        assert not waiting.done()
        pause.end()
        pause.end()
    assert waiting.result()
    assert not await pause.was_ended(0.0)
