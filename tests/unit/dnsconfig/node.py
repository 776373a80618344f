# SPDX-License-Identifier: Apache-2.0
"""One node without a socket, in virtual time: a storage, a fake kata-bridge, and the parts between."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from daemonkit.kube.relist_guard import HOLD_SECONDS
from daemonkit.kube.resources import NAMESPACES, PODS, SERVICES, VIRTUAL_CLUSTERS, ObjectMeta
from daemonkit.tasks import Tasks
from devkit.fake_bridge import FakeBridge
from devkit.kube.storage import Storage
from devkit.kube.transport import StorageTransport
from dnsconfig.bridge import ResolverHandlers, ResolverSession
from dnsconfig.cluster.objects import NETWORKS
from dnsconfig.cluster.state import ResolverSettings
from dnsconfig.metrics import DnsConfigMetrics
from dnsconfig.resolve.decision import node_dns_of
from dnsconfig.resolve.resolver import PodEvent
from dnsconfig.sync import ResolverController, run_sync_loop
from dnsconfig.watch import Watch
from tests.unit.dnsconfig import objects
from tests.unit.dnsconfig.objects import Json

NAME = "n1"
HOST = "nameserver 192.0.2.1\n"

RESOURCES = {
    "Namespace": NAMESPACES,
    "Pod": PODS,
    "Service": SERVICES,
    "Network": NETWORKS,
    "VirtualCluster": VIRTUAL_CLUSTERS,
}


class SimulatedNode:
    def __init__(self, storage: Storage | None = None, *, hold_s: float = HOLD_SECONDS) -> None:
        self.storage = storage or Storage()
        self.transport = StorageTransport(self.storage)
        self.bridge = FakeBridge()
        self.tasks = Tasks("test")
        self.woken = asyncio.Event()
        self.host = node_dns_of(HOST)
        self.events: list[tuple[str, PodEvent]] = []
        self.metrics = DnsConfigMetrics()
        self.clock = asyncio.get_running_loop().time
        self.watch = Watch(
            self.transport, NAME, self.woken.set, self.tasks, has_virtual_clusters=True, clock=self.clock
        )
        self.controller = ResolverController(
            self.watch,
            ResolverSettings(),
            lambda: self.host,
            self.metrics,
            hold_s=hold_s,
            now=self.clock,
            wake=self.woken.set,
            record=self._record,
        )
        controller = self.controller
        handlers = ResolverHandlers(
            controller.present,
            controller.gone,
            controller.synced,
            controller.disconnected,
            controller.answered,
            controller.failed,
        )
        self.session = ResolverSession(lambda: self.bridge, handlers, self.tasks, lambda: 0.5, self.clock)

    def _record(self, pod: ObjectMeta, event: PodEvent, _tenant: str) -> None:
        self.events.append((pod.name, event))

    def put(self, *items: Json) -> None:
        for item in items:
            self.storage.put(RESOURCES[item["kind"]], item)

    def put_pod(self, tenant: str, name: str = "web", **how: Any) -> str:
        """A pod of a tenant on this node; returns its UID."""
        item = objects.pod(tenant, name, nodeName=NAME, **how)
        uid: str = self.storage.put(PODS, item)["metadata"]["uid"]
        return uid

    def servers(self, uid: str) -> list[str]:
        lines = self.bridge.resolv_confs.get(uid, "").splitlines()
        return [line.removeprefix("nameserver ") for line in lines if line.startswith("nameserver ")]

    def waits(self, uid: str) -> str:
        return self.bridge.wait_messages.get(uid, "")

    @contextlib.asynccontextmanager
    async def running(self, seconds: float = 1.0) -> AsyncIterator[None]:
        """Everything runs; enters after so much time."""
        self.watch.start()
        self.tasks.spawn(self.session.run(), "bridge")
        self.tasks.spawn(run_sync_loop(self.controller, self.session.push, self.woken, self.clock), "sync")
        try:
            await asyncio.sleep(seconds)
            yield
        finally:
            await self.tasks.close(1.0)
