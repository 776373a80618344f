# SPDX-License-Identifier: Apache-2.0
"""The daemon without sockets: real parts, a fake API server and kata-bridge, virtual time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from daemonkit.kube.resources import ENDPOINT_SLICES, NAMESPACES, NODES, SERVICES
from daemonkit.tasks import Tasks
from devkit.fake_bridge import FakeBridge
from devkit.kube.storage import Storage
from devkit.kube.transport import StorageTransport
from kubeproxy_ext.bridge import Pusher, PushHandlers
from kubeproxy_ext.cache.object_cache import ObjectCache
from kubeproxy_ext.cache.service_cidrs import ServiceCidrs
from kubeproxy_ext.cache.tenants import RestoredTenant, SavedTenant
from kubeproxy_ext.compute.objects import LAST_CHANGE_TRIGGER_TIME
from kubeproxy_ext.compute.packed_slices import pack
from kubeproxy_ext.compute.service_state import ServiceState
from kubeproxy_ext.delivery.latency import ProgrammingLatency
from kubeproxy_ext.metrics import Metrics
from kubeproxy_ext.report import Report
from kubeproxy_ext.sync import RulesetController, SyncActions, run_sync_loop
from kubeproxy_ext.watch import Watch
from ruleset.document import Ruleset
from tenancy import keys

HOLD_S = 600.0
WALL = 1_800_000_000.0


class EngineNode:
    """One node: `storage` is the super cluster, `bridge` has the guests."""

    def __init__(self, storage: Storage | None = None, saved: dict[str, SavedTenant] | None = None) -> None:
        self.storage = storage or Storage()
        self.transport = StorageTransport(self.storage)
        self.bridge = FakeBridge()
        self.saved = saved
        self.tasks = Tasks("test")
        self.metrics = Metrics()
        clock = asyncio.get_running_loop().time
        started = clock()
        self.pushed_at: list[float] = []
        self.lag_s = 0.0  # how long computing took, as a test pretends
        self.woken = asyncio.Event()
        state = ServiceState()
        cache = ObjectCache(state, HOLD_S)

        def wall() -> float:
            return WALL + round(clock() - started, 2)

        self.wall = wall
        latency = ProgrammingLatency(wall, self.metrics.programming_duration.observe)
        self.watch = Watch(
            self.transport, "n1", cache, state, latency.changed, self.woken.set, self.tasks, clock=clock
        )
        controller = self.controller = RulesetController(
            "n1",
            ServiceCidrs(("10.96.0.0/16",), {}),
            state,
            cache,
            self.watch,
            latency,
            self.metrics,
            hold_s=HOLD_S,
            can_restore=saved is not None,
            now=lambda: clock() + self.lag_s,
            wall=wall,
            wake=self.woken.set,
        )
        handlers = PushHandlers(
            controller.present,
            controller.gone,
            controller.synced,
            controller.disconnected,
            controller.on_result,
            controller.on_failure,
            controller.on_done,
        )
        self.pusher = Pusher(lambda: self.bridge, handlers, self.tasks, lambda: 0.5, clock)
        self.report = Report(controller, self.watch, self.pusher)
        self.storage.put(NODES, {"metadata": {"name": "n1"}})

    def _act(self, actions: SyncActions) -> None:
        for push in actions.pushes:
            self.pushed_at.append(asyncio.get_running_loop().time())
            self.pusher.push(push)
        for tenant in actions.restores:
            state = (self.saved or {}).get(tenant)
            self.controller.restored(tenant, None if state is None else RestoredTenant(state, 60.0))

    def put_tenant(self, tenant: str) -> None:
        annotations = {keys.CLUSTER: tenant, keys.NAMESPACE: "default"}
        metadata = {"name": f"{tenant}-default", "annotations": annotations}
        self.storage.put(NAMESPACES, {"metadata": metadata})

    def put(self, tenant: str, name: str, ip: str, *endpoints: str) -> None:
        port = {"name": "p", "protocol": "TCP", "port": 80}
        spec = {"clusterIP": ip, "ports": [port]}
        metadata = {"name": name, "namespace": f"{tenant}-default"}
        self.storage.put(SERVICES, {"metadata": metadata, "spec": spec})
        self.put_slice(tenant, name, *endpoints)

    def put_slice(self, tenant: str, name: str, *endpoints: str, changed_at: float | None = None) -> None:
        """Write a Service's slice. `changed_at`, by `wall`, is when its pods changed."""
        labels = {"kubernetes.io/service-name": name}
        metadata = {"name": f"{name}-1", "namespace": f"{tenant}-default", "labels": labels}
        annotations = {}
        if changed_at is not None:
            annotations[LAST_CHANGE_TRIGGER_TIME] = datetime.fromtimestamp(changed_at, UTC).isoformat()
        self.storage.put(
            ENDPOINT_SLICES,
            {
                "metadata": metadata | {"annotations": annotations},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [ip]} for ip in endpoints],
                "ports": [{"name": "p", "port": 8080}],
            },
        )

    def installed_ruleset(self, guest: str) -> Ruleset:
        """The rules of a guest that has some."""
        installed_ruleset = self.bridge.installed(guest)
        assert installed_ruleset is not None
        return installed_ruleset

    def text(self, guest: str) -> str:
        installed_ruleset = self.bridge.installed(guest)
        return (
            ""
            if installed_ruleset is None
            else "".join(document.text() for document in installed_ruleset.documents)
        )

    def snapshot(self, tenant: str) -> SavedTenant:
        cache = self.controller.cache
        names = sorted(cache.tenants.get(tenant, ()))
        return SavedTenant(
            tenant,
            [cache.namespaces[name] for name in names],
            [each for name in names for each in cache.services(name)],
            [pack(each) for name in names for each in cache.slices(name)],
            self.watch.node,
        )

    @contextlib.asynccontextmanager
    async def running(self, seconds: float = 1.0) -> AsyncIterator[None]:
        self.watch.start()
        self.tasks.spawn(self.pusher.run(), "bridge")
        self.tasks.spawn(
            run_sync_loop(self.controller, self._act, self.woken, asyncio.get_running_loop().time), "sync"
        )
        await asyncio.sleep(seconds)
        try:
            yield
        finally:
            assert await self.tasks.close(5.0) == ()


def node() -> EngineNode:
    made = EngineNode()
    for number, tenant in enumerate(("a", "b")):
        made.put_tenant(tenant)
        made.put(tenant, "web", f"10.96.{number}.1", f"10.{number}.0.1")
    return made
