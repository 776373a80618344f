# SPDX-License-Identifier: Apache-2.0
"""A fake super cluster with settled VirtualClusters, made by vc-operator itself.

To make them it runs in this process, with clients that need no socket: a thousand tenants are a minute then.
Their workloads are ready at once, and a tenant's API server is a storage that takes what it is sent. After
that the super cluster is served by TLS, to the process that is measured.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import yaml

from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, NODES, VIRTUAL_CLUSTERS
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.run.service_manager import Supervision
from daemonkit.tasks import Tasks
from devkit.kube.apiserver import FakeApiserver
from devkit.kube.cluster import Cluster, ClusterSettings
from devkit.kube.in_process import InProcessClient
from devkit.kube.storage import Object, Selection, Storage, copied
from devkit.kube.workloads import FakeWorkloads
from devkit.pki import Authority
from tenancy import keys
from tenancy import names as tenancy_names
from tenant_operator.config import load
from tenant_operator.defaults.inventory import INVENTORY_KEY, read_inventory
from tenant_operator.edge.surroundings import OperatorSurroundings
from tenant_operator.model import names
from tenant_operator.model.objects import CLUSTER_VERSIONS
from tenant_operator.run.service import OperatorService
from tests import waiting

NAMESPACE = "tenants"
# At most, on a busy machine: the operator's start, and of one VirtualCluster.
_START_S, _SETTLED_S = 60.0, 5.0
_STOP_S = 5.0
_RELEASE: Object = {
    "kubernetesVersion": "1.34.4",
    "etcdVersion": "3.7.3",
    "images": {
        "apiServer": "registry.example/kube-apiserver:v1.34.4",
        "controllerManager": "registry.example/kube-controller-manager:v1.34.4",
        "etcd": "registry.example/etcd:3.7.3",
        "signer": "registry.example/vc-operator:1",
    },
    "datastore": {"type": "etcd", "size": "1Gi"},
}


class Ground:
    """The super cluster, and what answers in the place of its nodes. In `directory` are files of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = Authority.create("super-cluster")
        self._tasks = Tasks("fake super cluster")
        self._tenants: dict[str, InProcessClient] = {}
        # A thousand are not looked at after each write.
        self._unsettled: list[str] = []
        self._unattached: dict[str, None] = {}
        self._is_attaching = False
        self._health = InProcessClient(Cluster(Storage()))
        self.server = FakeApiserver(
            authority=self._authority,
            client_ca_pem=self._authority.cert_pem,
            cluster=ClusterSettings(service_cidr="10.96.0.0/12", with_status=frozenset({"virtualclusters"})),
            max_history=50_000,
        )
        self.node = FakeApiserver(authority=self._authority)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator["Ground"]:
        """Serve, with one node, until the end."""
        async with self.server, self.node:
            cluster = self.server.cluster
            self._tasks.spawn(FakeWorkloads(cluster).run(), "workloads")
            cluster.storage.on_write.append(self._note)
            for name in (NAMESPACE, "vcnode-system"):
                cluster.create(NAMESPACES, {"metadata": {"name": name}})
            cluster.create(CLUSTER_VERSIONS, {"metadata": {"name": "v1.34"}, "spec": _RELEASE})
            addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
            node = cluster.create(NODES, {"metadata": {"name": "node-1"}})
            status = {"addresses": addresses, "conditions": [{"type": "Ready", "status": "True"}]}
            cluster.update(NODES, node | {"status": status}, "status")
            self._write_files()
            try:
                yield self
            finally:
                await self._tasks.close(_STOP_S)

    @property
    def config_file(self) -> Path:
        """The operator's configuration."""
        return self._directory / "vc-operator.yaml"

    @property
    def socket(self) -> Path:
        """Of the operator's status pages."""
        return self._directory / "status.sock"

    async def grow(self, count: int) -> float:
        """Have further VirtualClusters made, up to so many, until all are settled; returns the seconds of
        processor time of both sides."""
        began_s = time.process_time()
        for number in range(len(self.clusters()), count):
            name = f"tenant-{number:04}"
            value = {
                "kind": "VirtualCluster",
                "apiVersion": "tenancy.x-k8s.io/v1alpha1",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"clusterVersionName": "v1.34"},
            }
            self.server.cluster.create(VIRTUAL_CLUSTERS, value)
            self._unsettled.append(name)
            self._unattached[name] = None
        outside = OperatorSurroundings(
            open_super=lambda *_: InProcessClient(self.server.cluster), open_tenant=self._open_tenant
        )
        service = OperatorService(load(self.config_file), {}, outside)
        life = Lifecycle(Supervision(), send=lambda *_: None)
        async with asyncio.TaskGroup() as group:
            group.create_task(service.run(life))
            await waiting.until(self._are_settled, within_s=_START_S + _SETTLED_S * count)
            life.stop()
        return time.process_time() - began_s

    def clusters(self) -> list[Object]:
        """All VirtualClusters."""
        return self.server.storage.select(Selection(VIRTUAL_CLUSTERS))

    def touch(self, number: int, value: str) -> None:
        """Change an annotation of a VirtualCluster that means nothing: it is reconciled once more."""
        found = self.server.storage.get(VIRTUAL_CLUSTERS, NAMESPACE, f"tenant-{number:04}")
        found["metadata"].setdefault("annotations", {})["example.com/touched"] = value
        self.server.storage.replace(VIRTUAL_CLUSTERS, found)

    def _are_settled(self) -> bool:
        while self._unsettled:
            found = self._peek(self._unsettled[-1])
            if not (_is_ready(found) and self._has_defaults(found)):
                return False
            self._unsettled.pop()
        return True

    def _peek(self, name: str) -> Object:
        found = self.server.storage.peek(VIRTUAL_CLUSTERS, NAMESPACE, name)
        assert found is not None
        return found

    def _has_defaults(self, cluster: Object) -> bool:
        key = cluster["status"]["clusterNamespace"]
        found = self.server.storage.peek(CONFIG_MAPS, key, names.DEFAULTS_INVENTORY)
        return found is not None and bool(read_inventory(found["data"].get(INVENTORY_KEY)).digest)

    def _note(self, resource: object) -> None:
        """In vc-syncer's place: the super namespace `default` of each tenant that is served."""
        if resource in (None, VIRTUAL_CLUSTERS) and not self._is_attaching:
            self._is_attaching = True
            asyncio.get_running_loop().call_soon(self._attach)

    def _attach(self) -> None:
        storage = self.server.storage
        self._is_attaching = False
        for each in list(self._unattached):
            cluster = self._peek(each)
            status, metadata = cluster.get("status") or {}, cluster["metadata"]
            key = status.get("clusterNamespace", "")
            name = tenancy_names.super_namespace(key, "default") if key else ""
            if status.get("phase") != "Running" or not isinstance(name, str):
                continue
            del self._unattached[each]
            if not storage.has(NAMESPACES, "", name):
                annotations = {keys.CLUSTER: key, keys.NAMESPACE: "default", keys.VC_UID: metadata["uid"]}
                value = {"metadata": {"name": name, "annotations": annotations}}
                self.server.cluster.create(NAMESPACES, copied(value))

    def _open_tenant(self, access: Access) -> InProcessClient:
        """A tenant's API server by its address, or vn-agent, of which only its health is asked."""
        if access.server.endswith(f":{self.node.port}"):
            return self._health
        if access.server not in self._tenants:
            self._tenants[access.server] = InProcessClient(Cluster(Storage(), ClusterSettings()))
        return self._tenants[access.server]

    def _write_files(self) -> None:
        kubeconfig = self._directory / "super-cluster.kubeconfig"
        kubeconfig.write_text(self.server.kubeconfig(self._authority.issue("vc-operator", usages=["client"])))
        kubeconfig.chmod(0o600)
        authority = self._authority.write(self._directory, "vn-agent-ca")
        document: Mapping[str, object] = {
            "apiVersion": keys.API_VERSION,
            "kind": "OperatorConfiguration",
            "superCluster": {
                "kubeconfigFile": str(kubeconfig),
                "serviceCidrs": ["10.96.0.0/12"],
                "podCidrs": ["10.244.0.0/16"],
                "nodeCidrs": ["192.168.0.0/24"],
            },
            "nodes": {"port": self.node.port, "servingCaFile": str(authority)},
            "status": {"socket": str(self.socket)},
        }
        self.config_file.write_text(yaml.safe_dump(document))


def _is_ready(cluster: Object) -> bool:
    conditions = (cluster.get("status") or {}).get("conditions") or []
    found = {each.get("type"): each["status"] for each in conditions}
    return (found.get("Ready"), found.get("UpToDate")) == ("True", "True")
