# SPDX-License-Identifier: Apache-2.0
"""A worker: serves the connections that the main process passes to it, by tenants and pods from there.

It reads no source, and decides as one process does. It has connections of its own to the server upstream, and
writes its own audit lines. When its channel closes, the main process has ended, and so does it: it would not
learn what is revoked.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence

from daemonkit import logs
from daemonkit.config.logging_config import apply_logging
from daemonkit.run.daemon_shell import freeze_heap
from daemonkit.run.process_limits import raise_descriptor_limit
from daemonkit.tasks import Tasks
from daemonkit.tls.contexts import TlsError
from daemonkit.version import VERSION
from tenancy.ownership import OwnerIndex
from tenancy.registry import Registry
from vnagent import live_metrics
from vnagent.audit_log import AuditLog
from vnagent.core.limits import NO_PEERS, PeerUsage
from vnagent.dispatch import Dispatcher
from vnagent.downstream.listener import accepts_in_turn
from vnagent.metrics import AgentMetrics
from vnagent.reload import Reloader
from vnagent.request_log import RequestLog
from vnagent.state import AgentState
from vnagent.tenant_server import SWITCH_S, TenantServer
from vnagent.token_ports import ConfiguredTokenPort
from vnagent.transport.event_loop import AgentLoop, watcher_of
from vnagent.transport.poller import SocketPoller
from vnagent.trust import tenants_context, tokens_context
from vnagent.upstream.configured import upstream_of
from vnagent.workers import messages
from vnagent.workers.audit_turn import AuditTurn
from vnagent.workers.message_channel import ChannelClosedError, MessageChannel
from vnagent.workers.messages import (
    PAUSE_S,
    SILENT_S,
    AcceptedConnection,
    Drain,
    PageFailed,
    PageRendered,
    PodsChanged,
    PodsRead,
    Reload,
    ReportRequested,
    Setup,
    Started,
    TenantsApplied,
    TenantsChanged,
    WorkerConditions,
    WorkerReport,
)
from vnagent.workers.remote import RemotePages, RemotePods
from vnagent.workers.usage_table import UsageTable

# How often counts of closed connections reach the other workers, and certificates are checked for expiry.
PERIOD_S = 0.25
# How often the main process gets what is counted; it ends a worker that is silent for long.
REPORT_S = 1.0
# After trust that could not be built: a file of the serving certificate may be written just now.
REBUILD_S = 1.0
TASKS_END_S = 2.0
# Of the message that has a connection: the address of the client, and the port where it was accepted.
MAX_ACCEPTED_BYTES = 256

_log = logs.get(__name__)


class Worker:
    """Everything that a worker has, from its start to its end."""

    def __init__(
        self, setup: Setup, channel: MessageChannel, connections: socket.socket, usage_descriptor: int
    ) -> None:
        """Nothing is served yet. Raises TlsError, OSError."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._watcher = watcher_of(loop)
        self._config = config = setup.config
        self._channel = channel
        self._connections = connections
        self._worker = setup.worker
        self._metrics = AgentMetrics()
        self._tasks = Tasks("worker")
        self._table = UsageTable(usage_descriptor, setup.workers)
        self._rows: dict[str, int] = {}
        turn = AuditTurn(usage_descriptor)
        self._audit_log = AuditLog(loop, config.audit.path, self._metrics.audit_lost, turn)
        self._audit_log.open()
        self._poller = SocketPoller(loop)
        self._poller.has_peers = True
        self._upstream = upstream_of(config, self._poller)
        self._state = AgentState(
            poller=self._poller,
            limits=config.limits.limits(),
            metrics=self._metrics,
            request_log=RequestLog(self._audit_log, self._metrics),
            registry=Registry(),
            peers_of=self._peers_of,
        )
        self._pages = RemotePages(channel)
        self._pods = RemotePods(channel)
        self._are_pods_stale = True
        live_metrics.watch_connections(self._metrics.registry, self._state, self._upstream.pool)
        dispatcher = Dispatcher(
            self._state,
            self._upstream.pool,
            self._pages,
            self._tasks,
            refreshable=self._pods if config.pods.is_read_on_demand else None,
            are_pods_stale=lambda: self._are_pods_stale,
            is_audit_required=config.audit.required,
        )
        self._server = TenantServer(loop, self._state, dispatcher)
        now_s = loop.time()
        self._token_ports = {
            each.port: ConfiguredTokenPort(each, self._metrics, now_s) for each in config.token_listeners
        }
        keys = (each.reloadable for each in self._token_ports.values())
        self._reloader = Reloader((self._upstream.reloadable, *keys), self._metrics.reloads)
        self._accepted_count = 0
        self._generation = 0
        self._received_s = now_s
        self._spare_descriptor = -1
        self._report_request = 0
        self._rebuild: asyncio.TimerHandle | None = None

    def _peers_of(self, tenant: str) -> PeerUsage:
        row = self._rows.get(tenant)
        return NO_PEERS if row is None else self._table.peers(row, self._worker)

    async def run(self) -> None:
        """Serve until the main process has it drain, or ends. Raises ChannelClosedError for the latter."""
        self._poller.start()
        await self._upstream.start()
        await self._server.start()
        self._upstream.reloadable.poll()  # so that the present content is not a change later
        self._tasks.spawn(self._upstream.run(), "upstream")
        self._tasks.spawn(self._reloader.run(), "reload")
        self._tasks.spawn(self._exchange(), "exchange")
        self._tasks.spawn(self._report(), "report")
        self._loop.add_reader(self._connections.fileno(), self._on_connection)
        self._channel.send(Started())
        while True:
            message = await self._channel.receive_for_worker()
            self._received_s = self._loop.time()
            match message:
                case TenantsChanged():
                    self._serve_tenants(message)
                case PodsChanged(pods=pods):
                    self._state.serve_pods(OwnerIndex(pods), ())
                case WorkerConditions(are_pods_stale=are_stale, log_level=level):
                    self._are_pods_stale = are_stale
                    logs.set_level(level)
                case PageRendered() | PageFailed():
                    self._pages.answer(message)
                case PodsRead():
                    self._pods.answer(message)
                case ReportRequested(request=request):
                    self._report_request = request
                    self._send_report()
                case Reload():
                    self._reload()
                case Drain(seconds=seconds):
                    self._tasks.spawn(self._drain(seconds), "drain")
                case Setup():
                    raise ValueError("a second setup")

    # ---- connections

    def _on_connection(self) -> None:
        for _ in range(accepts_in_turn(self._watcher.ready_count)):
            if not self._receive_connection():
                return

    def _receive_connection(self) -> bool:
        """Take one connection from the main process; False if none has come.

        The kernel closes a connection for which the process has no descriptor left. So one is kept for it.
        """
        self._free_descriptor()
        try:
            data, descriptors, _, _ = socket.recv_fds(self._connections, MAX_ACCEPTED_BYTES, 1)
        except (BlockingIOError, InterruptedError):
            return False
        finally:
            self._keep_descriptor()
        if not data:
            self._loop.remove_reader(self._connections.fileno())
            return False
        self._accepted_count += 1
        if descriptors:
            accepted = AcceptedConnection.decode(data)
            token_port = None if accepted.token_port is None else self._token_ports[accepted.token_port].port
            self._server.accept(socket.socket(fileno=descriptors[0]), accepted.host, token_port)
        else:
            # The process has no descriptor left, and the kernel has closed this one: the next one has room.
            self._server.make_room()
        self._publish_load()
        return True

    def _free_descriptor(self) -> None:
        if self._spare_descriptor >= 0:
            os.close(self._spare_descriptor)
            self._spare_descriptor = -1

    def _keep_descriptor(self) -> None:
        """Keep a descriptor for the next connection, if need be that of one that has proven nothing."""
        for _ in range(2):
            try:
                self._spare_descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._server.make_room()
            else:
                return

    def _publish_load(self) -> None:
        self._table.publish_load(self._worker, self._server.open_count, self._accepted_count)

    # ---- from the main process

    def _serve_tenants(self, message: TenantsChanged) -> None:
        """Apply it at once, and cut what it revokes. What it adds may have to wait for trust."""
        state = self._state
        self._rows.update(message.rows)
        sources = {
            source: tenant
            for source, tenant in state.registry.sources.items()
            if source not in message.removed
        } | dict(message.changed)
        registry = Registry(sources, message.spiffe)
        for tenant in self._rows.keys() - registry.tenants.keys():
            del self._rows[tenant]
        self._generation = message.generation
        self._serve(registry)

    def _serve(self, registry: Registry) -> None:
        """Serve these tenants, and report that.

        A client's identity is decided by the registry, after its handshake. So with the trust of before, no
        removed tenant is served.
        """
        state, problem = self._state, ""
        if self._rebuild is not None:
            self._rebuild.cancel()
            self._rebuild = None
        try:
            context = tenants_context(self._config, registry.authorities())
            token_context = tokens_context(self._config)
        except TlsError as error:
            problem, context, token_context = str(error), state.context, state.token_context
            _log.error("trust could not be rebuilt; the last good one stays", reason=error)
            self._rebuild = self._loop.call_later(REBUILD_S, lambda: self._serve(state.registry))
        state.serve_tenants(registry, context, (), token_context)
        has_trust = not problem or context is not None
        self._channel.send(TenantsApplied(self._generation, problem, has_trust))

    def _reload(self) -> None:
        try:
            self._audit_log.open()  # it may have been moved away by logrotate
        except OSError as error:
            _log.error("audit log cannot be reopened; the old file stays", reason=error)
        self._reloader.request_reload()

    # ---- to the main process

    async def _exchange(self) -> None:
        now_s = self._loop.time()
        while True:
            before_s, now_s = now_s, self._loop.time()
            if now_s - before_s > PAUSE_S:
                # This process, or the machine, was paused: messages have come that were not read yet.
                self._received_s = now_s
            if now_s - self._received_s > SILENT_S:
                _log.error("the main process is silent, ending: what is revoked would not be known")
                self._channel.close()
                return
            await self._state.exchange_usages()
            self._publish_load()
            self._state.end_expired(time.time())
            await asyncio.sleep(PERIOD_S)

    async def _report(self) -> None:
        while True:
            self._send_report()
            await asyncio.sleep(REPORT_S)

    def _send_report(self) -> None:
        pool = self._upstream.pool
        self._channel.send(
            WorkerReport(
                self._report_request,
                self._metrics.registry.snapshot(),
                len(self._state.connections),
                len(self._state.tunnels),
                pool.open_count,
                tuple(pool.stream_protocols.document()),
                self._audit_log.report(),
            )
        )

    async def _drain(self, seconds: float) -> None:
        while self._receive_connection():
            """What the main process has accepted before."""
        self._loop.remove_reader(self._connections.fileno())
        await self._server.drain(seconds)
        self._upstream.pool.close_idle()
        await self._audit_log.write_last()
        self._send_report()
        await self._state.exchange_usages()
        self._publish_load()
        self._channel.close()

    async def stop(self) -> None:
        await self._tasks.close(TASKS_END_S)
        await self._poller.abort_all()
        self._poller.stop()
        self._audit_log.close()


async def _serve(setup: Setup, control: socket.socket, connections: socket.socket, usage: int) -> None:
    channel = await MessageChannel.open(control)
    worker = Worker(setup, channel, connections, usage)
    try:
        with contextlib.suppress(ChannelClosedError):
            await worker.run()
    finally:
        await worker.stop()
        channel.close()


def _receive_setup(control: socket.socket) -> Setup:
    """The first message. Raises OSError, ValueError."""
    length = messages.length_of(_receive_exactly(control, messages.LENGTH_BYTES))
    setup = messages.decode_for_worker(_receive_exactly(control, length))
    if not isinstance(setup, Setup):
        raise ValueError("the first message is no setup")
    if setup.version != VERSION:
        raise ValueError(f"version {VERSION} is installed, and {setup.version} runs: restart vn-agent")
    return setup


def _receive_exactly(control: socket.socket, size: int) -> bytes:
    data = control.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ValueError("the main process has ended")
    return data


def main(argv: Sequence[str]) -> int:
    """Run a worker. `argv` is `--worker` and three descriptors: of the channel, of the socket from which
    connections come, of the usage table."""
    # The main process alone decides when a worker ends: systemd and terminals signal whole groups.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    logs.setup()
    descriptors = [int(each) for each in argv[1:]]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    control, connections = (socket.socket(fileno=each) for each in descriptors[:2])
    connections.setblocking(False)
    try:
        setup = _receive_setup(control)
        apply_logging(setup.config)
        raise_descriptor_limit()
        freeze_heap()
        sys.setswitchinterval(SWITCH_S)
        control.setblocking(False)
        with asyncio.Runner(loop_factory=AgentLoop) as runner:
            runner.run(_serve(setup, control, connections, descriptors[2]))
    except Exception as error:  # noqa: BLE001 - the log is collected line by line
        _log.error("the worker failed", error=error, traceback=logs.trace(error))
        return 1
    return 0
