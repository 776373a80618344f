# SPDX-License-Identifier: Apache-2.0
"""What daemons start and end in the same way: tasks, status pages, the wait for readiness."""

import asyncio
import gc
import os
import time
from collections.abc import Callable, Mapping

from daemonkit import logs
from daemonkit.metrics import Registry
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.status.server import ListenAddress, Readiness, RenderPage, StatusServer
from daemonkit.tasks import Tasks

# Daemons keep many values that form no cycles; Python's default starts a collection each 700 allocations.
GC_THRESHOLD = 20_000
# For cancelled tasks to end.
TASKS_END_S = 2.0
_POLL_S = 0.02

_log = logs.get(__name__)


def freeze_heap() -> None:
    """Exempt all objects that exist now from garbage collection, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


class DaemonShell:
    """A daemon makes it first and hands `tasks` to its parts. It calls the other methods in its own order.

    With `stops_on_failure` a failed task stops the daemon, and the service manager starts it again.
    """

    def __init__(
        self,
        name: str,
        *,
        node_name: str = "",
        stops_on_failure: bool = True,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.tasks = Tasks(name, on_failure=self._task_failed if stops_on_failure else None)
        self._identity: dict[str, object] = {
            "daemon": name,
            **({"nodeName": node_name} if node_name else {}),
            "pid": os.getpid(),
            "startedAt": wall_clock(),
        }
        self._life: Lifecycle | None = None
        self._status: StatusServer | None = None

    async def start(
        self,
        life: Lifecycle,
        status_at: ListenAddress | None,
        registry: Registry,
        *,
        readiness: Callable[[], Readiness],
        status: Callable[[], dict[str, object]],
        pages: Mapping[str, RenderPage] | None = None,
    ) -> None:
        """Serve the status pages at `status_at`, unless it is None; `pages` are the daemon's own, by path.

        Raises `StatusError` and `UnusableDirectoryError`.
        """
        self._life = life
        if status_at is None:
            return
        self._status = StatusServer(
            status_at,
            registry,
            readiness=readiness,
            status=lambda: self._identity | status(),
            own=pages,
        )
        await self._status.start()

    async def end_tasks(self) -> None:
        await self.tasks.close(TASKS_END_S)

    async def stop(self) -> None:
        """Stop to serve the status pages: last, so that they can be read while the daemon drains."""
        if self._status is not None:
            await self._status.stop()

    def _task_failed(self, name: str, _: BaseException) -> None:
        if self._life is not None:
            _log.error("a task failed that the daemon needs, stopping", task=name)
            self._life.stop()


async def wait_until_ready(life: Lifecycle, readiness: Callable[[], Readiness], within_s: float) -> None:
    """Wait until the daemon is ready or stops, for `within_s` at most.

    A daemon that is not ready by then starts all the same: `/readyz` has the reason.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + within_s
    while loop.time() < end:
        if readiness().is_ready or life.stopping.is_set():
            return
        await asyncio.sleep(_POLL_S)
