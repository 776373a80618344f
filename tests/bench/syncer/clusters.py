# SPDX-License-Identifier: Apache-2.0
"""The super cluster and its tenants for one syncer: API servers, VirtualClusters, a fake node, observers."""

import asyncio
import base64
import contextlib
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from daemonkit.kube.client import ApiError, Client
from daemonkit.kube.resources import NAMESPACES, VIRTUAL_CLUSTERS, Resource
from tenancy import keys, names
from tests.bench import usage
from tests.bench.processes import RunError
from tests.bench.syncer import request_counts
from tests.bench.syncer.clients import Object, client_of, create, merge
from tests.bench.syncer.control_planes import RealApiserver, control_planes
from tests.bench.syncer.fake_node import READY_LINE
from tests.bench.syncer.loader import NAMESPACE
from tests.bench.syncer.observer import Observer
from tests.k8s.build import Binaries

_ROOT = Path(__file__).resolve().parents[3]
_CRD_FILE = _ROOT / "packaging" / "crds" / "virtualclusters.yaml"
_CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", is_namespaced=False)
# Where the VirtualClusters are.
_ADMIN_NAMESPACE = "tenants"
_START_S = 60.0
_ATTEMPT_S = 0.2
SUPER = "super"


@dataclass(slots=True)
class BenchTenant:
    """One tenant; `key` is its cluster key."""

    key: str
    kubeconfig: Path
    client: Client
    namespace: str
    """The super namespace of its pods."""
    server: RealApiserver

    def pause(self) -> None:
        """Let its API server hang."""
        self.server.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.server.process.send_signal(signal.SIGCONT)


class BenchClusters:
    """Everything but the syncer. Made by `start`."""

    def __init__(self, directory: Path, servers: dict[str, RealApiserver]) -> None:
        self.directory = directory
        self.super_server = servers[SUPER]
        self._servers = servers
        self.super_kubeconfig = self._write(SUPER)
        self.super_client = client_of(self.super_kubeconfig)
        self.tenants: list[BenchTenant] = []
        self._observer: Observer | None = None
        self._loads = 0
        self._children: list[subprocess.Popen[str]] = []

    def _write(self, name: str) -> Path:
        path = self.directory / f"{name}.kubeconfig"
        path.write_text(self._servers[name].kubeconfig())
        return path

    async def open(self) -> None:
        """Create tenants and the node, and watch them."""
        await create(self.super_client, _CRDS.path(), yaml.safe_load(_CRD_FILE.read_text()))
        await create(self.super_client, NAMESPACES.path(), _namespace(_ADMIN_NAMESPACE))
        for name, server in self._servers.items():
            if name != SUPER:
                self.tenants.append(await self._add_tenant(name, server))
        node = self.spawn("tests.bench.syncer.fake_node", str(self.super_kubeconfig))
        assert node.stdout is not None
        async with asyncio.timeout(_START_S):
            line = await asyncio.to_thread(node.stdout.readline)
        if line.strip() != READY_LINE:
            raise RunError("the fake node did not start")
        self._observer = Observer(
            self.super_client,
            {each.key: each.client for each in self.tenants},
            {each.key: each.namespace for each in self.tenants},
        )
        await self._observer.start()

    @property
    def observer(self) -> Observer:
        assert self._observer is not None
        return self._observer

    async def close(self) -> None:
        if self._observer is not None:
            await self._observer.stop()
        for child in self._children:
            child.terminate()
            child.wait()
        for client in (self.super_client, *(each.client for each in self.tenants)):
            await client.close()

    async def _add_tenant(self, name: str, server: RealApiserver) -> BenchTenant:
        kubeconfig = self._write(name)
        client = client_of(kubeconfig)
        key = await self.add_virtual_cluster(name, kubeconfig.read_text())
        await create(client, NAMESPACES.path(), _namespace(NAMESPACE))
        return BenchTenant(key, kubeconfig, client, super_namespace(key), server)

    async def add_virtual_cluster(self, name: str, kubeconfig: str) -> str:
        """Create a VirtualCluster that runs, with credentials in its annotation; returns its cluster key."""
        annotations = {keys.ADMIN_KUBECONFIG: base64.b64encode(kubeconfig.encode()).decode()}
        body: Object = {
            "apiVersion": "tenancy.x-k8s.io/v1alpha1",
            "kind": "VirtualCluster",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"clusterVersionName": "external"},
        }
        path = VIRTUAL_CLUSTERS.path(_ADMIN_NAMESPACE)
        made = await self._until_served(path, body)
        key = names.cluster_key(_ADMIN_NAMESPACE, name, made["metadata"]["uid"])
        if isinstance(key, names.Refused):
            raise RunError(key.reason)
        # The root namespace, which a controller would make.
        await create(self.super_client, NAMESPACES.path(), _namespace(key))
        status = {"phase": "Running", "clusterNamespace": key}
        await merge(self.super_client, f"{path}/{name}/status", {"status": status})
        return key

    async def _until_served(self, path: str, body: Object) -> Object:
        """Create it as soon as the API server serves the resource that was just installed."""
        async with asyncio.timeout(_START_S):
            while True:
                try:
                    return await create(self.super_client, path, body)
                except ApiError as error:
                    if error.status.code != 404:
                        raise
                await asyncio.sleep(_ATTEMPT_S)  # pace: of the attempts

    # ---- loads

    def spawn(self, module: str, *arguments: str) -> "subprocess.Popen[str]":
        """Start a helper process that ends with the bench."""
        with (self.directory / f"{module.rpartition('.')[2]}.log").open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._children.append(child)
        return child

    async def load(
        self, count: int, tenants: Sequence[BenchTenant] | None = None, *, rate: float = 0.0
    ) -> str:
        """Create pods in these tenants, or in all, in turn; returns their prefix."""
        self._loads += 1
        prefix = f"load{self._loads}-"
        chosen = [str(each.kubeconfig) for each in tenants or self.tenants]
        child = self.spawn(
            "tests.bench.syncer.loader",
            *("--count", str(count), "--prefix", prefix, "--rate", str(rate)),
            *chosen,
        )
        code = await asyncio.to_thread(child.wait)
        self._children.remove(child)
        if code != 0:
            raise RunError(f"the loader ended with {code}")
        return prefix

    def super_cpu_s(self) -> float:
        """CPU seconds so far of the super cluster's API server."""
        return usage.cpu_s([self.super_server.process.pid])

    async def request_counts(self) -> Counter[str]:
        """Requests that the API servers have served so far."""
        found: Counter[str] = Counter()
        for side, client in (
            ("super", self.super_client),
            *(("tenant", each.client) for each in self.tenants),
        ):
            page = await client.request("GET", "/metrics", {})
            found.update(request_counts.parse(page.decode(), side))
        return found

    async def super_namespace_exists(self, name: str) -> bool:
        try:
            await self.super_client.request("GET", NAMESPACES.path(None, name), {})
        except ApiError as error:
            if error.status.code == 404:
                return False
            raise
        return True


@contextlib.asynccontextmanager
async def start(binaries: Binaries, directory: Path, tenants: int) -> AsyncIterator[BenchClusters]:
    """Start the API servers and all that stands on them; its logs lie in `directory`."""
    all_names = (SUPER, *(f"tenant-{number}" for number in range(tenants)))
    with control_planes(binaries, directory, all_names) as servers:
        clusters = BenchClusters(directory, servers)
        try:
            await clusters.open()
            yield clusters
        finally:
            await clusters.close()


def super_namespace(key: str, namespace: str = NAMESPACE) -> str:
    """The super namespace that stands for a tenant's."""
    found = names.super_namespace(key, namespace)
    if isinstance(found, names.Refused):
        raise RunError(found.reason)
    return found


def _namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
