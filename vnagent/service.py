# SPDX-License-Identifier: Apache-2.0
"""One running vn-agent: builds the parts, starts them in order, drains them at the end."""

import asyncio
import signal
import sys
import time

from daemonkit import logs
from daemonkit.files.watched import Watched
from daemonkit.run.daemon_shell import DaemonShell, freeze_heap
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.run.process_limits import raise_descriptor_limit
from daemonkit.status.server import Readiness
from daemonkit.tls.contexts import TlsError
from vnagent.audit_log import AuditLog
from vnagent.config import VnAgentConfiguration
from vnagent.core.limits import Limits
from vnagent.downstream.handshakes import Handshakes
from vnagent.downstream.listener import Listener
from vnagent.exchange.page_service import PageService
from vnagent.metrics import Metrics
from vnagent.reload import Reloadable, Reloader
from vnagent.saved_state import SavedState
from vnagent.sources.publisher import Feeds
from vnagent.state import Agent
from vnagent.transport.poller import Channels
from vnagent.trust import kubelet_context
from vnagent.upstream.kubelet import KubeletAddress, KubeletPool

# How long a start waits for the first word of its sources before it listens all the same: until
# they are heard, requests are answered 503, or by saved state.
FIRST_READ_S = 5.0
# A connection outlives its certificates by this at most.
EXPIRY_PERIOD_S = 1.0
# How long the loop waits for a thread that renders a page; Python's own 5 ms are ten echoes.
SWITCH_S = 0.0005

_log = logs.get(__name__)


class Service:
    """Everything that lives from start to stop."""

    def __init__(self, config: VnAgentConfiguration) -> None:
        """Build all parts and bind the listener; nothing is dialled. Raises TlsError, OSError."""
        self._config = config
        loop = asyncio.get_running_loop()
        self._metrics = Metrics()
        self._shell = DaemonShell("vn-agent", node_name=config.node_name, stops_on_failure=False)
        self._tasks = self._shell.tasks
        self._audit_log = AuditLog(loop, config.audit.path, self._metrics.audit_lost)
        self._audit_log.open()
        self._channels = Channels(loop)
        kubelet = config.kubelet
        address = KubeletAddress(kubelet.address, kubelet.port, kubelet.server_name or kubelet.address)
        self._kubelet = KubeletPool(self._channels, address, kubelet_context(config))
        self._pages = PageService(self._kubelet, config.pages.max_age_seconds, self._tasks)
        self.agent = Agent(
            channels=self._channels,
            kubelet=self._kubelet,
            pages=self._pages,
            limits=Limits(
                config.limits.connections_per_tenant,
                config.limits.tunnels_per_tenant,
                config.limits.requests_per_second_per_tenant,
                config.limits.buffered_bytes_per_tenant,
            ),
            metrics=self._metrics,
            audit_log=self._audit_log,
            tasks=self._tasks,
            is_audit_required=config.audit.required,
        )
        self._state = None
        if config.state_directory is not None:
            self._state = SavedState(config.state_directory, self._metrics.state_errors)
            self._state.prepare()
        self._feeds = Feeds(config, self.agent, self._state, self._tasks)
        self.agent.ages, self.agent.saved = self._feeds.ages, self._feeds.saved
        self._sources = (*self._certificates(), *self._feeds.reloadables())
        self._reloader = Reloader(self._sources, self._metrics.reloads)
        self._metrics.watch(self.agent)
        self._metrics.watch_retained(
            lambda: len(self._feeds.retained_sources), lambda: len(self._feeds.retained_lists)
        )
        self._handshakes = Handshakes(loop, self.agent)
        self._listener = Listener(
            loop,
            config.listen.address,
            config.listen.port,
            self._handshakes.accept,
            self._handshakes.make_room,
        )

    def _certificates(self) -> tuple[Reloadable, ...]:
        serving, kubelet = self._config.serving, self._config.kubelet
        own = [serving.certificate_file, serving.key_file]
        if self._config.spiffe is not None:
            own.append(self._config.spiffe.ca_file)
        theirs = (kubelet.ca_file, kubelet.client_certificate_file, kubelet.client_key_file)

        async def reload_serving() -> str | None:
            return self._feeds.reload_trust()

        async def reload_kubelet() -> str | None:
            try:
                self._kubelet.replace_context(kubelet_context(self._config))
            except TlsError as error:
                return str(error)
            return None

        return (
            Reloadable("serving", Watched.files(own).poll, reload_serving),
            Reloadable("kubelet", Watched.files(theirs).poll, reload_kubelet),
        )

    # ---- what it says of itself

    def readiness(self) -> Readiness:
        """Ready when both tenants and pods are known, be it from saved state, and not draining."""
        sources = self._feeds.statuses()
        lines = [each.line() for each in sources]
        lines.append(self._audit_log.report())
        if self.agent.is_draining:
            lines.append("draining")
        is_ready = all(each.age_s is not None for each in sources) and not self.agent.is_draining
        return Readiness(is_ready, tuple(lines))

    def status(self) -> dict[str, object]:
        agent = self.agent
        host, port = self._listener.bound
        return {
            "listen": {"address": host, "port": port},
            "kubelet": {
                "address": self._kubelet.address.authority,
                "connections": self._kubelet.open_count,
            },
            "sources": {each.name: each.document() for each in self._feeds.statuses()},
            "tenants": sorted(agent.registry.tenants),
            "badTenants": [
                {
                    "source": each.source,
                    "tenant": each.tenant,
                    "reason": each.reason,
                    "keepsLastGoodState": each.is_kept,
                }
                for each in agent.tenant_problems
            ],
            "pods": {"tenants": len(agent.index), "notServed": list(agent.pod_problems)},
            "connections": len(agent.connections),
            "tunnels": len(agent.tunnels),
            "isDraining": agent.is_draining,
        }

    # ---- life

    async def run(self, life: Lifecycle) -> int:
        """Serve until told to stop, then drain. Returns the exit code."""
        raise_descriptor_limit()
        freeze_heap()
        sys.setswitchinterval(SWITCH_S)
        life.on_reload(self._reload)
        # A signal of its own: SIGHUP comes from logrotate each night, and must remove no tenant.
        life.on_signal(signal.SIGUSR1, self._feeds.release_tenants)
        self._channels.start()
        await self._shell.start(
            life,
            self._config.status.listen_at,
            self._metrics.registry,
            readiness=self.readiness,
            status=self.status,
        )
        self._feeds.restore()
        for source in self._sources:
            source.changed()  # what is read now is no change later
        self._handshakes.start()
        self._listener.start()
        self._feeds.start()
        await self._read_first()
        if self._state is not None:
            self._tasks.spawn(self._state.run(), "state")
        self._tasks.spawn(self._feeds.run(), "confirm")
        self._tasks.spawn(self._reloader.run(), "reload")
        self._tasks.spawn(self._end_expired(), "expiry")
        host, port = self._listener.bound
        _log.info("serving", address=host, port=port, node=self._config.node_name)
        life.ready()
        await life.stopping.wait()
        await self._stop()
        return 0

    async def _read_first(self) -> None:
        """Read every source once, so that READY means something; but not for ever."""
        for source in self._sources[2:]:  # the certificates were read to get here
            try:
                async with asyncio.timeout(FIRST_READ_S):
                    problem = await source.reload()
            except TimeoutError:
                problem = "no answer in time"
            if problem is not None:
                _log.error("source is not as it should be", source=source.name, problem=problem)

    async def _end_expired(self) -> None:
        while True:
            self.agent.end_expired(time.time())
            await asyncio.sleep(EXPIRY_PERIOD_S)

    def _reload(self) -> None:
        try:
            self._audit_log.open()  # it may have been moved away by logrotate
        except OSError as error:
            _log.error("audit log cannot be opened again", reason=error)
        self._reloader.ask()

    async def _stop(self) -> None:
        self._listener.stop()
        self._handshakes.stop()
        _log.info("draining", seconds=self._config.drain.seconds, tunnels=len(self.agent.tunnels))
        await self.agent.drain(self._config.drain.seconds)
        self._kubelet.close_idle()
        await self._shell.end_tasks()
        self._pages.close()
        if self._state is not None:
            await self._state.write_due()
        self._channels.stop()
        self._audit_log.close()
        await self._shell.stop()
