# SPDX-License-Identifier: Apache-2.0
"""`default/kubernetes` in guests: a pod reaches its own tenant's real API server, and no other.

The tenants' API servers and the super cluster's gave their `kubernetes` the same address. Who answers
there shows its certificate, which the dialling side verifies, and the uid of its `kube-system`.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tenancy import keys
from tests.k8s.ring.api import JsonObject, KubernetesApi, TlsEndpoint
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.services import RingService
from tests.k8s.ring.serving import CHANGED_S, KATA, STOCK, ServingNode, serving
from tests.k8s.ring.tenants import RingTenant

_SERVICE = "/api/v1/namespaces/default/services/kubernetes"
_SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
_WHO = "/api/v1/namespaces/kube-system"


@pytest.fixture(scope="module")
def node(ring: Ring) -> Iterator[ServingNode]:
    with serving(ring) as made:
        yield made


@contextmanager
def _mirrored(ring: Ring, tenant: RingTenant) -> Iterator[str]:
    """What a syncer makes of the tenant's `default/kubernetes`; the address that the tenant has for it."""
    own_ip: str = tenant.api.get(_SERVICE)["spec"]["clusterIP"]
    own: JsonObject = tenant.api.get(_SLICE)
    namespace, api = tenant.super_namespace("default"), ring.super_cluster.api
    annotations = {keys.CLUSTER: tenant.key, keys.NAMESPACE: "default", keys.CLUSTER_IP: own_ip}
    ports = [{"name": "https", "port": 443, "protocol": "TCP"}]
    made = api.create(
        f"/api/v1/namespaces/{namespace}/services",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kubernetes", "annotations": annotations},
            "spec": {"ports": ports},
        },
    )
    api.create(
        f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "kubernetes-1", "labels": {"kubernetes.io/service-name": "kubernetes"}},
            **{key: own[key] for key in ("addressType", "endpoints", "ports")},
        },
    )
    try:
        yield own_ip
    finally:
        RingService(api, namespace, "kubernetes", made["spec"]["clusterIP"]).delete()


def _from_guest(node: ServingNode, sandbox_netns: str, tenant: RingTenant, ip: str) -> TlsEndpoint:
    """The address, dialled in a guest's network namespace with the tenant's trust and credentials."""
    # An absolute path instead of a name is that path.
    inside = NetworkNamespace(str(node.ring.node.outside(sandbox_netns)), "")
    own = tenant.api.endpoint
    return replace(own, namespace=inside, address=ip, port=443, server_name=own.address)


@pytest.mark.parametrize("handler", [KATA, STOCK])
def test_pod_reaches_its_tenants_apiserver(
    node: ServingNode, acme: RingTenant, acme_x: RingTenant, handler: str
) -> None:
    with _mirrored(node.ring, acme) as ip, _mirrored(node.ring, acme_x) as ip_x:
        assert ip == ip_x == node.ring.super_cluster.api.get(_SERVICE)["spec"]["clusterIP"]
        for tenant, other in ((acme, acme_x), (acme_x, acme)):
            with node.guest(tenant, handler) as pod:
                pod.wait("Running")
                sandbox = node.sandbox_of(pod)
                node.wait_current(sandbox.id)
                own = KubernetesApi(_from_guest(node, sandbox.netns, tenant, ip))
                wait_for("the apiserver", own.is_ready, timeout_s=CHANGED_S)
                assert own.get(_WHO)["metadata"]["uid"] == tenant.api.get(_WHO)["metadata"]["uid"]
                with pytest.raises(ssl.SSLCertVerificationError):
                    _from_guest(node, sandbox.netns, other, ip).dial()
