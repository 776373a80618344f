# SPDX-License-Identifier: Apache-2.0
"""Hears of sandboxes: from NRI live, from lists of the CRI as resync, from a directory of files.

A source that is away changes nothing: what is known stays, and it is said how long ago each was
last heard. The sandboxes of the node are known (`is_synced`) once the runtime has been heard whole,
be it by NRI or by a list, and the directory has been read.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from daemonkit import logs
from daemonkit.files.watched import FilesError
from kata_bridge.metrics import Metrics
from kata_bridge.sandboxes.core.sandbox import Change, Seen, is_sandbox_id
from kata_bridge.sandboxes.core.tracker import Sandboxes
from kata_bridge.sandboxes.file_source import GuestDirectory

# How soon a changed file is noticed.
POLL_S = 1.0
# A runtime that is away is coming back.
RETRY_S = 1.0
LIST_S = 10.0

NRI, CRI, DIRECTORY = "nri", "cri", "directory"

_log = logs.get(__name__)


class ListError(Exception):
    """The runtime did not tell its sandboxes; nothing may be concluded from that."""


class Lister(Protocol):
    """Lists the sandboxes of a runtime."""

    async def sandboxes(self, is_known: Callable[[str], bool]) -> tuple[Seen, ...]:
        """Return all. Details (addresses, namespaces) only of those not known. Raises `ListError`."""
        ...


class Discovery:
    """The picture of the node's sandboxes; hands every change to `take`."""

    def __init__(
        self,
        take: Callable[[Iterable[Change]], None],
        synced: Callable[[], None],
        metrics: Metrics,
        *,
        has_nri: bool,
        lister: Lister | None,
        directory: GuestDirectory | None,
        interval_s: float,
    ) -> None:
        self._take, self._synced = take, synced
        self._metrics = metrics
        self._sandboxes = Sandboxes()
        self._lister = lister
        self._directory = directory
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._heard_s: dict[str, float] = {}
        self._failing: dict[str, str] = {}
        self._needs_runtime = has_nri or lister is not None
        self._ask = asyncio.Event()
        self.is_synced = False
        self.is_nri_connected: Callable[[], bool] = lambda: False

    # ---- what it says of itself

    def ages(self) -> dict[str, float]:
        """Seconds since each source was last heard; one that never was is not there."""
        now_s = self._loop.time()
        if self.is_nri_connected():
            self._heard_s[NRI] = now_s  # silence means that nothing happened
        return {name: now_s - heard_s for name, heard_s in self._heard_s.items()}

    @property
    def problems(self) -> dict[str, str]:
        """What is wrong now: sources that are away, files that cannot be used."""
        files = {} if self._directory is None else self._directory.problems
        return self._failing | {f"file {name}": problem for name, problem in files.items()}

    # ---- NRI

    def nri_synchronized(self, seen: Iterable[Seen]) -> None:
        """The runtime has said all that there is; a list will say which of several is the one."""
        self._heard(NRI)
        self._changed(self._sandboxes.synchronized(_usable(seen), self._loop.time()))
        self.ask()

    def nri_ran(self, seen: Seen) -> None:
        self._heard(NRI)
        if is_sandbox_id(seen.id):
            self._changed(self._sandboxes.ran(seen, self._loop.time()))

    def nri_stopped(self, sandbox: str) -> None:
        self._heard(NRI)
        self._changed(self._sandboxes.stopped(sandbox))

    # ---- loops

    def ask(self) -> None:
        """Ask the runtime for a list, and read the directory, now."""
        self._ask.set()

    async def run(self) -> None:
        """List and read, for ever."""
        async with asyncio.TaskGroup() as group:
            if self._lister is not None:
                group.create_task(self._list_for_ever(self._lister), name="list sandboxes")
            if self._directory is not None:
                group.create_task(self._read_for_ever(self._directory), name="read guests")

    async def _list_for_ever(self, lister: Lister) -> None:
        while True:
            self._ask.clear()
            is_good = await self._list(lister)
            try:
                async with asyncio.timeout(self._interval_s if is_good else min(RETRY_S, self._interval_s)):
                    await self._ask.wait()
            except TimeoutError:
                continue

    async def _list(self, lister: Lister) -> bool:
        begun_s = self._loop.time()
        try:
            async with asyncio.timeout(LIST_S):
                seen = await lister.sandboxes(self._sandboxes.knows)
        except (ListError, TimeoutError) as error:
            self._fails(CRI, str(error) or f"no answer within {LIST_S:g} s")
            return False
        # A lister reads what a runtime sent. Where NRI is off this loop alone finds sandboxes; it lists
        # again, and the status page shows the error until then.
        except Exception as error:  # noqa: BLE001 - one odd sandbox must not end the only loop
            _log.error("sandboxes cannot be listed", error=error, traceback=logs.trace(error))
            self._fails(CRI, f"{type(error).__name__}: {error}")
            return False
        self._heard(CRI)
        self._changed(self._sandboxes.listed(_usable(seen), begun_s, self._loop.time()))
        return True

    async def _read_for_ever(self, directory: GuestDirectory) -> None:
        directory.changed()  # what is read now is no change later
        is_due = True
        while True:
            if is_due:
                self._read(directory)
            await asyncio.sleep(POLL_S)
            is_due = directory.changed() or DIRECTORY in self._failing
            if not is_due:
                self._heard(DIRECTORY)

    def _read(self, directory: GuestDirectory) -> None:
        before = directory.problems
        try:
            placed = directory.read()
        except FilesError as error:
            self._fails(DIRECTORY, str(error))
            return
        for name, problem in directory.problems.items():
            if before.get(name) != problem:
                _log.error("a guest's file cannot be used", file=name, problem=problem)
        self._heard(DIRECTORY)
        self._changed(self._sandboxes.placed(placed))

    # ----

    def _heard(self, source: str) -> None:
        self._heard_s[source] = self._loop.time()
        if self._failing.pop(source, None) is not None:
            _log.info("source is heard again", source=source)

    def _fails(self, source: str, reason: str) -> None:
        self._metrics.source_errors.labels(source).inc()
        if source not in self._failing:
            _log.warning("source is away, what is known stays", source=source, reason=reason)
        self._failing[source] = reason

    def _changed(self, changes: Iterable[Change]) -> None:
        self._take(changes)
        has_runtime = not self._needs_runtime or NRI in self._heard_s or CRI in self._heard_s
        has_files = self._directory is None or DIRECTORY in self._heard_s
        if has_runtime and has_files and not self.is_synced:
            self.is_synced = True
            _log.info("the node's sandboxes are known", count=len(self._sandboxes.current))
            self._synced()


def _usable(seen: Iterable[Seen]) -> list[Seen]:
    """Leave out what has no name that a file may have; no runtime makes such ids."""
    return [each for each in seen if is_sandbox_id(each.id)]
