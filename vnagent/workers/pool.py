# SPDX-License-Identifier: Apache-2.0
"""The workers of the main process: started, fed, replaced when they end, and drained at the end.

Each connection goes to the worker that has the fewest. A worker that ends loses its own connections, and is
replaced; the others go on. A worker that does not apply a removal of tenants is ended: what was revoked must
not go on there.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from daemonkit import logs
from daemonkit.backoff import backoff_s
from daemonkit.metrics import Counter
from daemonkit.tasks import Tasks
from daemonkit.version import VERSION
from tenancy.registry import Registry
from vnagent.config import VnAgentConfiguration
from vnagent.downstream.token_port import TokenPort
from vnagent.exchange.page import RenderedPages
from vnagent.sources.port import PodsOnDemand
from vnagent.state import AgentState
from vnagent.workers import usage_table
from vnagent.workers.merged_metrics import MergedRegistry
from vnagent.workers.message_channel import ChannelClosedError, MessageChannel
from vnagent.workers.messages import (
    PAUSE_S,
    AcceptedConnection,
    Drain,
    PageEnded,
    PageRequested,
    PodsRequested,
    Reload,
    Setup,
    Started,
    TenantsApplied,
    WorkerConditions,
    WorkerReport,
)
from vnagent.workers.rows import Rows
from vnagent.workers.usage_table import UsageTable
from vnagent.workers.worker_handle import WorkerHandle, start_worker
from vnagent.workers.worker_requests import WorkerRequests

# How often workers get what has changed of tenants, pods and conditions.
UPDATE_S = 0.1
# Connections without a worker that takes them: a start, or an end of all at once, lasts half a second.
MAX_WAITING = 1_024
# Of such a connection. Go's client waits 10 s for a handshake.
WAIT_S = 5.0
# Beyond what streams get at the end, for a worker to finish first requests and send last bytes.
END_S = 5.0
# Of a status page for the reports of all workers.
GATHER_S = 0.5
RESTART_S, MAX_RESTART_S = 0.1, 5.0

_log = logs.get(__name__)


class _DelayedConnection(NamedTuple):
    """A connection that no worker has taken yet. It is closed at `until_s`."""

    sock: socket.socket
    accepted: AcceptedConnection
    until_s: float


def _restart_s(failures: int) -> float:
    return backoff_s(failures, first_s=RESTART_S, longest_s=MAX_RESTART_S)


class WorkerPool:
    """Serves the connections of tenants by `config.workers` processes."""

    def __init__(
        self,
        config: VnAgentConfiguration,
        state: AgentState,
        pages: RenderedPages,
        metrics: MergedRegistry,
        ended_count: Counter,
        tasks: Tasks,
        *,
        refreshable: PodsOnDemand | None,
        are_pods_stale: Callable[[], bool],
    ) -> None:
        """Nothing is started. Raises OSError."""
        self._config = config
        self._state = state
        self._pages = pages
        self._metrics = metrics
        self._tasks = tasks
        self._refreshable = refreshable
        self._are_pods_stale = are_pods_stale
        self._usage_descriptor = usage_table.create(config.workers)
        self._table = UsageTable(self._usage_descriptor, config.workers)
        self._rows = Rows(usage_table.MAX_ROWS)
        self._assigned: Registry | None = None
        self._has_started = False
        self._workers: dict[int, WorkerHandle] = {}
        self._waiting: deque[_DelayedConnection] = deque()
        # Set if workers cannot be supervised any more: the daemon must stop then.
        self.failed = asyncio.Event()
        self._own_tasks = Tasks("workers", on_failure=lambda _, __: self.failed.set())
        self._worker_tasks: list[asyncio.Task[None]] = []
        self._ended_count = ended_count

    # ---- life

    async def start(self) -> None:
        """Start all workers; they serve once they have tenants."""
        self._assign_rows()
        for worker in range(self._config.workers):
            self._worker_tasks.append(self._own_tasks.spawn(self._keep(worker), str(worker)))
        self._own_tasks.spawn(self._supervise(), "supervision")

    async def _keep(self, worker: int) -> None:
        """Run a worker until the drain, and another one whenever it ends."""
        failures = 0
        setup = Setup(VERSION, self._config, worker, self._config.workers)
        while not self._is_draining():
            try:
                handle = await start_worker(setup, self._usage_descriptor, self._requests_of)
            except OSError as error:
                _log.error("a worker cannot be started", worker=worker, error=error)
                failures += 1
                await asyncio.sleep(_restart_s(failures))
                continue
            self._workers[worker] = handle
            try:
                if self._is_draining():
                    return
                self._update(handle)
                await self._follow(handle)
                code = await handle.wait_ended()
            finally:
                handle.kill()
                self._end(handle)
            if self._is_draining():
                return
            failures = 1 if handle.is_serving else failures + 1
            _log.error(
                "a worker has ended, and its connections with it; another one is started",
                worker=worker,
                code=code,
            )
            self._ended_count.inc()
            await asyncio.sleep(_restart_s(failures))

    def _is_draining(self) -> bool:
        return self._state.is_draining

    def _end(self, handle: WorkerHandle) -> None:
        del self._workers[handle.worker]
        handle.close()
        self._metrics.end(handle.worker)
        self._table.clear_worker(handle.worker, self._rows.row_count)

    def _requests_of(self, channel: MessageChannel) -> WorkerRequests:
        return WorkerRequests(channel, self._state, self._pages, self._refreshable, self._tasks, self.update)

    async def _follow(self, handle: WorkerHandle) -> None:
        """Act on what the worker sends, until it ends."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                message = await handle.channel.receive_for_main()
            except ChannelClosedError:
                return
            except ValueError as error:
                _log.error("a worker has sent what cannot be read", worker=handle.worker, error=error)
                return
            handle.message_received(loop.time())
            match message:
                case TenantsApplied():
                    handle.take_applied(message)
                    self._pass_waiting()
                case WorkerReport():
                    handle.take_report(message)
                    self._metrics.report(handle.worker, message.metrics)
                case PageRequested():
                    handle.requests.render(message)
                case PageEnded(request=request):
                    handle.requests.end(request)
                case PodsRequested(request=request):
                    handle.requests.read_pods(request)
                case Started():
                    _log.info("worker started", worker=handle.worker, pid=handle.process.pid)

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        while True:
            before_s, now_s = now_s, loop.time()
            self.update()
            for handle in list(self._workers.values()):
                if now_s - before_s > PAUSE_S:
                    # This process, or the machine, was paused: messages have come that were not read yet.
                    handle.restart_deadlines(now_s)
                fault = handle.fault(now_s)
                if fault:
                    _log.error("a worker is ended", worker=handle.worker, reason=fault)
                    handle.kill()
            self._pass_waiting()
            await asyncio.sleep(UPDATE_S)

    # ---- what all workers get

    def update(self) -> None:
        """Send each worker what has changed of tenants, pods and conditions."""
        self._assign_rows()
        for handle in self._workers.values():
            self._update(handle)

    def _update(self, handle: WorkerHandle) -> None:
        conditions = WorkerConditions(self._are_pods_stale(), logs.level_name())
        handle.update(self._state, self._rows, conditions, asyncio.get_running_loop().time())

    def _assign_rows(self) -> None:
        registry, now_s = self._state.registry, asyncio.get_running_loop().time()
        if registry is not self._assigned:
            self._rows.assign(registry.tenants, now_s)
            self._metrics.keep_tenants(registry.tenants)
            self._assigned = registry
        if self._rows.has_removed and all(each.is_current for each in self._workers.values()):
            for row in self._rows.free(self._table.is_unused, now_s):
                self._table.clear_row(row)

    async def gather(self) -> None:
        """Have all workers report what they count now, and wait for that for GATHER_S at most."""
        awaited = [handle.request_report() for handle in self._workers.values()]
        if awaited:
            await asyncio.wait(awaited, timeout=GATHER_S)

    def reload(self) -> None:
        """SIGHUP, for the files that workers read themselves."""
        for handle in self._workers.values():
            handle.channel.send(Reload())

    # ---- connections

    def accept(self, sock: socket.socket, host: str, token_port: TokenPort | None = None) -> None:
        """Pass a connection from a listener to the worker that has the fewest."""
        accepted = AcceptedConnection(host, None if token_port is None else token_port.number)
        if self._pass(sock, accepted):
            sock.close()
        elif len(self._waiting) < MAX_WAITING and not self._state.is_draining:
            until_s = asyncio.get_running_loop().time() + WAIT_S
            self._waiting.append(_DelayedConnection(sock, accepted, until_s))
        else:
            sock.close()

    def _pass(self, sock: socket.socket, accepted: AcceptedConnection) -> bool:
        serving = sorted(self._serving(), key=self._load)
        return any(handle.pass_connection(sock, accepted) for handle in serving)

    def _pass_waiting(self) -> None:
        now_s = asyncio.get_running_loop().time()
        while self._waiting:
            first = self._waiting[0]
            if now_s < first.until_s and not self._pass(first.sock, first.accepted):
                return
            self._waiting.popleft().sock.close()

    def _load(self, handle: WorkerHandle) -> tuple[int, int]:
        """Its connections, with those on their way; of equal ones, the one that has had fewer is first."""
        open_count, accepted_count = self._table.load(handle.worker)
        return open_count + handle.sent_count - accepted_count, handle.sent_count

    def make_room(self) -> bool:
        """False: the process of a listener keeps no connection that it could close."""
        return False

    # ---- status

    def _serving(self) -> list[WorkerHandle]:
        return [each for each in self._workers.values() if each.is_serving]

    @property
    def serving_count(self) -> int:
        return len(self._serving())

    def wait_reason(self) -> str | None:
        """Why the pool is not ready: at the start all workers must serve, later one. None while it is."""
        count = self.serving_count
        self._has_started = self._has_started or count == self._config.workers
        if count and self._has_started:
            return None
        return f"{count} of {self._config.workers} workers serve"

    def lines(self) -> list[str]:
        """The state of the workers, and of their audit logs, for `/readyz`."""
        lines = [f"workers: {self.serving_count} of {self._config.workers} serve"]
        for handle in self._workers.values():
            if handle.problem:
                lines.append(f"worker {handle.worker}: {handle.problem}")
            if handle.report is not None:
                lines.append(f"worker {handle.worker}: {handle.report.audit}")
        return lines

    def document(self) -> list[dict[str, object]]:
        """The workers in /status."""
        return [
            {
                "worker": handle.worker,
                "pid": handle.process.pid,
                "isServing": handle.is_serving,
                "hasAppliedTenants": handle.is_current,
                "connections": 0 if handle.report is None else handle.report.connections,
                "tunnels": 0 if handle.report is None else handle.report.tunnels,
            }
            for handle in self._workers.values()
        ]

    def reports(self) -> list[WorkerReport]:
        """What the workers have reported last."""
        return [each.report for each in self._workers.values() if each.report is not None]

    # ---- the end

    async def drain(self, seconds: float) -> None:
        """Have the workers finish what they serve within `seconds`, and wait for their end."""
        self._state.is_draining = True
        for waiting in self._waiting:
            waiting.sock.close()
        self._waiting.clear()
        _log.info("shutting down: workers finish their streams", seconds=seconds)
        for handle in self._workers.values():
            handle.channel.send(Drain(seconds))
        if self._worker_tasks:
            await asyncio.wait(self._worker_tasks, timeout=seconds + END_S)
        for handle in list(self._workers.values()):
            _log.error("a worker did not end in time", worker=handle.worker)
            handle.kill()
        if self._worker_tasks:
            await asyncio.wait(self._worker_tasks, timeout=END_S)
        await self._own_tasks.close(END_S)
        await self._state.drain(0.0)
        os.close(self._usage_descriptor)
