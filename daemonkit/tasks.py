# SPDX-License-Identifier: Apache-2.0
"""Background tasks with an owner, a name and an end.

Every task of a daemon starts here (ruff bans `asyncio.create_task` elsewhere). The loop keeps only
weak references to tasks: without another one a task can vanish in mid-flight, and its failure stays unseen
until it is collected.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from daemonkit import logs
from daemonkit.metrics import Registry

T = TypeVar("T")

_log = logs.get(__name__)


class Tasks:
    """The tasks of one part of a daemon, ended together.

    `on_failure` is called with name and exception after an unexpected failure was logged: a daemon
    that cannot do its work without the task ends itself there. Each coroutine is run `through` what is
    given: an account of `daemonkit.fairness`, so that all tasks of a tenant take its turns.
    """

    def __init__(
        self,
        name: str,
        *,
        on_failure: Callable[[str, BaseException], None] | None = None,
        through: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]] | None = None,
    ) -> None:
        self.name = name
        self._on_failure = on_failure
        self._through = through
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(
        self, coro: Coroutine[Any, Any, T], name: str, *, when_over: Callable[[], object] | None = None
    ) -> asyncio.Task[T]:
        """Start `coro` as a task called `<name of these tasks>.<name>`.

        `when_over` is called when the task has ended, also when it was cancelled before its first
        step: then no `finally` of `coro` has run. What `coro` was given to close belongs there.
        Raises `RuntimeError` after `close`: nothing would end it.
        """
        if self._is_closed:
            coro.close()
            if when_over is not None:
                when_over()
            raise RuntimeError(f"{self.name} is closed, {name} is too late")
        if self._through is not None:
            coro = self._through(coro)
        task = asyncio.create_task(coro, name=f"{self.name}.{name}")  # noqa: TID251 - the one place
        self._tasks.add(task)
        task.add_done_callback(self._done)
        if when_over is not None:
            over = when_over
            task.add_done_callback(lambda _: over())
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        name = task.get_name()
        _log.error("task failed", task=name, error=error, traceback=logs.trace(error))
        if self._on_failure is not None:
            self._on_failure(name, error)

    async def close(self, timeout_s: float) -> tuple[str, ...]:
        """Cancel all tasks and wait for their end; return the names of those that did not end.

        Cancels once more at half time: `asyncio.wait_for` of Python 3.11 can swallow the first
        (cpython 86296). A task that closes its own group is left alone. Never raises for a task.
        """
        self._is_closed = True
        pending = self._tasks - {asyncio.current_task()}
        for _ in range(2):
            for task in pending:
                task.cancel()
            if pending:
                _, pending = await asyncio.wait(pending, timeout=timeout_s / 2)
        stuck = tuple(sorted(task.get_name() for task in pending))
        if stuck:
            _log.error("tasks did not end", group=self.name, timeout_s=timeout_s, tasks=stuck)
        return stuck


def add_metric(registry: Registry, count_others: Callable[[], int] = lambda: 0) -> None:
    """Add `vcnode_tasks`, all tasks of the running loop: a leak shows as a line that only rises.

    `count_others` adds what a daemon does without tasks.
    """
    registry.gauge_function(
        "vcnode_tasks",
        "Tasks of the event loop; in vn-agent also requests and streams in progress.",
        lambda: len(asyncio.all_tasks()) + count_others(),
    )
