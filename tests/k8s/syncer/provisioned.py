# SPDX-License-Identifier: Apache-2.0
"""What vc-manager leaves in the super cluster for a tenant whose control plane runs."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

from tenancy import keys
from tests.k8s.ring import shipped, virtual_clusters
from tests.k8s.ring.api import JsonObject, KubernetesApi, TlsEndpoint
from tests.k8s.ring.tenants import RingTenant

# The namespace of all VirtualClusters. Each tenant's root namespace is called like its key.
HOME = "tenants"
ADMIN_KUBECONFIG = "admin-kubeconfig"


def provision(super_api: KubernetesApi, tenant: RingTenant, name: str, service_cidrs: str) -> None:
    """Make the VirtualCluster, its root namespace and Secrets, and at last its phase `Running`."""
    super_api.create("/api/v1/namespaces", _namespace(HOME, {}), may_exist=True)
    spec = {"clusterVersionName": "cv", "clusterDomain": "cluster.local"}
    made = super_api.create(virtual_clusters.path(HOME), virtual_clusters.manifest(name, spec))
    annotations = {
        keys.VC_NAME: name,
        keys.VC_NAMESPACE: HOME,
        keys.VC_UID: made["metadata"]["uid"],
        keys.VC_ROOT_NAMESPACE: "true",
        keys.SERVICE_CIDRS: service_cidrs,
    }
    super_api.create("/api/v1/namespaces", _namespace(tenant.key, annotations))
    for secret, pem in (
        ("root-ca", tenant.apiserver.authority.cert_pem),
        ("apiserver-ca", tenant.client.cert_pem),
    ):
        _put_secret(
            super_api, tenant, secret, "kubernetes.io/tls", {"tls.crt": pem, "tls.key": b"never read"}
        )
    put_admin_kubeconfig(super_api, tenant, _let_in(tenant))
    status = {"phase": "Running", "clusterNamespace": tenant.key}
    super_api.patch(f"{virtual_clusters.path(HOME, name)}/status", {"status": status})


def _let_in(tenant: RingTenant) -> TlsEndpoint:
    """The syncer's access to the tenant: with the shipped role alone, not as an administrator."""
    shipped.apply_rights(tenant.api, "", "options/vc-syncer-tenant.yaml")
    leaf = tenant.apiserver.authority.issue(
        "vcnode:vc-syncer", organization="vcnode:vc-syncers", usages=("client",)
    )
    return replace(tenant.api.endpoint, leaf=leaf)


def put_admin_kubeconfig(super_api: KubernetesApi, tenant: RingTenant, endpoint: TlsEndpoint) -> None:
    """Write the Secret by which the syncer reaches the tenant, or replace its content."""
    content = {ADMIN_KUBECONFIG: kubeconfig(endpoint).encode()}
    _put_secret(super_api, tenant, ADMIN_KUBECONFIG, "Opaque", content)


def kubeconfig(endpoint: TlsEndpoint) -> str:
    """A kubeconfig that names no file."""
    assert endpoint.leaf is not None
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "tenant",
                "cluster": {
                    "server": f"https://{endpoint.address}:{endpoint.port}",
                    "certificate-authority-data": _base64(endpoint.authority_pem),
                },
            }
        ],
        "users": [
            {
                "name": "admin",
                "user": {
                    "client-certificate-data": _base64(endpoint.leaf.cert_pem),
                    "client-key-data": _base64(endpoint.leaf.key_pem),
                },
            }
        ],
        "contexts": [{"name": "admin", "context": {"cluster": "tenant", "user": "admin"}}],
        "current-context": "admin",
    }
    return json.dumps(document)  # JSON is YAML


def _put_secret(
    api: KubernetesApi, tenant: RingTenant, name: str, kind: str, content: dict[str, bytes]
) -> None:
    data = {key: _base64(value) for key, value in content.items()}
    path = f"/api/v1/namespaces/{tenant.key}/secrets"
    value = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind, "data": data}
    if not api.create(path, value, may_exist=True):
        api.patch(f"{path}/{name}", {"data": data})


def _namespace(name: str, annotations: dict[str, str]) -> JsonObject:
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
