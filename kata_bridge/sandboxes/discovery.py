# SPDX-License-Identifier: Apache-2.0
"""Discovers the node's sandboxes: from NRI live, from lists of the CRI as resync, from a directory of files.

A source that is away changes nothing: known sandboxes stay, and /status has the age of each source. The
sandboxes have synced (`has_synced`) once the runtime has reported all, by NRI or by a list, and the directory
has been read.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from daemonkit import logs, os_errors
from daemonkit.files.watched import FilesError
from daemonkit.remedies import Cause, Fault, Hop, HopKind
from kata_bridge.cri.client import CRI_HOP
from kata_bridge.metrics import KataBridgeMetrics
from kata_bridge.sandboxes.core.sandbox import SandboxChange, SandboxObservation, is_sandbox_id
from kata_bridge.sandboxes.core.tracker import SandboxTracker
from kata_bridge.sandboxes.file_source import GuestDirectory

# How soon a changed file is noticed.
POLL_S = 1.0
# A runtime that is away is probably restarting.
RETRY_S = 1.0
LIST_S = 10.0

NRI, CRI, DIRECTORY = "nri", "cri", "directory"
_HOPS = {
    CRI: CRI_HOP,
    DIRECTORY: Hop(HopKind.FILE, "sandboxes.directory", "the directory and its files"),
}

_log = logs.get(__name__)


class ListError(Exception):
    """The runtime did not list its sandboxes; nothing may be concluded from that."""

    def __init__(self, text: str, fault: Fault | None = None) -> None:
        super().__init__(text)
        self.fault = fault


class Lister(Protocol):
    """Lists the sandboxes of a runtime."""

    async def sandboxes(self, is_known: Callable[[str], bool]) -> tuple[SandboxObservation, ...]:
        """Return all. Details (addresses, namespaces) only of unknown ones. Raises `ListError`."""
        ...


class Discovery:
    """Tracks the node's sandboxes; `on_changes` gets every change, `on_synced` is called once."""

    def __init__(
        self,
        on_changes: Callable[[Iterable[SandboxChange]], None],
        on_synced: Callable[[], None],
        metrics: KataBridgeMetrics,
        *,
        has_nri: bool,
        lister: Lister | None,
        directory: GuestDirectory | None,
        interval_s: float,
    ) -> None:
        self._on_changes, self._on_synced = on_changes, on_synced
        self._metrics = metrics
        self._tracker = SandboxTracker()
        self._lister = lister
        self._directory = directory
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._last_success_s: dict[str, float] = {}
        self._failures: dict[str, str] = {}
        self._faults: dict[str, tuple[Fault, float]] = {}
        self._needs_runtime = has_nri or lister is not None
        self._is_due = asyncio.Event()
        self._has_synced = False

    # ---- status

    @property
    def has_synced(self) -> bool:
        """Whether every source has reported all of its sandboxes once."""
        return self._has_synced

    def ages(self) -> dict[str, float]:
        """Seconds since each source last reported; a source that never did is absent."""
        now_s = self._loop.time()
        return {name: now_s - success_s for name, success_s in self._last_success_s.items()}

    @property
    def problems(self) -> dict[str, str]:
        """Sources that are away, and files that cannot be used."""
        files = {} if self._directory is None else self._directory.problems
        return self._failures | {f"file {name}": problem for name, problem in files.items()}

    def faults(self) -> dict[str, tuple[Fault, float]]:
        """Why the runtime's list or the directory is away, and for how many seconds."""
        now_s = self._loop.time()
        return {name: (fault, now_s - since_s) for name, (fault, since_s) in self._faults.items()}

    # ---- NRI

    def nri_connected(self) -> None:
        """NRI is connected now: silence means that nothing has happened."""
        self._last_success_s[NRI] = self._loop.time()

    def nri_synchronized(self, observations: Iterable[SandboxObservation]) -> None:
        """The runtime reported all sandboxes; a list will show which of a pod's several is current."""
        self._succeeded(NRI)
        self._changed(self._tracker.synchronized(_valid(observations), self._loop.time()))
        self.refresh()

    def nri_started(self, observation: SandboxObservation) -> None:
        self._succeeded(NRI)
        if is_sandbox_id(observation.id):
            self._changed(self._tracker.started(observation, self._loop.time()))

    def nri_stopped(self, sandbox: str) -> None:
        self._succeeded(NRI)
        self._changed(self._tracker.stopped(sandbox))

    # ---- loops

    def refresh(self) -> None:
        """Have the runtime listed, and the directory read, now."""
        self._is_due.set()

    async def run(self) -> None:
        """List and read; never returns."""
        async with asyncio.TaskGroup() as group:
            if self._lister is not None:
                group.create_task(self._run_list_loop(self._lister), name="list sandboxes")
            if self._directory is not None:
                group.create_task(self._run_read_loop(self._directory), name="read guests")

    async def _run_list_loop(self, lister: Lister) -> None:
        while True:
            self._is_due.clear()
            has_listed = await self._list(lister)
            try:
                async with asyncio.timeout(
                    self._interval_s if has_listed else min(RETRY_S, self._interval_s)
                ):
                    await self._is_due.wait()
            except TimeoutError:
                continue

    async def _list(self, lister: Lister) -> bool:
        begun_s = self._loop.time()
        try:
            async with asyncio.timeout(LIST_S):
                observations = await lister.sandboxes(self._tracker.is_known)
        except ListError as error:
            self._failed(CRI, str(error), error.fault)
            return False
        except TimeoutError:
            reason = f"no answer within {LIST_S:g} s"
            self._failed(CRI, reason, CRI_HOP.fault(Cause.TIMEOUT, reason))
            return False
        # A lister reads what a runtime sent. Where NRI is off this loop alone finds sandboxes; it lists
        # again, and /status shows the error until then.
        except Exception as error:  # noqa: BLE001 - one odd sandbox must not end the only loop
            _log.error("cannot list sandboxes", error=error, traceback=logs.trace(error))
            self._failed(CRI, f"{type(error).__name__}: {error}")
            return False
        self._succeeded(CRI)
        self._changed(self._tracker.listed(_valid(observations), begun_s, self._loop.time()))
        return True

    async def _run_read_loop(self, directory: GuestDirectory) -> None:
        directory.poll()  # the first read has what changed before it
        is_due = True
        while True:
            if is_due:
                self._read(directory)
            await asyncio.sleep(POLL_S)
            is_due = directory.poll() or DIRECTORY in self._failures
            if not is_due:
                self._succeeded(DIRECTORY)

    def _read(self, directory: GuestDirectory) -> None:
        before = directory.problems
        try:
            sandboxes = directory.read()
        except FilesError as error:
            self._failed(DIRECTORY, str(error))
            return
        for name, problem in directory.problems.items():
            if before.get(name) != problem:
                _log.error("cannot use the file of a guest", file=name, problem=problem)
        self._succeeded(DIRECTORY)
        self._changed(self._tracker.set_static(sandboxes))

    # ----

    def _succeeded(self, source: str) -> None:
        self._last_success_s[source] = self._loop.time()
        self._faults.pop(source, None)
        if self._failures.pop(source, None) is not None:
            _log.info("source of sandboxes is back", source=source)

    def _failed(self, source: str, reason: str, fault: Fault | None = None) -> None:
        _, since_s = self._faults.get(source, (None, self._loop.time()))
        fault = fault or _HOPS[source].fault(os_errors.describe_text(reason)[1], reason)
        self._faults[source] = fault, since_s
        self._metrics.source_errors.labels(source).inc()
        if source not in self._failures:
            _log.warning("source of sandboxes is away, known sandboxes stay", source=source, reason=reason)
        self._failures[source] = reason

    def _changed(self, changes: Iterable[SandboxChange]) -> None:
        self._on_changes(changes)
        has_runtime = not self._needs_runtime or NRI in self._last_success_s or CRI in self._last_success_s
        has_files = self._directory is None or DIRECTORY in self._last_success_s
        if has_runtime and has_files and not self._has_synced:
            self._has_synced = True
            _log.info("sandboxes synced", count=len(self._tracker.current))
            self._on_synced()


def _valid(observations: Iterable[SandboxObservation]) -> list[SandboxObservation]:
    """Those whose id may be a file name; no runtime makes others."""
    return [each for each in observations if is_sandbox_id(each.id)]
