# SPDX-License-Identifier: Apache-2.0
"""The daemon on a node without sockets: real parts, a stand-in API server and bridge, virtual time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from daemonkit.kube.resources import ENDPOINT_SLICES, NAMESPACES, NODES, SERVICES
from daemonkit.tasks import Tasks
from devkit.fake_bridge import FakeBridge
from devkit.kube.storage import Storage
from devkit.kube.transport import StorageTransport
from kubeproxy_ext.bridge import Handlers, Pusher
from kubeproxy_ext.cache.service_cidrs import ServiceCidrs
from kubeproxy_ext.cache.tenants import RestoredTenant, SavedTenant
from kubeproxy_ext.compute.packed_slices import pack
from kubeproxy_ext.delivery.queue import Push
from kubeproxy_ext.metrics import Metrics
from kubeproxy_ext.report import Report
from kubeproxy_ext.service import turns
from kubeproxy_ext.sync import Engine
from kubeproxy_ext.watch import Watch
from ruleset.document import Ruleset
from tenancy import keys

HOLD_S = 600.0
WALL = 1_800_000_000.0


class Node:
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
        self.lag_s = 0.0  # what a test says that computing has taken
        self.woken = asyncio.Event()
        self.engine = Engine(
            "n1",
            ServiceCidrs(("10.96.0.0/16",), {}),
            HOLD_S,
            self.metrics,
            now=lambda: clock() + self.lag_s,
            wall=lambda: WALL + round(clock() - started, 2),
            wake=self.woken.set,
            send=self._send,
            ask_saved=None if saved is None else self._restore,
        )
        engine = self.engine
        handlers = Handlers(
            engine.present,
            engine.gone,
            engine.synced,
            engine.lost,
            engine.answered,
            engine.failed,
            engine.done,
        )
        self.pusher = Pusher(lambda: self.bridge, handlers, self.tasks, lambda: 0.5)
        self.watch = Watch(
            self.transport, "n1", engine.feed, engine.world, self.woken.set, self.tasks, clock=clock
        )
        engine.sources = self.watch
        self.report = Report(engine, self.watch, self.pusher)
        self.storage.put(NODES, {"metadata": {"name": "n1"}})

    def _send(self, push: Push) -> None:
        self.pushed_at.append(asyncio.get_running_loop().time())
        self.pusher.push(push)

    def _restore(self, tenant: str) -> None:
        state = (self.saved or {}).get(tenant)
        self.engine.restored(tenant, None if state is None else RestoredTenant(state, 60.0))

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

    def put_slice(self, tenant: str, name: str, *endpoints: str) -> None:
        labels = {"kubernetes.io/service-name": name}
        self.storage.put(
            ENDPOINT_SLICES,
            {
                "metadata": {"name": f"{name}-1", "namespace": f"{tenant}-default", "labels": labels},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [ip]} for ip in endpoints],
                "ports": [{"name": "p", "port": 8080}],
            },
        )

    def held(self, guest: str) -> Ruleset:
        """The rules of a guest that has some."""
        held = self.bridge.installed(guest)
        assert held is not None
        return held

    def text(self, guest: str) -> str:
        held = self.bridge.installed(guest)
        return "" if held is None else "".join(document.text() for document in held.documents)

    def snapshot(self, tenant: str) -> SavedTenant:
        feed = self.engine.feed
        names = sorted(feed.tenants.get(tenant, ()))
        return SavedTenant(
            tenant,
            [feed.namespaces[name] for name in names],
            [each for name in names for each in feed.services(name)],
            [pack(each) for name in names for each in feed.slices(name)],
            self.watch.node,
        )

    @contextlib.asynccontextmanager
    async def running(self, seconds: float = 1.0) -> AsyncIterator[None]:
        self.watch.start()
        self.tasks.spawn(self.pusher.run(), "bridge")
        self.tasks.spawn(turns(self.engine, self.woken, asyncio.get_running_loop().time), "turns")
        await asyncio.sleep(seconds)
        try:
            yield
        finally:
            assert await self.tasks.close(5.0) == ()


def node() -> Node:
    made = Node()
    for number, tenant in enumerate(("a", "b")):
        made.put_tenant(tenant)
        made.put(tenant, "web", f"10.96.{number}.1", f"10.{number}.0.1")
    return made
