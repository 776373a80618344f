# SPDX-License-Identifier: Apache-2.0
"""One running dnsconfig: builds the parts, starts them in order, and ends them."""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from pathlib import Path

from bridge_api.client import BridgeClient
from daemonkit import logs
from daemonkit.kube.lazy_client import LazyClient
from daemonkit.run.daemon_shell import DaemonShell, freeze_heap, wait_until_ready
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.status.server import Query, Reply
from dnsconfig.bridge import Connection, Handlers
from dnsconfig.cluster.objects import PodObject
from dnsconfig.cluster.snapshot import Picture
from dnsconfig.config import DnsConfigConfiguration, LastKnownPolicy
from dnsconfig.delivery.queue import Push
from dnsconfig.events import Events
from dnsconfig.metrics import Metrics, by_cause
from dnsconfig.node_resolv_conf import NodeFile
from dnsconfig.report import Report
from dnsconfig.resolve.resolver import PodEvent
from dnsconfig.saved_state import SavedState, attachments_of, keeping_of, state_of
from dnsconfig.sync import Engine, Settings
from dnsconfig.watch import Watch

# How long a start waits to be ready before it says so all the same: `/readyz` tells what is missing.
READY_WAIT_S = 10.0
SAVE_S = 5.0
POLL_S = 1.0
# The first change is acted on at once; in a burst the next turn comes this much later at least.
TURN_S = 0.02

_log = logs.get(__name__)


class Service:
    """Everything that lives from start to stop."""

    def __init__(self, config: DnsConfigConfiguration) -> None:
        """Build all parts; nothing is dialled. Raises OSError where the state directory is unusable."""
        self._config = config
        self._metrics = Metrics()
        self._shell = DaemonShell("dnsconfig", node_name=config.node_name)
        self._tasks = self._shell.tasks
        self._woken = asyncio.Event()
        self._cluster = LazyClient(config.super_cluster.kubeconfig_file, "dnsconfig")
        path = Path(config.resolv_conf) if config.resolv_conf else None
        self._file = NodeFile(path, config.node_ips, time.monotonic)
        self._watch = Watch(
            self._cluster,
            config.node_name,
            self._woken.set,
            self._tasks,
            has_clusters=config.super_cluster.has_virtual_clusters,
        )
        self._events = Events(self._cluster, config.node_name, time.time, self._metrics.events)
        self._engine = Engine(
            self._watch,
            Settings(
                config.cluster_domain,
                {tenant.key: tenant.cluster_domain for tenant in config.tenants},
                config.plain_kube_dns,
            ),
            lambda: self._file.node,
            self._metrics,
            now=time.monotonic,
            wake=self._woken.set,
            send=self._send,
            tell=self._tell,
        )
        self._saved: SavedState | None = None
        if config.state_directory is not None:
            self._saved = SavedState(config.state_directory, self._metrics.state_errors)
            self._saved.prepare()
            self._restore(self._saved)
        engine = self._engine
        self._bridge = Connection(
            lambda: BridgeClient(config.bridge.socket),
            Handlers(engine.present, engine.gone, engine.synced, engine.lost, engine.answered, engine.failed),
            self._tasks,
            random.random,
        )
        self._report = Report(engine, self._watch, self._bridge, self._file)
        self._add_gauges()

    # ---- life

    async def run(self, life: Lifecycle) -> int:
        """Work until told to stop. Returns the exit code."""
        freeze_heap()
        life.on_reload(self._woken.set)
        await self._shell.start(
            life,
            self._config.status.listen_at,
            self._metrics.registry,
            readiness=self._report.readiness,
            status=lambda: self._report.status(time.monotonic()),
            pages={"/explain": self._explain},
        )
        self._watch.start()
        self._tasks.spawn(self._bridge.run(), "kata-bridge")
        self._tasks.spawn(turns(self._engine, self._woken, time.monotonic), "turns")
        self._tasks.spawn(self._poll(), "node file")
        if self._config.events:
            self._tasks.spawn(self._events.run(), "events")
        if self._saved is not None:
            self._tasks.spawn(self._save(self._saved), "state")
        await wait_until_ready(life, self._report.readiness, READY_WAIT_S)
        _log.info("working", node=self._config.node_name, pods=len(self._engine.pods))
        life.ready()
        await life.stopping.wait()
        await self._stop()
        return 0

    def _send(self, push: Push) -> None:
        self._bridge.push(push)

    def _tell(self, pod: PodObject, event: PodEvent, tenant: str) -> None:
        if self._config.events:
            self._events.tell(pod, event, tenant)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            if self._file.poll():
                self._woken.set()

    async def _stop(self) -> None:
        self._report.is_draining = True
        await self._shell.end_tasks()
        if self._saved is not None:
            await self._keep(self._saved, is_last=True)
        await self._cluster.close()
        await self._shell.stop()

    # ---- saved state

    def _restore(self, saved: SavedState) -> None:
        restored = saved.load()
        if restored is None:
            return
        is_applied = self._config.last_known is LastKnownPolicy.APPLY
        # What pods have been given they keep under either policy.
        keeping = keeping_of(restored, wall_at_zero(), time.monotonic())
        picture = restored.picture if is_applied else Picture()
        ends_at = restored.ends_at(time.monotonic())
        self._engine.restore(picture, keeping, attachments_of(restored), ends_at)
        _log.info("restored", pods=len(restored.given), age_s=round(restored.age_s))

    async def _save(self, saved: SavedState) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            await self._keep(saved)

    async def _keep(self, saved: SavedState, *, is_last: bool = False) -> None:
        """Save what the API server itself has told; nothing before it has told all."""
        engine = self._engine
        if engine.is_restored or not engine.picture.is_whole:
            return
        ages = [age for age in self._watch.ages().values() if age is not None]
        state = state_of(engine.picture, engine.keeping, engine.attachments, wall_at_zero())
        await saved.keep(state, max(ages, default=0.0), is_last=is_last)

    # ---- what it says of itself

    def _explain(self, query: Query) -> Reply:
        return self._report.explain(query, time.monotonic())

    def _add_gauges(self) -> None:
        engine, watch, metrics = self._engine, self._watch, self._metrics
        metrics.gauges(
            "vcnode_dns_pods", "Tenants' pods here, by where kata-bridge is.", self._report.states, "state"
        )
        metrics.gauges(
            "vcnode_dns_waiting_pods",
            "Tenants' pods without a resolver, or held, by why.",
            lambda: by_cause(engine.causes()),
            "cause",
        )
        metrics.gauge(
            "vcnode_dns_kept_pods",
            "Pods that keep a resolver that would not be given them now.",
            lambda: sum(state.is_kept for state in engine.pods.values()),
        )
        metrics.gauge(
            "vcnode_dns_lost_pods",
            "Pods whose network's server was taken out of their resolver: its Service gave up the address.",
            lambda: sum(state.has_lost for state in engine.pods.values()),
        )
        metrics.gauge("vcnode_guests", "Guests of the node.", lambda: len(engine.guests))
        metrics.gauge("vcnode_watches", "Watches of the API server.", lambda: watch.count)
        metrics.gauge(
            "vcnode_bridge_connected",
            "1 while kata-bridge tells of guests.",
            lambda: float(self._bridge.is_synced),
        )
        metrics.gauges(
            "vcnode_source_age_seconds",
            "Time since a source last confirmed what is used.",
            lambda: {(name,): age for name, age in watch.ages().items() if age is not None},
            "source",
        )


def wall_at_zero() -> float:
    """The time of the calendar when the monotonic clock was zero."""
    return time.time() - time.monotonic()


async def turns(engine: Engine, woken: asyncio.Event, now: Callable[[], float]) -> None:
    """Let the engine turn whenever something has happened or is due, for ever."""
    while True:
        woken.clear()
        next_at = engine.turn()
        await asyncio.sleep(TURN_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if next_at is None else max(0.0, next_at - now())):
                await woken.wait()
