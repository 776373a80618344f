# SPDX-License-Identifier: Apache-2.0
"""One worker as the main process sees it: its process, its channel, what it has applied and reported."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass

from daemonkit import logs
from tenancy.registry import Registry
from vnagent.state import AgentState
from vnagent.workers.message_channel import MessageChannel
from vnagent.workers.messages import (
    SILENT_S,
    AcceptedConnection,
    PodsChanged,
    ReportRequested,
    Setup,
    TenantsApplied,
    TenantsChanged,
    WorkerConditions,
    WorkerReport,
)
from vnagent.workers.rows import Rows
from vnagent.workers.worker_requests import WorkerRequests

# vnagent.__main__ takes it.
ARGUMENT = "--worker"
# A worker applies a removal of tenants in milliseconds. One that has not by then serves what may be revoked.
APPLY_S = 10.0
# For a worker whose channel has closed to end.
EXIT_S = 3.0
# For a worker to report for the first time: a machine may start many at once.
START_S = 60.0
# So often a worker gets something, or it would take this process for hung.
HEARTBEAT_S = 1.0
# What a worker that does not read may keep of this process' memory.
MAX_UNSENT_BYTES = 512 << 20

_log = logs.get(__name__)


@dataclass(slots=True)
class _Sent:
    """What the worker has got so far."""

    registry: Registry | None = None
    index: object = None
    conditions: WorkerConditions | None = None


class WorkerHandle:
    """A running worker with the index `worker`."""

    def __init__(
        self,
        worker: int,
        process: asyncio.subprocess.Process,
        channel: MessageChannel,
        connections: socket.socket,
        requests: WorkerRequests,
        now_s: float,
    ) -> None:
        """`connections` passes accepted sockets."""
        self.worker = worker
        self.process = process
        self.channel = channel
        self.requests = requests
        self.report: WorkerReport | None = None
        # Wait for the report of a request, by its number.
        self._awaited: dict[int, asyncio.Future[None]] = {}
        self._request_count = 0
        self.applied = 0
        self.problem = ""
        self.sent_count = 0
        self._connections = connections
        self._sent = _Sent()
        self._generation = 0
        self._has_trust = False
        self._sent_s = now_s
        self._pending_since_s: float | None = None
        self._received_s = now_s

    @property
    def is_serving(self) -> bool:
        """Whether it has tenants, pods and trust, and can take connections."""
        return self.applied > 0 and self._has_trust

    @property
    def is_current(self) -> bool:
        """Whether it has applied the last change of tenants."""
        return self.applied == self._generation

    # ---- to the worker

    def update(self, state: AgentState, rows: Rows, conditions: WorkerConditions, now_s: float) -> None:
        """Send what has changed since the last time. Tenants come last, as a worker serves from then on; a
        further change of them waits until the last one is applied."""
        sent, registry = self._sent, state.registry
        if sent.index is not state.index and state.index.is_synced:
            self.channel.send(PodsChanged(tuple(state.index)))
            sent.index = state.index
        if sent.conditions != conditions or now_s - self._sent_s >= HEARTBEAT_S:
            self.channel.send(conditions)
            sent.conditions, self._sent_s = conditions, now_s
        if sent.registry is not registry and self.is_current:
            before = {} if sent.registry is None else sent.registry.sources
            changed = {
                source: tenant
                for source, tenant in registry.sources.items()
                if before.get(source) is not tenant
            }
            removed = tuple(before.keys() - registry.sources.keys())
            self._generation += 1
            self._pending_since_s = now_s
            self.channel.send(
                TenantsChanged(
                    self._generation,
                    changed,
                    removed,
                    rows.of(tenant.key for tenant in changed.values()),
                    registry.spiffe,
                )
            )
            sent.registry = registry

    def pass_connection(self, sock: socket.socket, accepted: AcceptedConnection) -> bool:
        """Have the worker serve a connection; False if it takes none now."""
        try:
            socket.send_fds(self._connections, [accepted.encode()], [sock.fileno()])
        except OSError:
            return False
        self.sent_count += 1
        return True

    # ---- from the worker

    def take_applied(self, applied: TenantsApplied) -> None:
        """The worker has applied a change of tenants."""
        self.applied, self.problem = applied.generation, applied.problem
        self._has_trust = applied.has_trust
        if self.is_current:
            self._pending_since_s = None

    def request_report(self) -> "asyncio.Future[None]":
        """Have the worker report now. Done when it has, or has ended."""
        self._request_count += 1
        future = self._awaited[self._request_count] = asyncio.get_running_loop().create_future()
        self.channel.send(ReportRequested(self._request_count))
        return future

    def take_report(self, report: WorkerReport) -> None:
        self.report = report
        self._end_requests(report.request)

    def _end_requests(self, last: int) -> None:
        for request in [each for each in self._awaited if each <= last]:
            future = self._awaited.pop(request)
            if not future.done():
                future.set_result(None)

    def message_received(self, now_s: float) -> None:
        """Any message has come."""
        self._received_s = now_s

    def restart_deadlines(self, now_s: float) -> None:
        """Expect of the worker from now on what it had to do by now."""
        self._received_s = now_s
        if self._pending_since_s is not None:
            self._pending_since_s = now_s

    def fault(self, now_s: float) -> str:
        """Why the worker must be ended; empty while it works."""
        if self._pending_since_s is not None and now_s - self._pending_since_s > APPLY_S and self.is_serving:
            return "it has not applied a change of tenants"
        if now_s - self._received_s > (START_S if self.report is None else SILENT_S):
            return "it does not answer"
        if self.channel.unsent_bytes > MAX_UNSENT_BYTES:
            return "it does not read"
        return ""

    # ---- the end

    def kill(self) -> None:
        """End the process, and with it all its connections."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)

    async def wait_ended(self) -> int:
        """The process' exit code: its channel is closed, so that it ends by itself, or is killed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXIT_S):
                return await self.process.wait()
        self.kill()
        return await self.process.wait()

    def close(self) -> None:
        """The process has ended."""
        self._end_requests(self._request_count)
        self.requests.close()
        self.channel.close()
        self._connections.close()


async def start_worker(
    setup: Setup, usage_descriptor: int, requests_of: Callable[[MessageChannel], WorkerRequests]
) -> WorkerHandle:
    """Start the same program as this one, as a worker. Raises OSError."""
    ours, theirs = socket.socketpair()
    connections, their_connections = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, their_connections:
        descriptors = (theirs.fileno(), their_connections.fileno(), usage_descriptor)
        command = [*_program(), ARGUMENT, *map(str, descriptors)]
        try:
            process = await asyncio.create_subprocess_exec(
                *command, pass_fds=descriptors, stdin=asyncio.subprocess.DEVNULL
            )
        except OSError:
            ours.close()
            connections.close()
            raise
    connections.setblocking(False)
    channel = await MessageChannel.open(ours)
    channel.send(setup)
    now_s = asyncio.get_running_loop().time()
    return WorkerHandle(setup.worker, process, channel, connections, requests_of(channel), now_s)


def _program() -> list[str]:
    """This program's interpreter, with its options and script, and without the arguments."""
    count = len(sys.argv) - 1
    return [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - count]]
