# SPDX-License-Identifier: Apache-2.0
"""Objects of two tenants, in their control planes and in the super cluster: networks with their DNS
Services, pods, Services. Does the work of a syncer, the network controller and kubelets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tenancy import keys
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.tenants import HandSyncer, RingTenant
from tests.lab_vm.planes import Planes

NODE, ANOTHER_NODE = "worker-1", "worker-2"
NAMESPACE = "shop"
SYSTEM = "kube-system"
PORT = 8080
_CRD = Path(__file__).parents[2] / "packaging" / "crds" / "networks.yaml"
_NETWORKS = "/apis/arktos.futurewei.com/v1"
_SERVED_S = 30.0


@dataclass(frozen=True, slots=True)
class VmPod:
    """A pod of a network; `app` is what Services select. `hostname` goes with the subdomain `app`."""

    name: str
    address: str
    app: str = ""
    hostname: str = ""
    node: str = ANOTHER_NODE


@dataclass(frozen=True, slots=True)
class VmService:
    """A Service at port 80 of the pods with `app`; without an address in its own plane it is headless."""

    name: str
    app: str
    ip: str = ""


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """Creates objects as tenants, a syncer, the network controller and kubelets would."""

    planes: Planes

    def begin(self) -> None:
        """Create what exists before any tenant's objects."""
        api = self.planes.super_cluster.api
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        api.create(crds, yaml.safe_load(_CRD.read_text()))
        api.create("/api/v1/nodes", _object("Node", NODE))
        for tenant in self.planes.tenants.values():
            for node in (NODE, ANOTHER_NODE):
                self._syncer(node).create_vnode(tenant, "192.0.2.1", 10250)
            for namespace in (SYSTEM, NAMESPACE):
                self._syncer().create_namespace(tenant, namespace)

        def is_served() -> bool:
            try:
                api.get(f"{_NETWORKS}/networks")
            except RingError:
                return False
            return True

        wait_for("Networks are served", is_served, timeout_s=_SERVED_S)

    # ---- networks

    def network(self, tenant: RingTenant, name: str) -> None:
        """Make a network that is ready."""
        where = f"{_NETWORKS}/namespaces/{tenant.super_namespace(SYSTEM)}/networks"
        value = _object("Network", name) | {
            "apiVersion": "arktos.futurewei.com/v1",
            "spec": {"type": "vpc"},
        }
        api = self.planes.super_cluster.api
        api.create(where, value)
        api.patch(f"{where}/{name}/status", {"status": {"phase": "Ready"}})

    def dns_service(self, tenant: RingTenant, network: str, ip: str, server: str, port: int) -> None:
        """Give a network's DNS server the cluster IP `ip`, replacing its earlier Service."""
        ports = [("dns", "UDP", 53, port), ("dns-tcp", "TCP", 53, port)]
        self._delete_service(tenant.super_namespace(SYSTEM), f"kube-dns-{network}")
        self._super_service(tenant, SYSTEM, f"kube-dns-{network}", network, [server], ports, clusterIP=ip)

    # ---- what tenants make

    def pod(self, tenant: RingTenant, network: str, pod: VmPod) -> str:
        """Make a pod that runs; returns its UID in the super cluster."""
        labels = {keys.ARKTOS_NETWORK: network, "app": pod.app}
        spec: JsonObject = {"containers": [{"name": "main", "image": "any"}]}
        if pod.hostname:
            spec |= {"hostname": pod.hostname, "subdomain": pod.app}
        syncer = self._syncer(pod.node)
        # As VirtualCluster's syncer: no subdomain below.
        changed = {"subdomain": ""}
        syncer.create_pod(tenant, NAMESPACE, pod.name, spec, labels=labels, changed=changed)
        status = {
            "phase": "Running",
            "podIP": pod.address,
            "podIPs": [{"ip": pod.address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        tenant.api.patch(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod.name}/status", {"status": status})
        uid: str = syncer.super_pod(tenant, NAMESPACE, pod.name)["metadata"]["uid"]
        return uid

    def service(self, tenant: RingTenant, network: str, service: VmService, addresses: Sequence[str]) -> None:
        """Make a Service, and below, if it has an address, its copy with these endpoints."""
        port = {"name": "http", "port": 80, "targetPort": PORT, "protocol": "TCP"}
        value = _object("Service", service.name, labels={keys.ARKTOS_NETWORK: network})
        value["spec"] = {
            "clusterIP": service.ip or "None",
            "selector": {"app": service.app},
            "ports": [port],
        }
        tenant.api.create(f"/api/v1/namespaces/{NAMESPACE}/services", value)
        if service.ip:
            ports = [("http", "TCP", 80, PORT)]
            self._super_service(
                tenant, NAMESPACE, service.name, network, addresses, ports, annotation=service.ip
            )

    # ---- the super cluster's side

    def _super_service(
        self,
        tenant: RingTenant,
        namespace: str,
        name: str,
        network: str,
        addresses: Sequence[str],
        ports: Sequence[tuple[str, str, int, int]],
        *,
        annotation: str = "",
        **spec: object,
    ) -> None:
        """`ports`: name, protocol, of the Service, of its endpoints."""
        api, below = self.planes.super_cluster.api, tenant.super_namespace(namespace)
        annotations = {keys.CLUSTER: tenant.key, keys.NAMESPACE: namespace}
        if annotation:
            annotations[keys.CLUSTER_IP] = annotation
        labels = {keys.ARKTOS_NETWORK: network}
        value = _object("Service", name, labels=labels, annotations=annotations)
        of_service = [{"name": n, "protocol": kind, "port": port} for n, kind, port, _ in ports]
        value["spec"] = {"ports": of_service, **spec}
        api.create(f"/api/v1/namespaces/{below}/services", value)
        value = _object("EndpointSlice", f"{name}-1", labels={"kubernetes.io/service-name": name}) | {
            "apiVersion": "discovery.k8s.io/v1",
            "addressType": "IPv4",
            "endpoints": [{"addresses": [ip], "conditions": {"ready": True}} for ip in addresses],
            "ports": [{"name": n, "protocol": kind, "port": port} for n, kind, _, port in ports],
        }
        api.create(f"/apis/discovery.k8s.io/v1/namespaces/{below}/endpointslices", value)

    def _delete_service(self, namespace: str, name: str) -> None:
        api = self.planes.super_cluster.api
        api.delete(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/{name}-1")
        api.delete(f"/api/v1/namespaces/{namespace}/services/{name}")

    def _syncer(self, node: str = NODE) -> HandSyncer:
        return HandSyncer(self.planes.super_cluster.api, node)


def _object(kind: str, name: str, **metadata: object) -> JsonObject:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **metadata}}
