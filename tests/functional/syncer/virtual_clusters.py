# SPDX-License-Identifier: Apache-2.0
"""A super cluster with VirtualClusters and their Secrets, tenants' control planes, and a real vc-syncer."""

import base64
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, SECRETS, VIRTUAL_CLUSTERS, Resource
from devkit.kube.apiserver import FakeApiserver
from devkit.kube.cluster import ClusterSettings
from devkit.kube.storage import Object, Selection
from devkit.pki import Authority
from syncer.kinds import configmap
from tenancy import keys
from tests import waiting
from tests.functional.syncer.processes import DEADLINE_S, SyncerProcess

NAMESPACE = "tenants"


class RuledControlPlane:
    """A fake API server that keeps the rules of a cluster, with an authority of its own."""

    def __init__(self, name: str) -> None:
        self.authority = Authority.create(name)
        self.leaf = self.authority.issue("vc-syncer", usages=["client"])
        settings = ClusterSettings(with_status=frozenset({"virtualclusters"}))
        self.server = FakeApiserver(
            authority=self.authority, client_ca_pem=self.authority.cert_pem, cluster=settings
        )

    def kubeconfig(self) -> str:
        return self.server.kubeconfig(self.leaf)

    def create(self, resource: Resource, namespace: str, name: str, **fields: Any) -> Object:
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        return self.server.cluster.create(resource, {"metadata": metadata, **fields})

    def delete(self, resource: Resource, namespace: str, name: str) -> None:
        self.server.cluster.delete(resource, namespace, name)

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        found = self.server.storage.select(Selection(resource, namespace))
        return next((each for each in found if each["metadata"]["name"] == name), None)

    def names(self, resource: Resource, namespace: str = "") -> set[str]:
        return {
            each["metadata"]["name"] for each in self.server.storage.select(Selection(resource, namespace))
        }

    def fill(self, count: int) -> None:
        """A namespace `web` with ConfigMaps `settings-0` and so on."""
        self.create(NAMESPACES, "", "web")
        for number in range(count):
            self.create(CONFIG_MAPS, "web", f"settings-{number}", data={"n": str(number)})


class VirtualClusters:
    """Tenants by VirtualClusters `tenants/<name>`, whose cluster key is `t-<name>`."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.super = RuledControlPlane("super")
        self.planes: dict[str, RuledControlPlane] = {}
        self._directory = directory
        self.syncer = SyncerProcess(
            directory,
            "vc-syncer",
            {
                "superCluster": {"kubeconfigFile": str(directory / "super.kubeconfig")},
                "tenants": {"virtualClusters": {}},
                **settings,
            },
        )

    async def start(self) -> None:
        await self.super.server.start()
        (self._directory / "super.kubeconfig").write_text(self.super.kubeconfig())
        self.super.create(NAMESPACES, "", NAMESPACE)

    async def stop(self) -> None:
        await self.syncer.stop()
        for plane in (self.super, *self.planes.values()):
            plane.server.heal()
            await plane.server.stop()

    async def add_plane(self, name: str, configmaps: int = 1) -> RuledControlPlane:
        """Start a tenant's control plane."""
        plane = self.planes[name] = RuledControlPlane(name)
        await plane.server.start()
        plane.fill(configmaps)
        return plane

    async def add(self, name: str, configmaps: int = 1) -> RuledControlPlane:
        """A tenant that runs, with its credentials in the annotation."""
        plane = await self.add_plane(name, configmaps)
        self.add_cluster(name, {keys.ADMIN_KUBECONFIG: encoded(plane.kubeconfig())})
        return plane

    def add_cluster(
        self,
        name: str,
        annotations: dict[str, str] | None = None,
        *,
        phase: str = "Running",
        spec: dict[str, Any] | None = None,
    ) -> None:
        self.super.server.storage.create(
            VIRTUAL_CLUSTERS,
            {
                "apiVersion": "tenancy.x-k8s.io/v1alpha1",
                "kind": "VirtualCluster",
                "metadata": {"namespace": NAMESPACE, "name": name, "annotations": annotations or {}},
                "spec": spec or {},
                "status": {"phase": phase, "clusterNamespace": f"t-{name}"},
            },
        )

    def add_secret(self, name: str, secret: str, key: str, kubeconfig: str) -> None:
        """A Secret in the tenant's root namespace."""
        if self.super.get(NAMESPACES, "", f"t-{name}") is None:
            self.super.create(NAMESPACES, "", f"t-{name}")
        self.super.create(SECRETS, f"t-{name}", secret, data={key: encoded(kubeconfig)})

    def cluster(self, name: str) -> Object:
        found = self.super.get(VIRTUAL_CLUSTERS, NAMESPACE, name)
        assert found is not None
        return found

    def annotate(self, name: str, **annotations: str | None) -> None:
        """Set annotations by the names of `tenancy.keys`; None removes one."""
        found = self.cluster(name)
        noted = found["metadata"].setdefault("annotations", {})
        for key, value in annotations.items():
            noted.pop(getattr(keys, key), None)
            if value is not None:
                noted[getattr(keys, key)] = value
        self.super.server.storage.replace(VIRTUAL_CLUSTERS, found)

    def set_phase(self, name: str, phase: str) -> None:
        found = self.cluster(name)
        found["status"]["phase"] = phase
        self.super.server.storage.replace(VIRTUAL_CLUSTERS, found)

    def condition(self, name: str, reason: str) -> tuple[str, str]:
        """The status and the message; both empty without the condition."""
        for each in self.cluster(name)["status"].get("conditions") or ():
            if each["reason"] == reason:
                return each["status"], each["message"]
        return "", ""

    def has_condition(self, name: str, reason: str) -> bool:
        return self.condition(name, reason)[0] == "True"

    def synced(self, name: str) -> set[str]:
        """The names of the tenant's ConfigMaps of `web` in the super cluster."""
        return self.super.names(CONFIG_MAPS, f"t-{name}-web") - {"kube-root-ca.crt"}

    async def until_synced(self, *names: str, within_s: float = DEADLINE_S) -> None:
        for name in names:
            own = self.planes[name].names(CONFIG_MAPS, "web")
            # With the authority of the API server, which else would come later than a snapshot.
            expected = {configmap.SYNC.super_name(each) for each in own}
            await self.syncer.until(partial(self._has_synced, name, expected), within_s)

    async def until_synced_object(self, resource: Resource, name: str, object_name: str) -> None:
        """An object of `web` is in the super cluster."""
        await self.syncer.until(lambda: object_name in self.super.names(resource, f"t-{name}-web"))

    def _has_synced(self, name: str, own: set[str]) -> bool:
        return own <= self.synced(name)

    async def until_follows(self, name: str, change: str) -> None:
        """A new ConfigMap of this tenant goes down."""
        self.planes[name].create(CONFIG_MAPS, "web", change, data={})
        await waiting.until(
            lambda: change in self.synced(name), within_s=DEADLINE_S, context=self.syncer.tail
        )


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@contextlib.asynccontextmanager
async def virtual_clusters(directory: Path, **settings: Any) -> AsyncIterator[VirtualClusters]:
    """The super cluster runs; the syncer is not started yet."""
    clusters = VirtualClusters(directory, **settings)
    await clusters.start()
    try:
        yield clusters
    finally:
        await clusters.stop()
