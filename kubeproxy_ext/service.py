# SPDX-License-Identifier: Apache-2.0
"""One running kubeproxy-ext: builds the parts, starts them in order, and stops them."""

import asyncio
import random
import time

from bridge_api.client import BridgeClient
from daemonkit.kube.lazy_client import LazyClient
from daemonkit.run.daemon_shell import DaemonShell, freeze_heap
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.status.server import Query, Reply
from kubeproxy_ext.bridge import Pusher, PushHandlers
from kubeproxy_ext.cache.object_cache import ObjectCache
from kubeproxy_ext.cache.service_cidrs import ServiceCidrs
from kubeproxy_ext.cache.tenants import SavedTenant
from kubeproxy_ext.compute.packed_slices import pack
from kubeproxy_ext.compute.service_state import ServiceState
from kubeproxy_ext.config import KubeproxyExtConfiguration, LastKnownPolicy
from kubeproxy_ext.delivery.latency import ProgrammingLatency
from kubeproxy_ext.metrics import Metrics
from kubeproxy_ext.report import Report
from kubeproxy_ext.saved_state import SavedTenants
from kubeproxy_ext.sync import RulesetController, SyncActions, run_sync_loop
from kubeproxy_ext.watch import Watch

# A start reports READY after this long in any case: guests keep their rules meanwhile, and `/readyz` names
# the missing sources.
READY_WAIT_S = 10.0
SAVE_S = 5.0


class KubeproxyExt:
    """All parts, from start to stop."""

    def __init__(self, config: KubeproxyExtConfiguration) -> None:
        """Build all parts without connecting. Raises OSError where the state directory is unusable."""
        self._config = config
        self._woken = asyncio.Event()
        self._metrics = Metrics()
        self._shell = DaemonShell("kubeproxy-ext", node_name=config.node_name)
        self._tasks = self._shell.tasks
        state = ServiceState()
        self._cache = ObjectCache(state, config.hold_seconds)
        latency = ProgrammingLatency(time.time, self._metrics.programming_duration.observe)
        self._client = LazyClient(config.super_cluster.kubeconfig_file, "kubeproxy-ext")
        self._watch = Watch(
            self._client,
            config.node_name,
            self._cache,
            state,
            latency.changed,
            self._woken.set,
            self._tasks,
        )
        self._saved: SavedTenants | None = None
        if config.state_directory is not None:
            self._saved = SavedTenants(config.state_directory, self._snapshot, self._metrics.state_errors)
            self._saved.prepare()
        controller = self._controller = RulesetController(
            config.node_name,
            ServiceCidrs(
                config.service_cidrs, {tenant.key: tenant.service_cidrs for tenant in config.tenants}
            ),
            state,
            self._cache,
            self._watch,
            latency,
            self._metrics,
            hold_s=config.hold_seconds,
            can_restore=self._saved is not None and config.last_known is LastKnownPolicy.APPLY,
            rules_probe=None if config.rules_probe is None else config.rules_probe.value(),
            now=time.monotonic,
            wall=time.time,
            wake=self._woken.set,
        )
        self._pusher = Pusher(
            lambda: BridgeClient(config.bridge.socket),
            PushHandlers(
                controller.present,
                controller.gone,
                controller.synced,
                controller.disconnected,
                controller.on_result,
                controller.on_failure,
                controller.on_done,
            ),
            self._tasks,
            random.random,
            time.monotonic,
        )
        self._report = Report(controller, self._watch, self._pusher)
        self._add_gauges()

    # ---- life

    async def run(self, life: Lifecycle) -> int:
        """Work until the daemon stops. Returns the exit code."""
        freeze_heap()
        # SIGHUP: credentials are read again by themselves, the configuration only at a start.
        life.on_reload(self._woken.set)
        await self._shell.start(
            life,
            self._config.status.listen_at,
            self._metrics.registry,
            readiness=self._report.readiness,
            status=self._status,
            pages={"/explain": self._explain},
            scrapes=self._config.metrics,
        )
        self._watch.start()
        self._tasks.spawn(self._pusher.run(), "kata-bridge")
        self._tasks.spawn(run_sync_loop(self._controller, self._act, self._woken, time.monotonic), "sync")
        if self._saved is not None:
            self._tasks.spawn(self._save(self._saved), "state")
        await self._shell.announce(READY_WAIT_S, self._start_fields)
        await life.stopping.wait()
        await self._stop()
        return 0

    def _start_fields(self) -> dict[str, object]:
        return {"node": self._config.node_name, "guests": len(self._controller.delivery.guests)}

    def _act(self, actions: SyncActions) -> None:
        for push in actions.pushes:
            self._pusher.push(push)
        for tenant in actions.restores:
            self._tasks.spawn(self._restore(tenant), f"restore {tenant}")

    async def _stop(self) -> None:
        self._report.is_draining = True
        await self._shell.end_tasks()
        if self._saved is not None:
            self._saved.changed(self._controller.take_to_save())
            await self._saved.write_due(self._confirmed())
        await self._client.close()
        await self._shell.stop()

    # ---- saved state

    async def _restore(self, tenant: str) -> None:
        if self._saved is not None:
            self._controller.restored(tenant, await self._saved.load(tenant))

    async def _save(self, saved: SavedTenants) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            saved.changed(self._controller.take_to_save())
            await saved.keep(self._confirmed())

    def _confirmed(self) -> dict[str, float]:
        """The age of the objects of each tenant that has synced."""
        ages = [age for age in self._watch.ages().values() if age is not None]
        synced = [name for name, tenant in self._controller.tenants.items() if tenant.has_synced]
        return dict.fromkeys(synced, max(ages, default=0.0))

    def _snapshot(self, tenant: str) -> SavedTenant:
        cache = self._cache
        namespaces = sorted(cache.tenants.get(tenant, ()))
        return SavedTenant(
            tenant,
            [cache.namespaces[name] for name in namespaces],
            [service for name in namespaces for service in cache.services(name)],
            [pack(each) for name in namespaces for each in cache.slices(name)],
            self._watch.node,
        )

    # ---- status and metrics

    def _explain(self, query: Query) -> Reply:
        return self._report.explain(query, time.monotonic())

    def _status(self) -> dict[str, object]:
        return {"holdSeconds": self._config.hold_seconds, **self._report.status(time.monotonic())}

    def _add_gauges(self) -> None:
        controller, watch, cache = self._controller, self._watch, self._cache
        registry = self._metrics.registry
        guests = controller.delivery.guests
        registry.counter_function(
            "vcnode_kubeproxyext_renders_total",
            "Rulesets rendered.",
            lambda: controller.rulesets.render_count,
        )
        registry.gauge_function("vcnode_kubeproxyext_guests", "Guests on the node.", lambda: len(guests))
        registry.gauge_function(
            "vcnode_kubeproxyext_behind_guests",
            "Guests without their desired ruleset.",
            lambda: sum(status.is_behind for status in guests.values()),
        )
        registry.gauge_function(
            "vcnode_kubeproxyext_guest_behind_seconds",
            "The longest time that a guest has been without its desired ruleset.",
            lambda: self._report.longest_behind_s(time.monotonic()),
        )
        registry.gauge_function(
            "vcnode_kubeproxyext_tenants",
            "Tenants with guests on the node, by where their Services come from.",
            self._report.sync_states,
            ("sync_state",),
        )
        registry.gauge_function(
            "vcnode_kubeproxyext_rulesets",
            "Rulesets that guests have or are to have.",
            lambda: len(controller.rulesets),
        )
        registry.gauge_function("vcnode_kubeproxyext_services", "Cached Services.", lambda: cache.counts()[0])
        registry.gauge_function(
            "vcnode_kubeproxyext_endpoint_slices", "Cached EndpointSlices.", lambda: cache.counts()[1]
        )
        registry.gauge_function(
            "vcnode_kubeproxyext_watches", "Open watches of the API server.", lambda: watch.count
        )
        registry.gauge_function(
            "vcnode_kubeproxyext_distrusted_relists",
            "Relists that are distrusted now.",
            lambda: len(controller.distrusted),
        )
        registry.gauge_function(
            "vcnode_kubeproxyext_bridge_connected",
            "1 while kata-bridge has listed its guests.",
            lambda: float(self._pusher.is_synced),
        )
        registry.gauge_function(
            "vcnode_kubeproxyext_source_age_seconds",
            "Time since all watches of a kind were last confirmed.",
            lambda: {(name,): age for name, age in watch.ages().items() if age is not None},
            ("source",),
        )
