# SPDX-License-Identifier: Apache-2.0
"""Networks of tenants as dnsconfig finds them: the object, and the Service of its DNS server.

The server itself is one process on the node, at the first address that a pod reaches. Pods ask it at
their network's own Service address, so that a lookup needs both: the resolver and the rules.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tenancy import keys
from tests.k8s.ring import daemons
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import NodeDaemon
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.services import network_label
from tests.k8s.ring.tenants import RingTenant

_CRD = Path(__file__).resolve().parents[3] / "packaging" / "crds" / "networks.yaml"
_GROUP = "arktos.futurewei.com/v1"
_SERVED_S = 20.0
_PORT = 53


@dataclass(frozen=True, slots=True)
class TenantNetwork:
    """A network; `address` is where its pods find its DNS server."""

    api: KubernetesApi
    namespace: str
    name: str
    address: str

    def set_phase(self, phase: str, message: str = "") -> None:
        """Set its phase, as its controller does."""
        self.api.patch(f"{self._path}/status", {"status": {"phase": phase, "message": message}})

    @property
    def _path(self) -> str:
        return f"/apis/{_GROUP}/namespaces/{self.namespace}/networks/{self.name}"

    def delete(self) -> None:
        service = f"kube-dns-{self.name}"
        self.api.delete(f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices/{service}-1")
        self.api.delete(f"/api/v1/namespaces/{self.namespace}/services/{service}")
        self.api.delete(self._path)


def install(api: KubernetesApi) -> None:
    """Install the Network CRD in the super cluster."""
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    api.create(crds, yaml.safe_load(_CRD.read_text()), may_exist=True)

    def is_served() -> bool:
        try:
            api.get(f"/apis/{_GROUP}/networks")
        except RingError:
            return False
        return True

    wait_for("Networks are served", is_served, timeout_s=_SERVED_S)


@contextmanager
def naming(ring: Ring) -> Iterator[NodeDaemon]:
    """dnsconfig on the node; kata-bridge is to run there."""
    install(ring.super_cluster.api)
    daemon = daemons.dnsconfig(ring, sys.executable)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.stop()


@contextmanager
def network(ring: Ring, tenant: RingTenant, name: str, server: str) -> Iterator[TenantNetwork]:
    """A network of a tenant that is ready, with a DNS server at the address `server`."""
    ring.syncer.create_namespace(tenant, "kube-system")
    namespace = tenant.super_namespace("kube-system")
    api, service = ring.super_cluster.api, f"kube-dns-{name}"
    labels = network_label(name)
    annotations = {keys.CLUSTER: tenant.key, keys.NAMESPACE: "kube-system"}
    ports = [{"name": "dns", "protocol": "UDP", "port": _PORT}]
    networks = f"/apis/{_GROUP}/namespaces/{namespace}/networks"
    api.create(
        networks,
        {"apiVersion": _GROUP, "kind": "Network", "metadata": {"name": name}, "spec": {"type": "flat"}},
    )
    metadata: JsonObject = {"name": service, "labels": labels, "annotations": annotations}
    made = api.create(
        f"/api/v1/namespaces/{namespace}/services",
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}},
    )
    found = TenantNetwork(api, namespace, name, made["spec"]["clusterIP"])
    try:
        api.create(
            f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": f"{service}-1",
                    "labels": {"kubernetes.io/service-name": service},
                },
                "addressType": "IPv4",
                "endpoints": [{"addresses": [server], "conditions": {"ready": True}}],
                "ports": ports,
            },
        )
        found.set_phase("Ready")
        yield found
    finally:
        found.delete()
