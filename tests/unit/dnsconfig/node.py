# SPDX-License-Identifier: Apache-2.0
"""One node without a socket, in virtual time: a storage, a stand-in bridge, and the parts between."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from daemonkit.kube.resources import NAMESPACES, PODS, SERVICES, VIRTUAL_CLUSTERS
from daemonkit.tasks import Tasks
from devkit.fake_bridge import FakeBridge
from devkit.kube.storage import Storage
from devkit.kube.transport import StorageTransport
from dnsconfig.bridge import Connection, Handlers
from dnsconfig.cluster.objects import NETWORKS, PodObject
from dnsconfig.delivery.queue import Push
from dnsconfig.metrics import Metrics
from dnsconfig.resolve.decision import node_of
from dnsconfig.resolve.resolver import PodEvent
from dnsconfig.service import turns
from dnsconfig.sync import Engine, Settings
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


class Node:
    def __init__(self, storage: Storage | None = None) -> None:
        self.storage = storage or Storage()
        self.transport = StorageTransport(self.storage)
        self.bridge = FakeBridge()
        self.tasks = Tasks("test")
        self.woken = asyncio.Event()
        self.host = node_of(HOST)
        self.events: list[tuple[str, PodEvent]] = []
        self.metrics = Metrics()
        self.clock = asyncio.get_running_loop().time
        self.watch = Watch(
            self.transport, NAME, self.woken.set, self.tasks, has_clusters=True, clock=self.clock
        )
        self.engine = Engine(
            self.watch,
            Settings("cluster.local", {}),
            lambda: self.host,
            self.metrics,
            now=self.clock,
            wake=self.woken.set,
            send=self._send,
            tell=self._tell,
        )
        engine = self.engine
        handlers = Handlers(
            engine.present, engine.gone, engine.synced, engine.lost, engine.answered, engine.failed
        )
        self.connection = Connection(lambda: self.bridge, handlers, self.tasks, lambda: 0.5)

    def _send(self, push: Push) -> None:
        self.connection.push(push)

    def _tell(self, pod: PodObject, event: PodEvent, _tenant: str) -> None:
        self.events.append((pod.metadata.name, event))

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
        """Everything runs; after so much time."""
        self.watch.start()
        self.tasks.spawn(self.connection.run(), "bridge")
        self.tasks.spawn(turns(self.engine, self.woken, self.clock), "turns")
        try:
            await asyncio.sleep(seconds)
            yield
        finally:
            await self.tasks.close(1.0)
