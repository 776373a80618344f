# SPDX-License-Identifier: Apache-2.0
"""One running kubeproxy-ext: builds the parts, starts them in order, and ends them."""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable

from bridge_api.client import BridgeClient
from daemonkit import logs
from daemonkit.kube.lazy_client import LazyClient
from daemonkit.run.daemon_shell import DaemonShell, freeze_heap, wait_until_ready
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.status.server import Query, Reply
from kubeproxy_ext.bridge import Handlers, Pusher
from kubeproxy_ext.cache.service_cidrs import ServiceCidrs
from kubeproxy_ext.cache.tenants import SavedTenant
from kubeproxy_ext.compute.packed_slices import pack
from kubeproxy_ext.config import KubeproxyExtConfiguration, LastKnownPolicy
from kubeproxy_ext.delivery.queue import Push
from kubeproxy_ext.metrics import Metrics
from kubeproxy_ext.report import Report
from kubeproxy_ext.saved_state import SavedState
from kubeproxy_ext.sync import Engine
from kubeproxy_ext.watch import Watch

# How long a start waits to be ready before it says so all the same: guests keep their rules
# meanwhile, and `/readyz` tells what is missing.
READY_WAIT_S = 10.0
SAVE_S = 5.0
# What is due and not done, for whatever reason, must not turn for ever without a pause.
MIN_WAIT_S = 0.001

_log = logs.get(__name__)


class Service:
    """Everything that lives from start to stop."""

    def __init__(self, config: KubeproxyExtConfiguration) -> None:
        """Build all parts; nothing is dialled. Raises OSError where the state directory is unusable."""
        self._config = config
        self._metrics = Metrics()
        self._shell = DaemonShell("kubeproxy-ext", node_name=config.node_name)
        self._tasks = self._shell.tasks
        self._woken = asyncio.Event()
        self._saved: SavedState | None = None
        if config.state_directory is not None:
            self._saved = SavedState(config.state_directory, self._snapshot, self._metrics.state_errors)
            self._saved.prepare()
        can_restore = self._saved is not None and config.last_known is LastKnownPolicy.APPLY
        self._engine = Engine(
            config.node_name,
            ServiceCidrs(
                config.service_cidrs, {tenant.key: tenant.service_cidrs for tenant in config.tenants}
            ),
            config.hold_seconds,
            self._metrics,
            now=time.monotonic,
            wall=time.time,
            wake=self._woken.set,
            send=self._send,
            ask_saved=self._restore if can_restore else None,
        )
        engine = self._engine
        if config.rules_probe is not None:
            engine.groups.canary = config.rules_probe.value()
        self._pusher = Pusher(
            lambda: BridgeClient(config.bridge.socket),
            Handlers(
                engine.present,
                engine.gone,
                engine.synced,
                engine.lost,
                engine.answered,
                engine.failed,
                engine.done,
            ),
            self._tasks,
            random.random,
        )
        self._cluster = LazyClient(config.super_cluster.kubeconfig_file, "kubeproxy-ext")
        self._watch = Watch(
            self._cluster, config.node_name, engine.feed, engine.world, self._woken.set, self._tasks
        )
        self._watch.on_slice = engine.slice_changed
        engine.sources = self._watch
        self._report = Report(engine, self._watch, self._pusher)
        self._add_gauges()

    # ---- life

    async def run(self, life: Lifecycle) -> int:
        """Work until told to stop. Returns the exit code."""
        freeze_heap()
        engine = self._engine
        life.on_reload(self._reload)
        await self._shell.start(
            life,
            self._config.status.listen_at,
            self._metrics.registry,
            readiness=self._report.readiness,
            status=self._status,
            pages={"/explain": self._explain},
        )
        self._watch.start()
        self._tasks.spawn(self._pusher.run(), "kata-bridge")
        self._tasks.spawn(turns(engine, self._woken, time.monotonic), "turns")
        if self._saved is not None:
            self._tasks.spawn(self._save(self._saved), "state")
        await wait_until_ready(life, self._report.readiness, READY_WAIT_S)
        _log.info("working", node=self._config.node_name, guests=len(self._engine.delivery.guests))
        life.ready()
        await life.stopping.wait()
        await self._stop()
        return 0

    def _send(self, push: Push) -> None:
        self._pusher.push(push)

    def _reload(self) -> None:
        """SIGHUP: credentials are read again by themselves; the configuration only at a start."""
        self._woken.set()

    async def _stop(self) -> None:
        self._report.is_draining = True
        await self._shell.end_tasks()
        if self._saved is not None:
            self._saved.changed(self._engine.take_to_save())
            await self._saved.write_due(self._confirmed())
        await self._cluster.close()
        await self._shell.stop()

    # ---- saved state

    def _restore(self, tenant: str) -> None:
        self._tasks.spawn(self._restored(tenant), f"restore {tenant}")

    async def _restored(self, tenant: str) -> None:
        if self._saved is not None:
            self._engine.restored(tenant, await self._saved.load(tenant))

    async def _save(self, saved: SavedState) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            saved.changed(self._engine.take_to_save())
            await saved.keep(self._confirmed())

    def _confirmed(self) -> dict[str, float]:
        """The tenants that the API server has told of, with the age of what it told."""
        ages = [age for age in self._watch.ages().values() if age is not None]
        heard = [name for name, tenant in self._engine.tenants.items() if tenant.is_heard]
        return dict.fromkeys(heard, max(ages, default=0.0))

    def _snapshot(self, tenant: str) -> SavedTenant:
        cache = self._engine.feed
        namespaces = sorted(cache.tenants.get(tenant, ()))
        return SavedTenant(
            tenant,
            [cache.namespaces[name] for name in namespaces],
            [service for name in namespaces for service in cache.services(name)],
            [pack(each) for name in namespaces for each in cache.slices(name)],
            self._watch.node,
        )

    # ---- what it says of itself

    def _explain(self, query: Query) -> Reply:
        return self._report.explain(query, time.monotonic())

    def _status(self) -> dict[str, object]:
        return {"holdSeconds": self._config.hold_seconds, **self._report.status(time.monotonic())}

    def _add_gauges(self) -> None:
        engine, watch, metrics = self._engine, self._watch, self._metrics
        guests = engine.delivery.guests
        metrics.registry.counter_function(
            "vcnode_renders_total", "Rulesets that were rendered.", lambda: engine.groups.renders
        )
        metrics.gauge("vcnode_guests", "Guests of the node.", lambda: len(guests))
        metrics.gauge(
            "vcnode_guests_behind",
            "Guests that do not have the rules that they are to have.",
            lambda: sum(standing.is_behind for standing in guests.values()),
        )
        metrics.gauge(
            "vcnode_guest_behind_seconds",
            "For how long the guest that is behind the longest has been.",
            lambda: self._report.longest_behind_s(time.monotonic()),
        )
        metrics.gauges(
            "vcnode_tenants",
            "Tenants with guests here, by what is known of their Services.",
            self._report.knowledge,
            "knowledge",
        )
        metrics.gauge(
            "vcnode_rulesets", "Rulesets that guests have or shall have.", lambda: len(engine.groups)
        )
        metrics.gauge("vcnode_services", "Services that are followed.", lambda: engine.feed.counts()[0])
        metrics.gauge("vcnode_endpoint_slices", "Slices that are followed.", lambda: engine.feed.counts()[1])
        metrics.gauge("vcnode_watches", "Watches of the API server.", lambda: watch.count)
        metrics.gauge("vcnode_held", "Lists that are not believed now.", lambda: len(engine.brake.held))
        metrics.gauge(
            "vcnode_bridge_connected",
            "1 while kata-bridge tells of guests.",
            lambda: float(self._pusher.is_synced),
        )
        metrics.gauges(
            "vcnode_source_age_seconds",
            "Time since a source last confirmed what is used.",
            lambda: {(name,): age for name, age in watch.ages().items() if age is not None},
            "source",
        )


async def turns(engine: Engine, woken: asyncio.Event, now: Callable[[], float]) -> None:
    """Let the engine turn whenever something has happened or is due, for ever."""
    while True:
        next_at = engine.turn()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if next_at is None else max(MIN_WAIT_S, next_at - now())):
                await woken.wait()
        woken.clear()
