# SPDX-License-Identifier: Apache-2.0
"""One running vn-agent: builds the parts, starts them in order, drains them at the end."""

import asyncio
import signal
import socket
import sys
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from daemonkit import logs
from daemonkit.files.watched import Watched
from daemonkit.run.daemon_shell import DaemonShell, freeze_heap
from daemonkit.run.lifecycle import EXIT_FAILED, Lifecycle
from daemonkit.run.process_limits import raise_descriptor_limit
from daemonkit.run.service_manager import ServiceManager
from daemonkit.status.server import Readiness
from tenancy.registry import Registry
from vnagent import live_metrics
from vnagent.audit_log import AuditLog
from vnagent.config import NodeFigures, VnAgentConfiguration
from vnagent.core.kubelet_facts import merged_protocols
from vnagent.dispatch import Dispatcher
from vnagent.downstream.listener import Listener
from vnagent.exchange.node_totals import NodeTotals
from vnagent.exchange.page_service import PageService
from vnagent.metrics import TOKEN_REFUSALS, AgentMetrics
from vnagent.reload import Reloadable, Reloader
from vnagent.request_log import RequestLog
from vnagent.saved_state import SavedState
from vnagent.sources.configured import ConfiguredSources
from vnagent.sources.publisher import Publisher
from vnagent.state import AgentState
from vnagent.tenant_server import SWITCH_S, TenantServer
from vnagent.token_listeners import TokenListeners
from vnagent.transport.poller import SocketPoller
from vnagent.trust import spiffe_trust
from vnagent.upstream.configured import upstream_of
from vnagent.upstream.facts_reader import FactsReader
from vnagent.workers.merged_metrics import MergedRegistry

if TYPE_CHECKING:
    from vnagent.workers.pool import WorkerPool

# How long a start waits for a source to be read, and then for all to sync, before READY. It listens already:
# until they have synced, requests are answered 503, or by saved state.
FIRST_READ_S = 5.0
# A connection outlives its certificates by this at most.
EXPIRY_PERIOD_S = 1.0
# Under which systemd keeps it between two processes.
LISTENER = "tenants"
_NONE_KEPT: Mapping[str, socket.socket] = MappingProxyType({})

_log = logs.get(__name__)


class Service:
    """Everything that lives from start to stop."""

    def __init__(
        self, config: VnAgentConfiguration, kept_listeners: Mapping[str, socket.socket] = _NONE_KEPT
    ) -> None:
        """Build all parts and bind the listeners that no earlier process has bound; nothing is dialled.

        Raises TlsError, OSError.
        """
        self._config = config
        loop = asyncio.get_running_loop()
        self._registry = MergedRegistry({TOKEN_REFUSALS})
        self._metrics = AgentMetrics(self._registry)
        self._shell = DaemonShell("vn-agent", node_name=config.node_name, stops_on_failure=False)
        self._tasks = self._shell.tasks
        self._audit_log = AuditLog(loop, config.audit.path, self._metrics.audit_lost)
        self._audit_log.open()
        self._poller = SocketPoller(loop)
        self._upstream = upstream_of(config, self._poller)
        self._facts = FactsReader(self._upstream.pool, self._tasks)
        self.state = AgentState(
            poller=self._poller,
            limits=config.limits.limits(),
            metrics=self._metrics,
            request_log=RequestLog(self._audit_log, self._metrics),
            registry=Registry(spiffe=spiffe_trust(config)),
        )
        self._saved = None
        if config.state_directory is not None:
            self._saved = SavedState(config.state_directory, self._metrics.state_errors)
            self._saved.prepare()
        upstream = self._upstream.pool
        self._totals = NodeTotals(lambda: self.state.registry.tenants, self._saved)
        self._pages = PageService(
            upstream,
            config.pages.max_age_seconds,
            self._tasks,
            self._totals,
            has_node_figures=config.pages.node_figures is NodeFigures.NODE,
        )
        self._publisher = Publisher(config, self.state, self._saved)
        self._sources = ConfiguredSources(config, self.state, self._publisher, upstream, self._tasks)
        live_metrics.watch_connections(self._metrics.registry, self.state, upstream)
        live_metrics.watch_sources(self._metrics.registry, self.state, self._publisher, self._sources)
        live_metrics.watch_workers(
            self._metrics.registry, lambda: 0 if self._workers is None else self._workers.serving_count
        )
        self._workers: WorkerPool | None = None
        self._server = self._tenant_server(loop)
        self._listener = Listener(
            loop,
            config.listen.address,
            config.listen.port,
            self._server.accept,
            self._server.make_room,
            kept_listeners.get(LISTENER),
        )
        self._token_listeners = TokenListeners(config, loop, self._server, self._metrics, kept_listeners)
        # Token listeners have polled before they loaded: a change since then must not be missed.
        self._polled_at_start = (*self._certificates(), *self._sources.reloadables)
        reloadables = (*self._polled_at_start, *self._token_listeners.reloadables)
        self._reloader = Reloader(reloadables, self._metrics.reloads)

    def _tenant_server(self, loop: asyncio.AbstractEventLoop) -> "TenantServer | WorkerPool":
        """What serves connections: this process, or workers."""
        config, sources = self._config, self._sources
        if config.workers > 1:
            # Only here: a node with one process saves its memory.
            from vnagent.workers.pool import WorkerPool

            self._workers = WorkerPool(
                config,
                self.state,
                self._pages,
                self._registry,
                self._metrics.workers_ended,
                self._tasks,
                refreshable=sources.refreshable,
                are_pods_stale=sources.are_pods_stale,
            )
            return self._workers
        dispatcher = Dispatcher(
            self.state,
            self._upstream.pool,
            self._pages,
            self._tasks,
            refreshable=sources.refreshable,
            are_pods_stale=sources.are_pods_stale,
            is_audit_required=config.audit.required,
        )
        return TenantServer(loop, self.state, dispatcher)

    def _certificates(self) -> tuple[Reloadable, ...]:
        serving = self._config.serving
        own = [serving.certificate_file, serving.key_file]
        if self._config.spiffe is not None:
            own.append(self._config.spiffe.ca_file)

        async def reload_serving() -> str | None:
            return self._sources.reload_trust()

        return (
            Reloadable("serving", Watched.files(own).poll, reload_serving),
            self._upstream.reloadable,
        )

    # ---- status

    def readiness(self) -> Readiness:
        """Ready when both tenants and pods are known (also from saved state), and not draining.

        The first read of the kubelet's facts is over then: afterwards vn-agent asks for none by itself.
        """
        sources = self._sources.statuses()
        lines = [each.line() for each in sources]
        lines.extend([self._audit_log.report()] if self._workers is None else self._workers.lines())
        lines.extend(self._token_listeners.lines())
        if self.state.is_draining:
            lines.append("draining")
        missing = [*filter(None, (each.wait_reason() for each in sources))]
        if self._workers is not None:
            missing.extend(filter(None, (self._workers.wait_reason(),)))
        if not self._facts.is_first_read_done:
            missing.append("the kubelet's facts are being read")
        if self.state.is_draining:
            missing.append("draining")
        return Readiness(not missing, tuple(lines), "; ".join(missing))

    def status(self) -> dict[str, object]:
        state, upstream = self.state, self._upstream.pool
        host, port = self._listener.bound
        reports = [] if self._workers is None else self._workers.reports()
        protocols = [upstream.stream_protocols.document(), *(each.stream_protocols for each in reports)]
        return {
            "listen": {"address": host, "port": port},
            "tokenListeners": self._token_listeners.document(),
            "kubelet": {
                "address": upstream.requests.authority,
                "server": self._upstream.server,
                "connections": upstream.open_count + sum(each.kubelet_connections for each in reports),
                **self._facts.current().document(),
                "streamProtocols": merged_protocols(protocols),
            },
            "sources": {each.name: each.document() for each in self._sources.statuses()},
            "tenants": sorted(state.registry.tenants),
            "badTenants": [
                {
                    "source": each.source,
                    "tenant": each.tenant,
                    "reason": each.reason,
                    "keepsLastGoodState": each.is_kept,
                }
                for each in state.tenant_problems
            ],
            "pods": {"tenants": len(state.index), "notServed": list(state.pod_problems)},
            "connections": len(state.connections) + sum(each.connections for each in reports),
            "tunnels": len(state.tunnels) + sum(each.tunnels for each in reports),
            "workers": [] if self._workers is None else self._workers.document(),
            "isDraining": state.is_draining,
        }

    # ---- life

    async def run(self, life: Lifecycle) -> int:
        """Serve until the stop signal, then drain. Returns the exit code."""
        raise_descriptor_limit()
        freeze_heap()
        sys.setswitchinterval(SWITCH_S)
        life.on_reload(self._reload)
        # A signal of its own: SIGHUP comes from logrotate each night, and must remove no tenant.
        life.on_signal(signal.SIGUSR1, self._publisher.release_tenants)
        self._poller.start()
        await self._shell.start(
            life,
            self._config.status.listen_at,
            self._metrics.registry,
            readiness=self.readiness,
            status=self.status,
            gather=None if self._workers is None else self._workers.gather,
            scrapes=self._config.metrics,
        )
        self._publisher.restore()
        self._totals.restore()
        for source in self._polled_at_start:
            source.poll()  # so that the present content is not a change later
        await self._server.start()
        self._listener.start()
        life.manager.keep_listener(LISTENER, self._listener.sock.fileno())
        self._token_listeners.start(life.manager)
        await self._upstream.start()
        self._tasks.spawn(self._upstream.run(), "upstream")
        self._tasks.spawn(self._facts.read_first(), "first facts")
        self._sources.start()
        await self._read_first(life)
        if self._saved is not None:
            self._tasks.spawn(self._saved.run(), "state")
        self._tasks.spawn(self._sources.run(), "confirm")
        self._tasks.spawn(self._reloader.run(), "reload")
        self._tasks.spawn(self._end_expired(), "expiry")
        await self._shell.announce(FIRST_READ_S, self._start_fields)
        has_failed = await self._wait_for_end(life)
        await self._stop(life.manager)
        return EXIT_FAILED if has_failed else 0

    async def _wait_for_end(self, life: Lifecycle) -> bool:
        """Wait for the stop signal, or until workers cannot be supervised: then true."""
        if self._workers is None:
            await life.stopping.wait()
            return False
        ends = [
            self._tasks.spawn(event.wait(), name)
            for event, name in ((life.stopping, "stop"), (self._workers.failed, "failure of workers"))
        ]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        return self._workers.failed.is_set()

    def _start_fields(self) -> dict[str, object]:
        host, port = self._listener.bound
        return {"address": host, "port": port, "node": self._config.node_name}

    async def _read_first(self, life: Lifecycle) -> None:
        """Read every source once before READY, with a deadline."""
        for source in self._sources.reloadables:  # certificates and keys were read to get here
            if life.stopping.is_set():
                return
            try:
                async with asyncio.timeout(FIRST_READ_S):
                    problem = await source.reload()
            except TimeoutError:
                problem = "no answer in time"
            if problem is not None:
                _log.error("source could not be read", source=source.name, problem=problem)

    async def _end_expired(self) -> None:
        while True:
            self.state.end_expired(time.time())
            await asyncio.sleep(EXPIRY_PERIOD_S)

    def _reload(self) -> None:
        try:
            self._audit_log.open()  # it may have been moved away by logrotate
        except OSError as error:
            _log.error("audit log cannot be reopened; the old file stays", reason=error)
        self._reloader.request_reload()
        if self._workers is not None:
            self._workers.reload()

    async def _stop(self, manager: ServiceManager) -> None:
        self._listener.stop()
        self._totals.save()
        self._token_listeners.stop()
        if manager.can_hand_over:
            # The next process binds the status socket and owns the saved state. This one follows its sources
            # to the end: what is revoked meanwhile loses its streams.
            if self._saved is not None:
                await self._saved.close()
            await self._shell.stop()
            manager.hand_over()
        await self._server.drain(self._config.drain.seconds)
        self._upstream.pool.close_idle()
        await self._shell.end_tasks()
        self._pages.close()
        if self._saved is not None:
            await self._saved.close()
        await self._poller.abort_all()
        self._poller.stop()
        self._audit_log.close()
        await self._shell.stop()
