# SPDX-License-Identifier: Apache-2.0
"""Reloads sources when they change, and at SIGHUP.

A source that does not parse keeps its last good objects, is logged once, and is
counted. Changes are found by content (Secret mounts swap links), about once a second.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from daemonkit import logs
from daemonkit.metrics import Counter, Family

# Changed files are noticed within 2 s; this leaves time to act on them.
POLL_S = 1.0

_log = logs.get(__name__)


class Reloadable(NamedTuple):
    """`poll` returns whether the content changed; it is called each POLL_S and must be cheap. `reload`
    returns the problem, or None."""

    name: str
    poll: Callable[[], bool]
    reload: Callable[[], Awaitable[str | None]]


class Reloader:
    """Polls, reloads, counts."""

    def __init__(self, sources: tuple[Reloadable, ...], reloads: Family[Counter]) -> None:
        self._asked = {source: asyncio.Event() for source in sources}
        self._reloads = reloads

    def request_reload(self) -> None:
        """Read everything again soon (SIGHUP)."""
        for asked in self._asked.values():
            asked.set()

    async def run(self) -> None:
        """Watch each source in its own task: a slow one must not delay another."""
        async with asyncio.TaskGroup() as group:
            for source, asked in self._asked.items():
                group.create_task(self._watch(source, asked), name=f"reload {source.name}")

    async def _watch(self, source: Reloadable, asked: asyncio.Event) -> None:
        while True:
            is_asked = await _wait_set(asked, POLL_S)
            # Poll also at SIGHUP: the content that is read now must not count as a change later.
            if source.poll() or is_asked:
                await self.reload(source)

    async def reload(self, source: Reloadable) -> None:
        """Read one source again, and record the result."""
        problem = await source.reload()
        self._reloads.labels("ok" if problem is None else "error").inc()
        if problem is None:
            _log.info("source was reloaded", source=source.name)
        else:
            _log.error(
                "source could not be reloaded; its last good state stays", source=source.name, problem=problem
            )


async def _wait_set(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
