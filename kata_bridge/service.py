# SPDX-License-Identifier: Apache-2.0
"""One running kata-bridge: builds the parts, starts them in order, ends them."""

import asyncio
import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from daemonkit import logs
from daemonkit.config.binding import ConfigError
from daemonkit.config.logging_config import apply_logging
from daemonkit.files import directories
from daemonkit.kube.freshness import Freshness
from daemonkit.metrics import Registry
from daemonkit.run.daemon_shell import DaemonShell, freeze_heap
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.run.process_limits import raise_descriptor_limit
from daemonkit.status.server import Readiness
from daemonkit.tasks import Tasks
from kata_bridge.api.peer_auth import PeerAuthProxy, PeerPolicy, bind
from kata_bridge.api.server import BridgeServer
from kata_bridge.channels.agent.guest_addresses import GuestAddresses
from kata_bridge.channels.factory import ChannelFactory
from kata_bridge.channels.netns.executor import NetnsExecutor
from kata_bridge.channels.port import Unreachable
from kata_bridge.config import AgentConfig, KataBridgeConfiguration, StartGateConfig, load
from kata_bridge.cri.client import CriClient
from kata_bridge.guests.broadcaster import GuestBroadcaster
from kata_bridge.guests.core.ruleset_cache import RulesetCache
from kata_bridge.guests.driver import DriverContext, call_semaphores
from kata_bridge.guests.registry import GuestRegistry
from kata_bridge.lock import NodeLock
from kata_bridge.metrics import KataBridgeMetrics
from kata_bridge.nri.dispatch import Handler
from kata_bridge.nri.events import GATE, SANDBOXES, Event
from kata_bridge.nri.plugin import Plugin
from kata_bridge.sandboxes.core.sandbox import SandboxChange
from kata_bridge.sandboxes.cri_source import CriLister
from kata_bridge.sandboxes.discovery import NRI, Discovery
from kata_bridge.sandboxes.file_source import GuestDirectory
from kata_bridge.sandboxes.nri_source import CertificateUnavailableError, NriSource
from kata_bridge.start_gate.resolv_conf import ResolvConfs
from kata_bridge.start_gate.service import StartGateService
from kata_bridge.start_gate.super_cluster_writer import SuperClusterWriter

if TYPE_CHECKING:
    from kata_bridge.channels.agent.channel import AgentChannel
    from kata_bridge.channels.agent.registry import AgentRegistry
    from kata_bridge.channels.agent.server import AgentServer

# How long a start waits for its sources before it reports READY. Until they have synced, watchers get no
# SYNCED, and absent guests are unknown.
FIRST_SYNC_S = 5.0
# The drain of the NRI connection and the end of its tasks take at most 1.6 s of it.
RUNTIME_END_S = 4.0

_log = logs.get(__name__)


class CannotStartError(Exception):
    """The daemon cannot start; the message has the reason, and what to do."""


class KataBridge:
    """All parts of the daemon, from start to stop."""

    def __init__(self, config: KataBridgeConfiguration, path: Path | None = None) -> None:
        """Build all parts; connections and listeners begin with `run`.

        SIGHUP reads `path` again. Raises `AlreadyRunningError`, `CannotStartError` and `OSError`.
        """
        self._config = config
        self._path = path
        for _, directory in config.shared_directories():
            directories.prepare(directory)
        self._lock = NodeLock(config.lock_file)
        self._metrics = KataBridgeMetrics()
        self._shell = DaemonShell("kata-bridge", stops_on_failure=False)
        self._tasks = self._shell.tasks
        self._runtime_tasks = Tasks("runtime")
        # The directory is root's alone, so all connections to sockets in it come from `peer_auth`.
        netns_records = config.state_directory / "netns"
        for directory in (config.state_directory, config.inner_socket.parent, netns_records):
            directories.prepare(directory, 0o700)
        self._addresses = GuestAddresses(() if config.agent is None else config.agent.gateway_networks)
        self._agent_server: AgentServer | None = None
        self._agents: AgentRegistry | None = None
        if config.agent is not None:
            self._agent_server, self._agents = self._build_agents(config, config.agent)
        self._netns_executor = NetnsExecutor()
        self._channels = ChannelFactory(
            config.channel_settings(), self._agents, self._netns_executor, self._metrics, netns_records
        )
        self._watchers = GuestBroadcaster()
        context = DriverContext(
            providers=self._channels.providers(),
            rulesets=RulesetCache(),
            metrics=self._metrics,
            tasks=self._tasks,
            semaphores=call_semaphores(),
            jitter=random.random,
            check_s=config.drift.check_seconds,
        )
        self.guests = GuestRegistry(context, self._watchers, self._channels.channels_of)
        self._start_gate: StartGateService | None = None
        if config.gate is not None:
            self._start_gate = self._build_start_gate(config.gate)
        self._server = BridgeServer(self.guests, self._watchers, self._metrics, self._start_gate)
        cri, files = config.sandboxes.cri, config.sandboxes.directory
        self._cri = None if cri is None else CriClient(cri.socket, timeout_s=cri.timeout_seconds)
        self._discovery = Discovery(
            self._sandboxes_changed,
            self._sandboxes_synced,
            self._metrics,
            has_nri=config.sandboxes.nri is not None,
            lister=None if self._cri is None else CriLister(self._cri),
            directory=None if files is None else GuestDirectory(files),
            interval_s=10.0 if cri is None else cri.interval_seconds,
        )
        self._plugin = self._build_plugin()
        self._metrics.watch(self._guest_states, self._source_ages)
        self._is_draining = False

    def _build_agents(
        self, config: KataBridgeConfiguration, agent: AgentConfig
    ) -> "tuple[AgentServer, AgentRegistry]":
        """Build what guests' agents connect to.

        Imported here: certificates are a fifth of the daemon's memory, and most nodes have no such guests.
        """
        from kata_bridge.channels.agent.registry import AgentRegistry
        from kata_bridge.channels.agent.server import AgentServer
        from kata_bridge.guest_certificates import GuestCertificateError, GuestCertificates

        try:
            credentials = GuestCertificates.open(config.state_directory)
        except GuestCertificateError as error:
            raise CannotStartError(str(error)) from None
        server = AgentServer(
            credentials,
            config.inner_socket.with_name("agents.sock"),
            addresses=self._addresses,
        )
        return server, AgentRegistry(
            server,
            credentials,
            self._metrics,
            shim_roots=config.stock.shim_directories,
            vsock_port=agent.vsock_port,
            copies_credentials=agent.copy_credentials,
        )

    def _build_start_gate(self, gate: StartGateConfig) -> StartGateService:
        cluster = gate.super_cluster
        return StartGateService(
            gate.settings(),
            ResolvConfs(gate.directory),
            self.guests,
            self._channels.channels_of,
            self._metrics,
            self._tasks,
            None if cluster is None else SuperClusterWriter(cluster.kubeconfig_file, cluster.node_name),
        )

    def _build_plugin(self) -> Plugin | None:
        nri = self._config.sandboxes.nri
        if nri is None:
            return None
        # Without agents no container needs a certificate, so the runtime need not call us for containers.
        events = SANDBOXES if self._agents is None else SANDBOXES | {Event.CREATE_CONTAINER}
        source = NriSource(self._discovery, None if self._agents is None else self._credentials_of)
        handler: Handler = source
        if self._start_gate is not None:
            events, handler = events | GATE, self._start_gate.nri_handler(source)
        return Plugin(nri.socket, nri.name, nri.index, handler, events)

    async def _credentials_of(self, sandbox: str) -> Path | None:
        """The directory of a guest's certificate, None if its channels have no agent."""
        driver = self.guests.drivers.get(sandbox)
        if self._agents is None or driver is None or "agent" not in driver.channels:
            return None
        try:
            return await self._agents.credentials(sandbox)
        except Unreachable as error:
            raise CertificateUnavailableError(str(error)) from None

    def _sandboxes_changed(self, changes: Iterable[SandboxChange]) -> None:
        changes = tuple(changes)
        # First: an agent that attaches because of these changes is checked against the addresses.
        self._addresses.update(changes)
        self.guests.update(changes)

    def _sandboxes_synced(self) -> None:
        self.guests.mark_synced()
        self._channels.remove_stale_state(self.guests.drivers)
        if self._agents is not None:
            retain = self._agents.retain(tuple(self.guests.drivers))
            self._tasks.spawn(retain, "retain certificates")

    def _agent_changed(self, channel: "AgentChannel") -> None:
        self.guests.channel_changed(channel.sandbox)

    # ---- status

    def _guest_states(self) -> list[tuple[str, str]]:
        return [(driver.channel_name, driver.state) for driver in self.guests.drivers.values()]

    def _source_ages(self) -> dict[str, float]:
        if self._plugin is not None and self._plugin.is_connected:
            self._discovery.nri_connected()
        return self._discovery.ages()

    def _freshness(self) -> dict[str, Freshness]:
        """How current each source of sandboxes is."""
        ages, faults = self._source_ages(), self._discovery.faults()
        if self._plugin is not None and (failure := self._plugin.failure()) is not None:
            faults[NRI] = failure
        return {
            name: Freshness(ages.get(name), *faults.get(name, (None, 0.0)))
            for name in sorted(ages.keys() | faults.keys())
        }

    def readiness(self) -> Readiness:
        """Ready when the node's sandboxes have synced and it is not draining."""
        sources = self._freshness()
        lines = [each.line(name) for name, each in sources.items()]
        problems = self._discovery.problems
        lines += (f"{name}: {problem}" for name, problem in sorted(problems.items()) if name not in sources)
        if not self._discovery.has_synced:
            lines.append("sandboxes: not synced")
        if self._is_draining:
            lines.append("draining")
        missing = []
        if not self._discovery.has_synced:
            reasons = [*filter(None, (each.wait_reason(name) for name, each in sources.items()))]
            missing += reasons or ["sandboxes not synced"]
        if self._is_draining:
            missing.append("draining")
        return Readiness(not missing, tuple(lines), "; ".join(missing))

    def _problems(self) -> dict[str, str]:
        problem = self._start_gate.problem if self._start_gate is not None else ""
        sources = self._discovery.faults()
        problems = {name: text for name, text in self._discovery.problems.items() if name not in sources}
        return problems | ({"super cluster": problem} if problem else {})

    @property
    def registry(self) -> Registry:
        return self._metrics.registry

    def status(self) -> dict[str, object]:
        return {
            "socket": self._config.listen.socket,
            "sources": {name: each.document() for name, each in self._freshness().items()},
            "problems": self._problems(),
            "runtime": self._plugin.runtime if self._plugin is not None else "",
            "isSynced": self._discovery.has_synced,
            "watchers": len(self._watchers),
            "unmanaged": self.guests.unmanaged,
            "guests": [driver.status() for _, driver in sorted(self.guests.drivers.items())],
            "agents": None if self._agent_server is None else self._agent_server.status(),
            "startGate": self._start_gate.status() if self._start_gate is not None else None,
            "isDraining": self._is_draining,
        }

    # ---- life

    async def run(self, life: Lifecycle) -> int:
        """Serve until SIGTERM. Returns the exit code."""
        freeze_heap()
        raise_descriptor_limit()
        life.on_reload(self._reload)
        await self._shell.start(
            life,
            self._config.status.listen_at,
            self._metrics.registry,
            readiness=self.readiness,
            status=self.status,
            scrapes=self._config.metrics,
        )
        inner = self._config.inner_socket
        inner.unlink(missing_ok=True)
        await self._server.start(inner)
        listen = self._config.listen
        proxy = PeerAuthProxy(
            bind(listen.socket, listen.gid),
            inner,
            PeerPolicy(listen.uids | {0, os.getuid()}, listen.gid),
            self._tasks,
            self._metrics.peers_refused.inc,
        )
        await proxy.start()
        await self._listen_for_agents()
        self._tasks.spawn(self._discovery.run(), "discovery")
        if self._start_gate is not None:
            self._start_gate.start()
        if self._plugin is not None:
            self._runtime_tasks.spawn(self._plugin.run(), "nri")
        await self._shell.announce(
            FIRST_SYNC_S, lambda: {"socket": listen.socket, "guests": len(self.guests)}
        )
        await life.stopping.wait()
        await self._stop(proxy)
        return 0

    async def _listen_for_agents(self) -> None:
        agent = self._config.agent
        if self._agent_server is None or agent is None:
            return
        await self._agent_server.start(
            on_attached=self._agent_changed,
            on_detached=self._agent_changed,
            on_state=lambda channel, state: self.guests.state_reported(channel.sandbox, state),
        )
        if agent.address is not None:
            port = await self._agent_server.listen_tcp(agent.address, agent.port)
            _log.info("listening for agents", address=agent.address, port=port)
        if agent.socket is not None:
            await self._agent_server.listen_unix(agent.socket)
        if agent.vsock_port is not None:
            try:
                await self._agent_server.listen_vsock(agent.vsock_port)
            except OSError as error:
                # Where all guests have hybrid vsock, the kernel's is not needed.
                _log.warning("no AF_VSOCK on this node, agents can dial only hybrid vsock", reason=error)

    def _reload(self) -> None:
        """SIGHUP: read the configuration again, and apply what can change while running."""
        self._discovery.refresh()
        if self._path is not None:
            self._tasks.spawn(self._reload_config(self._path), "reload")

    async def _reload_config(self, path: Path) -> None:
        try:
            config = await asyncio.to_thread(load, path)
        except ConfigError as error:
            _log.error("the new configuration is invalid, the old one stays", problem="; ".join(error.errors))
            return
        apply_logging(config)
        self._channels.configure(config.channel_settings())
        self.guests.reclassify()
        if self._start_gate is not None and config.gate is not None:
            self._start_gate.configure(config.gate.settings())
        _log.info("configuration reloaded: logging, runtimes, stock, and the start gate's policies and needs")

    async def _stop(self, proxy: PeerAuthProxy) -> None:
        self._is_draining = True
        await proxy.stop()
        _log.info("shutting down: waiting for calls", seconds=self._config.drain.seconds)
        await self._server.stop(self._config.drain.seconds)
        # Before the rest: the start gate must be whole while it decides on the last containers.
        await self._runtime_tasks.close(RUNTIME_END_S)
        self.guests.stop()
        await proxy.close()
        if self._agent_server is not None:
            await self._agent_server.stop()
        await self._shell.end_tasks()
        if self._start_gate is not None:
            await self._start_gate.close()
        if self._cri is not None:
            await self._cri.close()
        self._netns_executor.close()
        await self._shell.stop()
        self._config.listen.socket.unlink(missing_ok=True)
        self._lock.release()
