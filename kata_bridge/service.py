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
from daemonkit.files import directories
from daemonkit.metrics import Registry
from daemonkit.run.daemon_shell import DaemonShell, freeze_heap
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.run.process_limits import raise_descriptor_limit
from daemonkit.status.server import Readiness
from daemonkit.tasks import Tasks
from kata_bridge.api.peer_auth import Allowed, Front, bind
from kata_bridge.api.server import BridgeServer
from kata_bridge.channels.agent.guest_addresses import GuestAddresses
from kata_bridge.channels.factory import ChannelFactory
from kata_bridge.channels.netns.executor import NetnsExecutor
from kata_bridge.config import Agent, KataBridgeConfiguration, load
from kata_bridge.cri.client import CriClient
from kata_bridge.guests.broadcaster import GuestBroadcaster
from kata_bridge.guests.core.ruleset_cache import RulesetCache
from kata_bridge.guests.driver import DriverContext, call_semaphores
from kata_bridge.guests.registry import GuestRegistry
from kata_bridge.lock import Lock
from kata_bridge.metrics import Metrics
from kata_bridge.nri.dispatch import Handler
from kata_bridge.nri.events import GATE, SANDBOXES, Event
from kata_bridge.nri.plugin import Plugin
from kata_bridge.sandboxes.core.sandbox import Change
from kata_bridge.sandboxes.cri_source import CriLister
from kata_bridge.sandboxes.discovery import Discovery
from kata_bridge.sandboxes.file_source import GuestDirectory
from kata_bridge.sandboxes.nri_source import NriHandler
from kata_bridge.start_gate.service import Gatehouse

if TYPE_CHECKING:
    from kata_bridge.channels.agent.channel import AgentChannel
    from kata_bridge.channels.agent.registry import AgentRegistry
    from kata_bridge.channels.agent.server import AgentServer

# How long a start waits for the first word of its sources before it says that it is up. Until they
# are heard, watchers get no SYNCED and absent guests are unknown.
FIRST_SYNC_S = 5.0
# The drain of the NRI connection and the end of its tasks take at most 1.6 s of it.
RUNTIME_END_S = 4.0

_log = logs.get(__name__)


class Service:
    """Everything that lives from start to stop."""

    def __init__(self, config: KataBridgeConfiguration, path: Path | None = None) -> None:
        """Build all parts; nothing is dialled, nobody is served.

        `path` is the file to read again at SIGHUP. Raises `Locked`, `OSError`, `CredentialsError`.
        """
        self._config = config
        self._path = path
        for directory in config.shared_directories():
            directories.prepare(directory)
        self._lock = Lock(config.lock_file)
        self._metrics = Metrics()
        self._shell = DaemonShell("kata-bridge", stops_on_failure=False)
        self._tasks = self._shell.tasks
        self._runtime_tasks = Tasks("runtime")
        # The directory is root's alone, so what listens in it is behind the front for everybody.
        notes = config.state_directory / "netns"
        for directory in (config.state_directory, config.inner_socket.parent, notes):
            directories.prepare(directory, 0o700)
        self._addresses = GuestAddresses(() if config.agent is None else config.agent.gateway_networks)
        self._links: AgentServer | None = None
        self._agents: AgentRegistry | None = None
        if config.agent is not None:
            self._links, self._agents = self._agent_server(config, config.agent)
        self._namespaces = NetnsExecutor()
        self._channels = ChannelFactory(config, self._agents, self._namespaces, self._metrics, notes)
        self._watchers = GuestBroadcaster()
        shared = DriverContext(
            providers=self._channels.providers(),
            rulesets=RulesetCache(),
            metrics=self._metrics,
            tasks=self._tasks,
            semaphores=call_semaphores(),
            jitter=random.random,
            check_s=config.drift.check_seconds,
        )
        self.guests = GuestRegistry(shared, self._watchers, self._channels.channels_of)
        self._gatehouse: Gatehouse | None = None
        if config.gate is not None:
            channels_of = self._channels.channels_of
            self._gatehouse = Gatehouse(config.gate, self.guests, channels_of, self._metrics, self._tasks)
        self._server = BridgeServer(self.guests, self._watchers, self._metrics, self._gatehouse)
        self._synced = asyncio.Event()
        self._cri = None if config.sandboxes.cri is None else self._cri_client()
        files = config.sandboxes.directory
        self._discovery = Discovery(
            self._take,
            self._is_synced,
            self._metrics,
            has_nri=config.sandboxes.nri is not None,
            lister=None if self._cri is None else CriLister(self._cri),
            directory=None if files is None else GuestDirectory(files),
            interval_s=10.0 if config.sandboxes.cri is None else config.sandboxes.cri.interval_seconds,
        )
        self._plugin = self._nri_plugin()
        self._metrics.watch(self._states, self._discovery.ages)
        self._is_draining = False

    def _agent_server(
        self, config: KataBridgeConfiguration, agent: Agent
    ) -> "tuple[AgentServer, AgentRegistry]":
        """What takes the agents of guests. Imported here: certificates are a fifth of the whole daemon,
        and a node without such guests needs none.
        """
        from kata_bridge.channels.agent.registry import AgentRegistry
        from kata_bridge.channels.agent.server import AgentServer
        from kata_bridge.credentials import Credentials

        credentials = Credentials.open(config.state_directory)
        links = AgentServer(
            credentials,
            config.inner_socket.with_name("agents.sock"),
            on_attached=self._attached,
            on_detached=self._attached,
            on_state=lambda channel, state: self.guests.state_reported(channel.sandbox, state),
            addresses=self._addresses,
        )
        return links, AgentRegistry(
            links,
            credentials,
            self._metrics,
            shim_roots=config.stock.shim_directories,
            vsock_port=agent.vsock_port,
            copies_credentials=agent.copy_credentials,
        )

    def _cri_client(self) -> CriClient:
        cri = self._config.sandboxes.cri
        assert cri is not None  # noqa: S101 - the caller looked
        return CriClient(cri.socket, timeout_s=cri.timeout_seconds)

    def _nri_plugin(self) -> Plugin | None:
        nri = self._config.sandboxes.nri
        if nri is None:
            return None
        # Where no agent is taken, no container has to wait for our word.
        events = SANDBOXES if self._agents is None else SANDBOXES | {Event.CREATE_CONTAINER}
        handler = NriHandler(self._discovery, None if self._agents is None else self._credentials_of)
        gated: Handler = handler
        if self._gatehouse is not None:
            events, gated = events | GATE, self._gatehouse.handler(handler)
        plugin = Plugin(nri.socket, nri.name, nri.index, gated, events)
        self._discovery.is_nri_connected = lambda: plugin.is_connected
        return plugin

    async def _credentials_of(self, sandbox: str) -> Path | None:
        """Where the certificate of a guest is, None if its agent is none of its ways."""
        driver = self.guests.drivers.get(sandbox)
        if self._agents is None or driver is None or "agent" not in driver.channels:
            return None
        return await self._agents.credentials(sandbox)

    def _take(self, changes: Iterable[Change]) -> None:
        changes = tuple(changes)
        # First: whoever attaches for what is told now is judged by it.
        self._addresses.update(changes)
        self.guests.update(changes)

    def _attached(self, channel: "AgentChannel") -> None:
        self.guests.channel_changed(channel.sandbox)

    def _is_synced(self) -> None:
        self.guests.mark_synced()
        self._synced.set()
        self._channels.remove_stale_state(self.guests.drivers)
        if self._agents is not None:
            retain = self._agents.retain(tuple(self.guests.drivers))
            self._tasks.spawn(retain, "retain certificates")

    # ---- what it says of itself

    def _states(self) -> list[tuple[str, str]]:
        drivers = self.guests.drivers.values()
        return [(driver.channel_name, driver.state) for driver in drivers]

    def readiness(self) -> Readiness:
        """Ready when the node's sandboxes are known and it is not draining."""
        ages = self._discovery.ages()
        lines = [f"{name}: ok, age {age:.0f} s" for name, age in sorted(ages.items())]
        lines += (f"{name}: {problem}" for name, problem in sorted(self._discovery.problems.items()))
        if not self._discovery.is_synced:
            lines.append("sandboxes: not known yet")
        if self._is_draining:
            lines.append("draining")
        return Readiness(self._discovery.is_synced and not self._is_draining, tuple(lines))

    def _problems(self) -> dict[str, str]:
        gate = self._gatehouse.problems if self._gatehouse is not None else {}
        return self._discovery.problems | gate

    @property
    def registry(self) -> Registry:
        """Its metrics."""
        return self._metrics.registry

    def status(self) -> dict[str, object]:
        ages = self._discovery.ages()
        return {
            "socket": self._config.listen.socket,
            "sources": {name: {"ageSeconds": round(age, 3)} for name, age in ages.items()},
            "problems": self._problems(),
            "runtime": self._plugin.runtime if self._plugin is not None else "",
            "isSynced": self._discovery.is_synced,
            "watchers": len(self._watchers),
            "unmanaged": self.guests.unmanaged,
            "guests": [driver.status() for _, driver in sorted(self.guests.drivers.items())],
            "agents": None if self._links is None else self._links.status(),
            "gate": self._gatehouse.gate.status() if self._gatehouse is not None else None,
            "isDraining": self._is_draining,
        }

    # ---- life

    async def run(self, life: Lifecycle) -> int:
        """Serve until told to stop. Returns the exit code."""
        freeze_heap()
        raise_descriptor_limit()
        life.on_reload(self._reload)
        await self._shell.start(
            life,
            self._config.status.listen_at,
            self._metrics.registry,
            readiness=self.readiness,
            status=self.status,
        )
        inner = self._config.inner_socket
        inner.unlink(missing_ok=True)
        await self._server.start(inner)
        listen = self._config.listen
        front = Front(
            bind(listen.socket, listen.gid),
            inner,
            self._allowed(),
            self._tasks,
            self._metrics.callers_refused.inc,
        )
        await front.start()
        await self._listen_for_agents()
        self._tasks.spawn(self._discovery.run(), "discovery")
        if self._gatehouse is not None:
            self._gatehouse.start()
        if self._plugin is not None:
            self._runtime_tasks.spawn(self._plugin.run(), "nri")
        try:
            async with asyncio.timeout(FIRST_SYNC_S):
                await self._synced.wait()
        except TimeoutError:
            _log.warning("the node's sandboxes are not known yet", problems=self._discovery.problems)
        _log.info("serving", socket=listen.socket, guests=len(self.guests))
        life.ready()
        await life.stopping.wait()
        await self._stop(front)
        return 0

    def _allowed(self) -> Allowed:
        listen = self._config.listen
        return Allowed(listen.uids | {0, os.getuid()}, listen.gid)

    async def _listen_for_agents(self) -> None:
        agent = self._config.agent
        if self._links is None or agent is None:
            return
        await self._links.start()
        if agent.address is not None:
            port = await self._links.listen_tcp(agent.address, agent.port)
            _log.info("agents are taken", address=agent.address, port=port)
        if agent.socket is not None:
            await self._links.listen_unix(agent.socket)
        if agent.vsock_port is not None:
            try:
                await self._links.listen_vsock(agent.vsock_port)
            except OSError as error:
                # Where all guests have hybrid vsock, the kernel's is not needed.
                _log.warning("no AF_VSOCK on this node", reason=error)

    def _reload(self) -> None:
        """SIGHUP: read the configuration again, and take over what can change while running."""
        self._discovery.ask()
        if self._path is None:
            return
        self._tasks.spawn(self._reload_config(self._path), "reload")

    async def _reload_config(self, path: Path) -> None:
        try:
            config = await asyncio.to_thread(load, path)
        except ConfigError as error:
            _log.error("the configuration cannot be used, the old one stays", problem="; ".join(error.errors))
            return
        self._channels.configure(config)
        self.guests.reclassify()
        if self._gatehouse is not None and config.gate is not None:
            self._gatehouse.configure(config.gate)
        _log.info("configuration was read again; runtimes and stock are taken over")

    async def _stop(self, front: Front) -> None:
        self._is_draining = True
        await front.stop()
        _log.info("draining", seconds=self._config.drain.seconds)
        await self._server.stop(self._config.drain.seconds)
        # Before the rest: the last containers are answered by a gate that is whole.
        await self._runtime_tasks.close(RUNTIME_END_S)
        self.guests.stop()
        await front.close()
        if self._links is not None:
            await self._links.stop()
        await self._shell.end_tasks()
        if self._gatehouse is not None:
            await self._gatehouse.close()
        if self._cri is not None:
            await self._cri.close()
        self._namespaces.close()
        await self._shell.stop()
        self._config.listen.socket.unlink(missing_ok=True)
        self._lock.release()
