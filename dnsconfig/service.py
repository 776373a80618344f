# SPDX-License-Identifier: Apache-2.0
"""One running dnsconfig: builds the parts, starts them in order, and ends them."""

import asyncio
import random
import time
from pathlib import Path

from bridge_api.client import BridgeClient
from daemonkit import logs
from daemonkit.kube.event_recorder import EventRecorder, EventSource
from daemonkit.kube.lazy_client import LazyClient
from daemonkit.kube.resources import ObjectMeta
from daemonkit.run.daemon_shell import DaemonShell, freeze_heap
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.status.server import Query, Reply
from dnsconfig.bridge import ResolverHandlers, ResolverSession
from dnsconfig.cluster.snapshot import Snapshot
from dnsconfig.config import DnsConfigConfiguration, LastKnownPolicy
from dnsconfig.metrics import DnsConfigMetrics, by_reason
from dnsconfig.node_resolv_conf import NodeResolvConf
from dnsconfig.report import StatusReport
from dnsconfig.resolve.resolver import PodEvent
from dnsconfig.saved_state import SavedStateFile, objects_to_save
from dnsconfig.sync import ResolverController, run_sync_loop
from dnsconfig.watch import Watch

COMPONENT = "dnsconfig"
# A start that is not ready by then reports ready to systemd all the same; `/readyz` names the missing
# sources.
READY_WAIT_S = 10.0
SAVE_S = 5.0
POLL_S = 1.0

_log = logs.get(__name__)


class DnsConfigService:
    """Everything that lives from start to stop."""

    def __init__(self, config: DnsConfigConfiguration) -> None:
        """Build all parts without connecting. Raises OSError for an unusable state directory."""
        self._config = config
        self._metrics = DnsConfigMetrics()
        self._shell = DaemonShell(COMPONENT, node_name=config.node_name)
        self._tasks = self._shell.tasks
        self._woken = asyncio.Event()
        self._cluster = LazyClient(config.super_cluster.kubeconfig_file, COMPONENT)
        path = Path(config.resolv_conf) if config.resolv_conf else None
        self._file = NodeResolvConf(path, config.node_ips, time.monotonic)
        self._watch = Watch(
            self._cluster,
            config.node_name,
            self._woken.set,
            self._tasks,
            has_virtual_clusters=config.super_cluster.has_virtual_clusters,
        )
        source = EventSource(COMPONENT, config.node_name)
        self._events = EventRecorder(self._cluster, source, time.time, self._metrics.events)
        controller = self._controller = ResolverController(
            self._watch,
            config.resolver_settings,
            lambda: self._file.node,
            self._metrics,
            hold_s=config.hold_seconds,
            now=time.monotonic,
            wake=self._woken.set,
            record=self._record,
        )
        self._saved: SavedStateFile | None = None
        if config.state_directory is not None:
            self._saved = SavedStateFile(config.state_directory, self._metrics.state_errors)
            self._saved.prepare()
            self._restore(self._saved)
        self._session = ResolverSession(
            lambda: BridgeClient(config.bridge.socket),
            ResolverHandlers(
                controller.present,
                controller.gone,
                controller.synced,
                controller.disconnected,
                controller.answered,
                controller.failed,
            ),
            self._tasks,
            random.random,
            time.monotonic,
        )
        self._report = StatusReport(
            controller, self._watch, self._session, self._file, hold_s=config.hold_seconds
        )
        self._add_gauges()

    # ---- life

    async def run(self, life: Lifecycle) -> int:
        """Work until the daemon stops. Returns the exit code."""
        freeze_heap()
        life.on_reload(self._woken.set)
        await self._shell.start(
            life,
            self._config.status.listen_at,
            self._metrics.registry,
            readiness=self._report.readiness,
            status=lambda: self._report.status(time.monotonic()),
            pages={"/explain": self._explain},
            scrapes=self._config.metrics,
        )
        self._watch.start()
        self._tasks.spawn(self._session.run(), "kata-bridge")
        sync_loop = run_sync_loop(self._controller, self._session.push, self._woken, time.monotonic)
        self._tasks.spawn(sync_loop, "sync")
        self._tasks.spawn(self._poll(), "node file")
        if self._config.events:
            self._tasks.spawn(self._events.run(), "events")
        if self._saved is not None:
            self._tasks.spawn(self._save_often(self._saved), "state")
        await self._shell.announce(READY_WAIT_S, self._start_fields)
        await life.stopping.wait()
        await self._stop()
        return 0

    def _start_fields(self) -> dict[str, object]:
        return {"node": self._config.node_name, "pods": len(self._controller.pods.by_pod)}

    def _record(self, pod: ObjectMeta, event: PodEvent, tenant: str) -> None:
        if self._config.events:
            self._events.record(pod, event.reason, event.message, tenant)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            if self._file.poll():
                self._woken.set()

    async def _stop(self) -> None:
        self._report.start_draining()
        await self._shell.end_tasks()
        if self._saved is not None:
            await self._save(self._saved, is_last=True)
        await self._cluster.close()
        await self._shell.stop()

    # ---- saved state

    def _restore(self, saved: SavedStateFile) -> None:
        restored = saved.load()
        if restored is None:
            return
        now = time.monotonic()
        is_applied = self._config.last_known is LastKnownPolicy.APPLY
        # Pods retain their resolvers under either policy.
        self._controller.restore(
            restored.snapshot if is_applied else Snapshot(),
            restored.retention(self._config.hold_seconds, wall_at_zero(), now),
            restored.sandbox_networks(),
            restored.expires_at(now),
        )
        _log.info("restored saved state", pods=len(restored.texts), age_s=round(restored.age_s))

    async def _save_often(self, saved: SavedStateFile) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            await self._save(saved)

    async def _save(self, saved: SavedStateFile, *, is_last: bool = False) -> None:
        """Save only what the API server confirmed: nothing before all sources are synced."""
        controller = self._controller
        if controller.is_restored or not controller.snapshot.has_synced:
            return
        ages = [age for age in self._watch.ages().values() if age is not None]
        pods = controller.pods
        state = objects_to_save(controller.snapshot, pods.retention, pods.sandbox_networks, wall_at_zero())
        await saved.save(state, max(ages, default=0.0), is_last=is_last)

    # ---- status

    def _explain(self, query: Query) -> Reply:
        return self._report.explain(query, time.monotonic())

    def _add_gauges(self) -> None:
        controller, watch = self._controller, self._watch
        registry = self._metrics.registry
        registry.gauge_function(
            "vcnode_dnsconfig_pods",
            "Pods by delivery state: of a resolver, a wait message or a withdrawal for kata-bridge.",
            self._report.states,
            ("state",),
        )
        registry.gauge_function(
            "vcnode_dnsconfig_waiting_pods",
            "Pods of tenants whose containers wait, by reason.",
            lambda: by_reason(controller.wait_reasons()),
            ("reason",),
        )
        registry.gauge_function(
            "vcnode_dnsconfig_retained_pods",
            "Pods that retain a resolver that they would not get now.",
            lambda: sum(each.is_retained for each in controller.pods.by_pod.values()),
        )
        registry.gauge_function(
            "vcnode_dnsconfig_revoked_pods",
            "Pods whose network's server was removed: its Service gave up the address.",
            lambda: sum(each.is_server_removed for each in controller.pods.by_pod.values()),
        )
        registry.gauge_function(
            "vcnode_dnsconfig_guests", "Guests on the node.", lambda: len(controller.guests)
        )
        registry.gauge_function(
            "vcnode_dnsconfig_watches", "Open watches of the API server.", lambda: watch.count
        )
        registry.gauge_function(
            "vcnode_dnsconfig_bridge_connected",
            "1 while kata-bridge has reported all guests.",
            lambda: float(self._session.is_synced),
        )
        registry.gauge_function(
            "vcnode_dnsconfig_source_age_seconds",
            "Time since a source was last confirmed.",
            lambda: {(name,): age for name, age in watch.ages().items() if age is not None},
            ("source",),
        )


def wall_at_zero() -> float:
    """The wall clock's time when the monotonic clock was zero."""
    return time.time() - time.monotonic()
