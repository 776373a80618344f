# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes objects of the bench, as JSON."""

from collections.abc import Sequence

from tenancy import keys
from tests.k8s.ring.api import JsonObject

SERVICES = "/api/v1/namespaces/{}/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"
NAMESPACES = "/api/v1/namespaces"
NODES = "/api/v1/nodes"


class Addresses:
    """Endpoint addresses, each once: a watcher searches for the four bytes of one in a packet filter.

    All bytes are large, so that lengths and flags do not match.
    """

    def __init__(self, first: int = 0) -> None:
        self._given = first

    def next(self) -> str:
        """Return an address of 10.64.0.0/10 that was not used before."""
        number, self._given = self._given, self._given + 1
        rest, last = divmod(number, 200)
        second, third = divmod(rest, 200)
        return f"10.{64 + second % 64}.{33 + third}.{33 + last}"


def namespace(name: str, tenant: str) -> JsonObject:
    """A super namespace, a tenant's `default`, as VirtualCluster's syncer makes it."""
    annotations = {
        keys.CLUSTER: tenant,
        keys.NAMESPACE: "default",
        keys.VC_NAME: tenant,
        keys.VC_NAMESPACE: "tenants",
    }
    return {"metadata": {"name": name, "annotations": annotations}}


def service(name: str, tenant: str) -> JsonObject:
    """A Service of one TCP port; the apiserver allocates its address."""
    return {
        "metadata": {"name": name, "labels": _labels(tenant)},
        "spec": {"ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}]},
    }


def endpoint_slice(name: str, tenant: str, addresses: Sequence[str]) -> JsonObject:
    """All endpoints of the Service `name`."""
    labels = {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "bench"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{name}-1", "labels": labels | _labels(tenant)},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
    }


def node(name: str, address: str) -> JsonObject:
    """The node that both proxies are on."""
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


def _labels(tenant: str) -> dict[str, str]:
    return {keys.VC_NAME: tenant, keys.VC_NAMESPACE: "tenants"}
