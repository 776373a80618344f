# SPDX-License-Identifier: Apache-2.0
"""What daemons start and end in the same way: tasks, status pages, the wait for readiness."""

import asyncio
import gc
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from daemonkit import logs
from daemonkit.config.scrape_config import ScrapeConfig
from daemonkit.metrics import Registry
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.status import log_level
from daemonkit.status.pages import Pages
from daemonkit.status.server import ListenAddress, Readiness, RenderPage, StatusServer
from daemonkit.tasks import Tasks
from daemonkit.ticks import next_tick
from daemonkit.version import VERSION

if TYPE_CHECKING:
    from daemonkit.status.scrape_listener import ScrapeListener

# Daemons keep many values that form no cycles; Python's default starts a collection each 700 allocations.
# After GC_YOUNG collections the next one looks at what these left too: 80 000 objects in 12 ms. By Python's
# default, 10, it would be 220 000 in one step, as 12 000 new streams have. GC_OLD keeps collections of all
# objects rare: they look at hundreds of thousands.
GC_THRESHOLD, GC_YOUNG, GC_OLD = 20_000, 3, 28
# For cancelled tasks to end.
TASKS_END_S = 2.0
# Most daemons are ready within milliseconds: at first readiness is asked for often, later so often.
_FIRST_POLL_S, _POLL_S = 0.001, 0.02
# How soon `systemctl status` shows that the daemon became ready, or why it is not.
FOLLOW_S = 1.0
# What a scraper on another machine gets.
SCRAPED = frozenset({"/metrics", "/healthz"})

_log = logs.get(__name__)


def freeze_heap() -> None:
    """Exempt all objects that exist now from garbage collection, and collect less often.

    Without a collection before: it takes 12 ms of a start, and finds nothing.
    """
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, GC_YOUNG, GC_OLD)


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
        self._readiness: Callable[[], Readiness] = lambda: Readiness(is_ready=True, lines=())
        self._status: StatusServer | None = None
        self._scrapes: ScrapeListener | None = None

    async def start(
        self,
        life: Lifecycle,
        status_at: ListenAddress | None,
        registry: Registry,
        *,
        readiness: Callable[[], Readiness],
        status: Callable[[], dict[str, object]],
        pages: Mapping[str, RenderPage] | None = None,
        gather: Callable[[], Awaitable[None]] | None = None,
        scrapes: ScrapeConfig | None = None,
    ) -> None:
        """Serve the status pages at `status_at`, unless it is None; `pages` are the daemon's own, by path.
        `gather` has its other processes report before each. Serve /metrics to the scrapers of `scrapes`, if
        that has an address.

        Raises `StatusError` and `UnusableDirectoryError`.
        """
        self._life = life
        self._readiness = readiness
        name = str(self._identity["daemon"])
        registry.gauge_function(
            "vcnode_build_info",
            "1, with the version that runs.",
            lambda: {(VERSION, name): 1.0},
            ("version", "daemon"),
        )
        registry.gauge_function(
            "vcnode_process_ready",
            "1 while /readyz is 200: all that the daemon needs has synced.",
            lambda: float(readiness().is_ready),
        )
        results = registry.counter(
            "vcnode_process_scrapes_total",
            "Connections to the listener for scrapers, by result.",
            ("result",),
        )
        if scrapes is not None and scrapes.address is not None:
            # Only here: a process without scrapers of other machines saves its memory.
            from daemonkit.status.scrape_listener import ScrapeListener

            served = Pages(registry, readiness=readiness, status=dict, only=SCRAPED, gather=gather)
            self._scrapes = ScrapeListener(scrapes, served, results)
            await self._scrapes.start()
        if status_at is None:
            return
        self._status = StatusServer(
            status_at,
            registry,
            readiness=readiness,
            status=lambda: self._identity | {"logging": log_level.document()} | status(),
            own=pages,
            gather=gather,
        )
        await self._status.start()

    async def announce(self, within_s: float, fields: Callable[[], dict[str, object]]) -> None:
        """Report the start to the service manager and to the log, after `start`; then follow readiness.

        It waits until the daemon is ready, for `within_s` at most: docs/decisions/0030 says why a daemon that
        is not ready by then reports READY=1 all the same. `fields` of the log line are asked for after the
        wait. A daemon that stops meanwhile has not started.
        """
        life = self._life
        if life is None:
            raise RuntimeError("announced before the start")
        await wait_until_ready(life, self._readiness, within_s)
        if life.stopping.is_set():
            return
        found = self._readiness()
        if found.is_ready:
            _log.info("started", **fields())
        else:
            _log.warning("started, not ready yet", reason=found.reason, **fields())
        life.ready(found.summary())
        self.tasks.spawn(self._follow_readiness(life, is_ready=found.is_ready), "readiness")

    async def _follow_readiness(self, life: Lifecycle, *, is_ready: bool) -> None:
        """Keep the service manager's status line current, and log each change of readiness."""
        has_failed = False
        while True:
            await next_tick(FOLLOW_S)
            if life.stopping.is_set():
                return
            try:
                found = self._readiness()
            # As on `/readyz`: a bug in a part of the report must not stop the daemon.
            except Exception as error:  # noqa: BLE001 - `/readyz` shows it at each request
                if not has_failed:
                    _log.error("readiness failed", error=error, traceback=logs.trace(error))
                has_failed = True
                continue
            has_failed = False
            life.set_status(found.summary())
            if found.is_ready is not is_ready:
                is_ready = found.is_ready
                if is_ready:
                    _log.info("ready")
                else:
                    _log.warning("not ready any more", reason=found.reason)

    async def end_tasks(self) -> None:
        await self.tasks.close(TASKS_END_S)

    async def stop(self) -> None:
        """Stop to serve the status pages: last, so that they can be read while the daemon drains."""
        if self._scrapes is not None:
            await self._scrapes.stop()
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
    begin_s = loop.time()
    while (waited_s := loop.time() - begin_s) < within_s:
        if readiness().is_ready or life.stopping.is_set():
            return
        await asyncio.sleep(min(_POLL_S, _FIRST_POLL_S + waited_s / 10))
