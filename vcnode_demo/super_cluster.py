# SPDX-License-Identifier: Apache-2.0
"""The fake super cluster of the demo: an API server with tenants, their Secrets, and pods.

It runs on a thread of its own. The node's daemons may read what their roles allow.
"""

import base64
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

from daemonkit.kube.resources import (
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
    VIRTUAL_CLUSTERS,
    Resource,
)
from daemonkit.tasks import Tasks
from devkit.kube.apiserver import FakeApiserver, Seen
from devkit.kube.cluster import Cluster, ClusterSettings
from devkit.kube.in_process import InProcessClient
from devkit.kube.storage import Object, Selection
from devkit.kube.workloads import FakeWorkloads, Scale
from devkit.kubelet.pods import FakePod, pod_list
from devkit.pki import Authority, Leaf
from devkit.syncer.fake_node import FakeNode
from dnsconfig.cluster.objects import NETWORKS
from tenancy import keys, names
from tenancy.tenant import Role
from vcnode_demo.held_port import HeldPort
from vcnode_demo.loop_thread import LoopThread

_READABLE_SECRETS = frozenset({"root-ca", "apiserver-ca"})
_CLIENTS = "vn-agent-clients"
SYNCER = "vc-syncer"
OPERATOR = "vc-operator"
_ROOT = Path(__file__).parents[1]
SYNCER_ROLES = _ROOT / "packaging" / "syncer" / "rbac.yaml"
OPERATOR_ROLES = _ROOT / "packaging" / "operator" / "rbac.yaml"
# A person, who may do all.
KUBECTL = "kubectl"
# A node address of this host: vn-agent listens there.
_NODE_IP = "127.0.0.1"
_STOP_S = 1.0

T = TypeVar("T")


class FakeSuperCluster:
    """`start`, put objects in, `stop`."""

    def __init__(self, node_name: str) -> None:
        self._node_name = node_name
        # Cluster IPs of this host, at which tenants' API servers can listen without a kube-proxy. Two demos
        # on one host have others.
        process = os.getpid()
        self.service_cidr = f"127.{64 + process % 128}.{process >> 7 & 255}.0/24"
        self._clients = Authority.create("super-cluster-clients")
        self._server = FakeApiserver(
            authority=Authority.create("super-cluster"),
            client_ca_pem=self._clients.cert_pem,
            authorize=self._may,
            # The objects that the demo makes by hand go into the storage, past these rules.
            cluster=ClusterSettings(
                service_cidr=self.service_cidr, with_status=frozenset({"virtualclusters"})
            ),
        )
        self._thread = LoopThread("super cluster")
        self._tasks = Tasks("nodes")
        self._rights = {SYNCER: rights(SYNCER_ROLES), OPERATOR: rights(OPERATOR_ROLES)}
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
            self._thread.run(self._tasks.close(_STOP_S))
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

    def kubeconfig(self, daemon: str) -> str:
        """A kubeconfig with the credential of one of the node's daemons."""
        leaf = self._clients.issue(f"system:{daemon}:{self._node_name}", usages=("client",))
        return self._server.kubeconfig(leaf)

    def add_tenant(self, name: str, authority: Authority, apiserver: Leaf, metrics: Leaf) -> str:
        """Add a VirtualCluster with its provisioner's Secrets; return the cluster key."""
        storage = self._server.storage

        def add() -> str:
            cluster = storage.create(
                VIRTUAL_CLUSTERS, {"metadata": {"namespace": f"team-{name}", "name": name}, "spec": {}}
            )
            key = names.cluster_key(f"team-{name}", name, cluster["metadata"]["uid"])
            if isinstance(key, names.Refused):
                raise AssertionError(key.reason)
            for resource, value in _registration(key, [authority], apiserver, [metrics]):
                storage.create(resource, value)
            # Last: a tenant counts once its control plane runs.
            cluster["status"] = {"phase": "Running", "clusterNamespace": key}
            storage.replace(VIRTUAL_CLUSTERS, cluster)
            return key

        return self._call(add)

    def put_registration(
        self, key: str, authorities: Iterable[Authority], apiserver: Leaf, metrics: Iterable[Leaf]
    ) -> None:
        """Replace the tenant's Secrets and its list of clients, as when its authority is renewed."""
        for resource, value in _registration(key, authorities, apiserver, metrics):
            self._put(resource, value)

    def put_admin_kubeconfig(self, key: str, kubeconfig: str) -> None:
        """The credentials of a tenant's control plane, where VirtualCluster's provisioner puts them."""
        data = {"admin-kubeconfig": base64.b64encode(kubeconfig.encode()).decode()}
        self._put(SECRETS, {"metadata": {"namespace": key, "name": "admin-kubeconfig"}, "data": data})

    def annotate_virtual_cluster(self, name: str, key: str, value: str) -> None:
        def annotate() -> None:
            found = self._server.storage.get(VIRTUAL_CLUSTERS, f"team-{name}", name)
            found["metadata"].setdefault("annotations", {})[key] = value
            self._server.storage.replace(VIRTUAL_CLUSTERS, found)

        self._call(annotate)

    def remove_tenant(self, name: str) -> None:
        storage = self._server.storage
        self._call(lambda: storage.delete(VIRTUAL_CLUSTERS, f"team-{name}", name))

    def add_tenant_pod(
        self, owner: str, key: str, tenant_namespace: str, name: str, uid: str, network: str = ""
    ) -> FakePod:
        """Add a tenant's pod, as the syncer copies it; return it for the kubelet."""
        namespace = names.super_namespace(key, tenant_namespace)
        if isinstance(namespace, names.Refused):
            raise AssertionError(namespace.reason)
        annotations = {keys.CLUSTER: key, keys.NAMESPACE: tenant_namespace, keys.UID: uid}
        labels = {"owner": owner} | ({keys.ARKTOS_NETWORK: network} if network else {})
        return self.add_pod(namespace, name, annotations, labels)

    def add_pod(
        self,
        namespace: str,
        name: str,
        annotations: Mapping[str, str],
        labels: Mapping[str, str],
        container: str = "app",
    ) -> FakePod:
        def pod(uid: str) -> FakePod:
            return FakePod(
                namespace, name, uid, containers=(container,), annotations=annotations, labels=labels
            )

        value = pod_list([pod("")])["items"][0]
        value["spec"]["nodeName"] = self._node_name
        storage = self._server.storage
        # The API server gives the uid, and the kubelet has the one that it gave.
        return pod(self._call(lambda: storage.create(PODS, value))["metadata"]["uid"])

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the server's thread."""
        return self._thread.run(work)

    # ---- what vc-operator makes

    def start_workloads(self, scale: Callable[[Cluster], Scale]) -> None:
        """Let Deployments and StatefulSets run, as the kubelet that `scale` makes of the cluster says."""

        async def begin() -> None:
            workloads = FakeWorkloads(self._server.cluster, scale(self._server.cluster))
            self._tasks.spawn(workloads.run(), "workloads")

        self._thread.run(begin())

    # ---- what vc-syncer makes

    def start_node(self, on_pods: Callable[[tuple[FakePod, ...]], None]) -> None:
        """Schedule pods, and let them run.

        `on_pods` gets the running pods that vc-syncer made, on the server's thread.
        """

        async def begin() -> None:
            node = FakeNode(
                InProcessClient(self._server.cluster),
                (self._node_name,),
                host_ip=_NODE_IP,
                pod_cidr="10.244.1.0/24",
            )
            await node.register()
            self._tasks.spawn(node.run(), "fake node")

        def pods_changed(resource: Resource | None) -> None:
            if resource in (None, PODS):
                on_pods(self._synced_pods())

        self._server.storage.on_write.append(pods_changed)
        self._thread.run(begin())

    def _synced_pods(self) -> tuple[FakePod, ...]:
        found = self._server.storage.select(Selection.parse(PODS, "", keys.VC_NAME))
        return tuple(_fake_pod(each) for each in found if each["status"].get("phase") == "Running")

    def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return self._call(lambda: self._server.storage.peek(resource, namespace, name))

    def objects(self, resource: Resource, namespace: str = "") -> list[Object]:
        return self._call(lambda: self._server.storage.select(Selection(resource, namespace)))

    def create(self, resource: Resource, namespace: str, name: str, **fields: Any) -> None:
        """Create an object by the rules of a cluster."""
        own = {"name": name} | ({"namespace": namespace} if namespace else {})
        value = {"metadata": own | fields.pop("metadata", {}), **fields}
        self._call(partial(self._server.cluster.create, resource, value))

    def edit(self, resource: Resource, namespace: str, name: str, **fields: Any) -> None:
        """Put other values into fields of an object, as a person with kubectl."""

        def edit() -> None:
            cluster = self._server.cluster
            cluster.update(resource, self._server.storage.get(resource, namespace, name) | fields)

        self._call(edit)

    def delete(self, resource: Resource, namespace: str, name: str) -> None:
        """Delete an object, as a person with kubectl."""
        self._call(partial(self._server.cluster.delete, resource, namespace, name))

    # ---- Services

    def add_node(self) -> None:
        addresses = [{"type": "InternalIP", "address": _NODE_IP}]
        status = {"addresses": addresses, "conditions": [{"type": "Ready", "status": "True"}]}
        self._put(NODES, {"metadata": {"name": self._node_name}, "status": status})

    def add_namespace(self, key: str, tenant_namespace: str) -> str:
        """Add a tenant's namespace, as the syncer copies it; return its name here."""
        name = names.super_namespace(key, tenant_namespace)
        if isinstance(name, names.Refused):
            raise AssertionError(name.reason)
        annotations = {keys.CLUSTER: key, keys.NAMESPACE: tenant_namespace}
        self._put(NAMESPACES, {"metadata": {"name": name, "annotations": annotations}})
        return name

    def put_service(
        self, namespace: str, name: str, ip: str, tenants_ip: str, port: int, endpoints: Sequence[str]
    ) -> None:
        """A Service with the cluster IPs of both clusters, and the `ip:port` behind it."""
        self.put_endpoints(namespace, name, endpoints)
        ports = [{"name": "http", "protocol": "TCP", "port": port}]
        spec = {"clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"], "ports": ports}
        metadata = {"namespace": namespace, "name": name, "annotations": {keys.CLUSTER_IP: tenants_ip}}
        self._put(SERVICES, {"metadata": metadata, "spec": spec})

    def put_endpoints(self, namespace: str, service: str, endpoints: Sequence[str]) -> None:
        """The endpoints of a Service, `ip:port` with one port for all."""
        ports = {endpoint.partition(":")[2] for endpoint in endpoints}
        metadata = {
            "namespace": namespace,
            "name": f"{service}-1",
            "labels": {"kubernetes.io/service-name": service},
        }
        endpoint_slice = {
            "metadata": metadata,
            "addressType": "IPv4",
            "ports": [{"name": "http", "protocol": "TCP", "port": int(port)} for port in sorted(ports)],
            "endpoints": [
                {"addresses": [endpoint.partition(":")[0]], "conditions": {"ready": True}}
                for endpoint in endpoints
            ],
        }
        self._put(ENDPOINT_SLICES, endpoint_slice)

    # ---- networks

    def put_network(self, key: str, name: str, dns_ip: str) -> None:
        """Put a tenant's network that is ready, with the DNS server that its provider reports."""
        network = {
            "metadata": {"namespace": self.add_namespace(key, "kube-system"), "name": name},
            "spec": {"type": "vpc", "service": {"ipam": "External"}},
            "status": {"phase": "Ready", "dnsServiceIP": dns_ip},
        }
        self._put(NETWORKS, network)

    def _put(self, resource: Resource, value: dict[str, Any]) -> None:
        storage = self._server.storage
        self._call(lambda: storage.put(resource, value))

    # ---- access

    def _may(self, seen: Seen) -> bool:
        """Apply the roles of the node's daemons, and of vc-syncer."""
        if seen.user_agent == KUBECTL:
            return True
        if seen.user_agent in self._rights:
            asked = _right(seen.resource.group, seen.resource.plural, seen.subresource, seen.verb)
            return asked in self._rights[seen.user_agent]
        if seen.verb not in ("list", "watch"):
            return False
        if seen.resource == SECRETS:
            return seen.name in _READABLE_SECRETS
        if seen.resource == CONFIG_MAPS:
            return seen.name == _CLIENTS
        if seen.resource == PODS:
            return seen.query.get("fieldSelector") == f"spec.nodeName={self._node_name}"
        if seen.resource == NODES:
            return seen.name == self._node_name
        return seen.resource in (VIRTUAL_CLUSTERS, NAMESPACES, SERVICES, ENDPOINT_SLICES, NETWORKS)

    def _call(self, work: Callable[[], T]) -> T:
        """Do something on the server's own thread."""

        async def on_loop() -> T:
            return work()

        return self._thread.run(on_loop())


def _registration(
    key: str, authorities: Iterable[Authority], apiserver: Leaf, metrics: Iterable[Leaf]
) -> list[tuple[Resource, dict[str, Any]]]:
    """What the provisioner and the operator keep in the tenant's root namespace."""
    role = Role.METRICS.value
    clients = [f"- {{spkiSHA256: '{each.spki_sha256}', role: {role}}}\n" for each in metrics]
    listed = {"metadata": {"namespace": key, "name": _CLIENTS}, "data": {"clients.yaml": "".join(clients)}}
    return [
        (SECRETS, _tls_secret(key, "root-ca", b"".join(each.cert_pem for each in authorities))),
        (SECRETS, _tls_secret(key, "apiserver-ca", apiserver.cert_pem)),
        (CONFIG_MAPS, listed),
    ]


def _tls_secret(namespace: str, name: str, certificate_pem: bytes) -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "name": name},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": base64.b64encode(certificate_pem).decode()},
    }


def _fake_pod(pod: Object) -> FakePod:
    """A pod of the API server, as the kubelet runs it."""
    metadata = pod["metadata"]
    return FakePod(
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        containers=tuple(each["name"] for each in pod["spec"]["containers"]),
        annotations=metadata.get("annotations") or {},
        labels=metadata.get("labels") or {},
    )


def rights(manifest: Path) -> frozenset[tuple[str, str, str]]:
    """What the ClusterRoles of a manifest allow: group, resource and verb."""
    return frozenset(
        (group, resource, verb)
        for each in yaml.safe_load_all(manifest.read_text())
        if each["kind"] == "ClusterRole"
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


def _right(group: str, plural: str, subresource: str, verb: str) -> tuple[str, str, str]:
    return group, f"{plural}/{subresource}" if subresource else plural, verb
