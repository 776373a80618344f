# SPDX-License-Identifier: Apache-2.0
"""A tenant's control plane: a fake API server that keeps the rules of a cluster, on a thread of its own."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from daemonkit.kube.resources import Resource
from devkit.kube.apiserver import FakeApiserver
from devkit.kube.cluster import ClusterSettings
from devkit.kube.storage import Object, Selection
from vcnode_demo.held_port import HeldPort
from vcnode_demo.loop_thread import LoopThread
from vcnode_demo.tenant import DemoTenant

# Every tenant has the same range, so that equal Services have equal addresses.
SERVICE_RANGE = "10.32.0.0/16"

T = TypeVar("T")


class DemoControlPlane:
    """`start`, be its users, `stop`. Its objects are made as kubectl makes them."""

    def __init__(self, tenant: DemoTenant) -> None:
        self._tenant = tenant
        self._thread = LoopThread(f"control plane of {tenant.name}")
        self._server = self._new_server()
        self._port = HeldPort()

    @property
    def url(self) -> str:
        return self._server.url

    def start(self) -> None:
        self._thread.start()
        self._thread.run(self._server.start())

    def stop(self) -> None:
        """Close the port and end the thread. May be called twice."""
        self._port.release()
        if self._thread.is_running:
            self._thread.run(self._server.stop())
            self._thread.stop()

    def pause(self) -> None:
        """Stop listening and cut every connection. The objects stay."""
        self._thread.run(self._server.stop())
        self._port.hold(self._server.port)

    def resume(self) -> None:
        """Listen again at the same port."""
        self._thread.run(self._server.start())
        self._port.release()

    def wipe(self) -> None:
        """Come back at the same address with the storage of a new cluster, as with a lost etcd."""
        self._thread.run(self._server.stop())
        port, self._server = self._server.port, self._new_server()
        self._server.port = port
        self._thread.run(self._server.start())

    def kubeconfig(self) -> str:
        """The administrator's kubeconfig."""
        return self._server.kubeconfig(self._tenant.admin)

    def create(self, resource: Resource, namespace: str, name: str, **fields: Any) -> Object:
        metadata = (
            {"name": name} | ({"namespace": namespace} if namespace else {}) | fields.pop("metadata", {})
        )
        return self._call(partial(self._server.cluster.create, resource, {"metadata": metadata, **fields}))

    def delete(self, resource: Resource, namespace: str, name: str) -> None:
        self._call(partial(self._server.cluster.delete, resource, namespace, name))

    def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return self._call(lambda: self._server.storage.peek(resource, namespace, name))

    def objects(self, resource: Resource, namespace: str = "") -> list[Object]:
        return self._call(lambda: self._server.storage.select(Selection(resource, namespace)))

    def _new_server(self) -> FakeApiserver:
        return FakeApiserver(
            authority=self._tenant.authority,
            client_ca_pem=self._tenant.authority.cert_pem,
            cluster=ClusterSettings(service_cidr=SERVICE_RANGE),
        )

    def _call(self, work: Callable[[], T]) -> T:
        """Do something on the server's own thread."""

        async def on_loop() -> T:
            return work()

        return self._thread.run(on_loop())
