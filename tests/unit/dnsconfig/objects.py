# SPDX-License-Identifier: Apache-2.0
"""Objects of a super cluster as JSON."""

from typing import Any

from tenancy import keys

Json = dict[str, Any]


def namespace(tenant: str, name: str, *, called: str = "", **annotations: str) -> Json:
    """The super namespace of a tenant's `name`; `called` where it is not `<tenant>-<name>`."""
    owners = {keys.CLUSTER: tenant, keys.NAMESPACE: name}
    metadata = {"name": called or f"{tenant}-{name}", "annotations": owners | annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def service(
    tenant: str,
    network: str,
    *ips: str,
    where: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Json:
    """The DNS Service of a tenant's network, as the network controller and the syncer leave it."""
    metadata = {
        "name": f"kube-dns-{network}",
        "namespace": where or f"{tenant}-kube-system",
        "labels": {keys.ARKTOS_NETWORK: network} if labels is None else labels,
        "annotations": annotations or {},
    }
    spec = {"clusterIP": ips[0] if ips else "None", "clusterIPs": list(ips) or ["None"]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def network(
    tenant: str,
    name: str,
    phase: str = "Ready",
    *,
    where: str = "",
    ipam: str = "Arktos",
    dns_service_ip: str = "",
    message: str = "",
    **metadata: Any,
) -> Json:
    return {
        "apiVersion": "arktos.futurewei.com/v1",
        "kind": "Network",
        "metadata": {"name": name, "namespace": where or f"{tenant}-kube-system"} | metadata,
        "spec": {"type": "vpc", "service": {"ipam": ipam}},
        "status": {"phase": phase, "dnsServiceIP": dns_service_ip, "message": message},
    }


def virtual_cluster(key: str, domain: str, name: str = "vc", uid: str = "u") -> Json:
    return {
        "apiVersion": "tenancy.x-k8s.io/v1alpha1",
        "kind": "VirtualCluster",
        "metadata": {"name": name, "namespace": "tenants", "uid": uid},
        "spec": {"clusterDomain": domain},
        "status": {"clusterNamespace": key},
    }


def pod(
    tenant: str,
    name: str = "web-0",
    *,
    tenant_namespace: str = "shop",
    network: str | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A tenant's pod; without a tenant one of the super cluster itself."""
    owners = {keys.CLUSTER: tenant, keys.NAMESPACE: tenant_namespace, keys.UID: f"tenant-{name}"}
    named = {} if network is None else {keys.ARKTOS_NETWORK: network}
    metadata = {
        "name": name,
        "namespace": f"{tenant}-{tenant_namespace}" if tenant else tenant_namespace,
        "uid": f"uid-{tenant}-{tenant_namespace}-{name}",
        "labels": named | (labels or {}),
        "annotations": (owners if tenant else {}) | (annotations or {}),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def tenant(key: str, **networks: str) -> list[Json]:
    """A tenant with namespaces `kube-system` and `shop`, and ready networks with these servers."""
    found = [namespace(key, "kube-system"), namespace(key, "shop")]
    for name, ip in networks.items():
        found += [network(key, name), service(key, name, ip)]
    return found
