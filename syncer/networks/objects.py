# SPDX-License-Identifier: Apache-2.0
"""The objects that a flat Network has in its tenant: what is made, and whether it is as it should be. Pure.

Only fields that are set here are compared: the API server adds its defaults, and the tenant may add more.
What lacks our label, whatever its name, is someone else's: it is never changed or deleted.
"""

from typing import Any

import msgspec

from daemonkit.kube.resources import CONFIG_MAPS, ENDPOINT_SLICES, SERVICES, Resource
from syncer.core.objects import Object, SyncedKind, labels_of
from syncer.networks.corefile import corefile
from tenancy import keys

KUBE_SYSTEM = "kube-system"
MANAGER = "vc-syncer"
IMAGE = "registry.k8s.io/coredns/coredns:v1.12.4"

NETWORK = SyncedKind(Resource("arktos.futurewei.com", "v1", "networks", is_namespaced=False), "Network")
SERVICE = SyncedKind(SERVICES, "Service")
ENDPOINT_SLICE = SyncedKind(ENDPOINT_SLICES, "EndpointSlice")
CONFIG_MAP = SyncedKind(CONFIG_MAPS, "ConfigMap")
SERVICE_ACCOUNT = SyncedKind(Resource("", "v1", "serviceaccounts"), "ServiceAccount")
CLUSTER_ROLE = SyncedKind(
    Resource("rbac.authorization.k8s.io", "v1", "clusterroles", is_namespaced=False), "ClusterRole"
)
CLUSTER_ROLE_BINDING = SyncedKind(
    Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", is_namespaced=False),
    "ClusterRoleBinding",
)
DEPLOYMENT = SyncedKind(Resource("apps", "v1", "deployments"), "Deployment")

# `kubernetes-<network>` is the longest name that must be a DNS label.
MAX_NAME = 63 - len("kubernetes-")


class NetworkSettings(msgspec.Struct, frozen=True):
    """The operator's choices.

    `upstream` are addresses, or files in the form of resolv.conf: the default is that of the super node.
    """

    cluster_domain: str = "cluster.local"
    image: str = IMAGE
    upstream: tuple[str, ...] = ("/etc/resolv.conf",)
    installs_crd: bool = True
    makes_default: bool = True


class Desired(msgspec.Struct, frozen=True):
    """An object to make. `only_at_creation` are fields of its spec that the tenant may change later."""

    kind: SyncedKind
    body: Object
    only_at_creation: tuple[str, ...] = ()


def dns_service_name(network: str) -> str:
    return f"kube-dns-{network}"


def is_ours(value: Object) -> bool:
    return labels_of(value).get(keys.MANAGED_BY) == MANAGER


def desired_objects(network: str, settings: NetworkSettings, apiserver: Object | None) -> tuple[Desired, ...]:
    """All objects of a flat network, in the order in which they are made.

    `apiserver` is the tenant's EndpointSlice `default/kubernetes`; without it there are no endpoints yet.
    """
    found = [
        Desired(SERVICE, _dns_service(network)),
        Desired(SERVICE_ACCOUNT, {"metadata": _metadata(network, f"coredns-{network}", KUBE_SYSTEM)}),
        Desired(CLUSTER_ROLE, _cluster_role(network)),
        Desired(CLUSTER_ROLE_BINDING, _cluster_role_binding(network)),
        Desired(CONFIG_MAP, _config_map(network, settings)),
        Desired(DEPLOYMENT, _deployment(network, settings.image), ("replicas",)),
        Desired(SERVICE, _apiserver_service(network)),
    ]
    if apiserver is not None:
        found.append(Desired(ENDPOINT_SLICE, _apiserver_endpoints(network, apiserver)))
    return tuple(found)


def removal_order(network: str) -> tuple[tuple[SyncedKind, str, str], ...]:
    """(kind, namespace, name) of all objects of a network: pods go before what they use."""
    return (
        (DEPLOYMENT, KUBE_SYSTEM, f"coredns-{network}"),
        (SERVICE, KUBE_SYSTEM, dns_service_name(network)),
        (ENDPOINT_SLICE, "default", f"kubernetes-{network}"),
        (SERVICE, "default", f"kubernetes-{network}"),
        (CONFIG_MAP, KUBE_SYSTEM, f"coredns-{network}"),
        (CLUSTER_ROLE_BINDING, "", f"system:coredns-{network}"),
        (CLUSTER_ROLE, "", f"system:coredns-{network}"),
        (SERVICE_ACCOUNT, KUBE_SYSTEM, f"coredns-{network}"),
    )


def default_network() -> Object:
    """The Network that a tenant without one gets."""
    labels = {keys.MANAGED_BY: MANAGER}
    return {"metadata": {"name": keys.DEFAULT_NETWORK, "labels": labels}, "spec": {"type": "flat"}}


def covers(actual: Any, desired: Any) -> bool:
    """Whether everything that is desired is there; lists have as many elements, and no others."""
    if isinstance(desired, dict):
        return isinstance(actual, dict) and all(
            name in actual and covers(actual[name], value) for name, value in desired.items()
        )
    if isinstance(desired, list):
        return isinstance(actual, list) and len(actual) == len(desired) and all(map(covers, actual, desired))
    return bool(actual == desired)


def _labels(network: str) -> dict[str, str]:
    return {
        "k8s-app": dns_service_name(network),
        keys.ARKTOS_NETWORK: network,
        keys.MANAGED_BY: MANAGER,
    }


def _metadata(network: str, name: str, namespace: str = "") -> Object:
    found: Object = {"name": name, "labels": _labels(network)}
    if namespace:
        found["namespace"] = namespace
    return found


def _dns_service(network: str) -> Object:
    ports = (("dns", "UDP", 53), ("dns-tcp", "TCP", 53), ("metrics", "TCP", 9153))
    return {
        "metadata": _metadata(network, dns_service_name(network), KUBE_SYSTEM),
        "spec": {
            "selector": {"k8s-app": dns_service_name(network)},
            "ports": [{"name": name, "protocol": protocol, "port": port} for name, protocol, port in ports],
        },
    }


def _cluster_role(network: str) -> Object:
    watched = (
        ("", ["endpoints", "services", "pods", "namespaces"]),
        ("discovery.k8s.io", ["endpointslices"]),
    )
    return {
        "metadata": _metadata(network, f"system:coredns-{network}"),
        "rules": [
            {"apiGroups": [group], "resources": resources, "verbs": ["list", "watch"]}
            for group, resources in watched
        ],
    }


def _cluster_role_binding(network: str) -> Object:
    return {
        "metadata": _metadata(network, f"system:coredns-{network}"),
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": f"system:coredns-{network}",
        },
        "subjects": [{"kind": "ServiceAccount", "name": f"coredns-{network}", "namespace": KUBE_SYSTEM}],
    }


def _config_map(network: str, settings: NetworkSettings) -> Object:
    text = corefile(network, settings.cluster_domain, settings.upstream)
    return {
        "metadata": _metadata(network, f"coredns-{network}", KUBE_SYSTEM),
        "data": {"Corefile": text},
    }


def _deployment(network: str, image: str) -> Object:
    """One server. It runs on the network that it serves, and resolves as its node does."""
    name = f"coredns-{network}"
    container: Object = {
        "name": "coredns",
        "image": image,
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "protocol": "UDP", "containerPort": 53},
            {"name": "dns-tcp", "protocol": "TCP", "containerPort": 53},
            {"name": "metrics", "protocol": "TCP", "containerPort": 9153},
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "70Mi"}, "limits": {"memory": "170Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": 8080},
            "initialDelaySeconds": 60,
            "timeoutSeconds": 5,
        },
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}},
        "volumeMounts": [{"name": "config-volume", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    volume = {
        "name": "config-volume",
        "configMap": {"name": name, "items": [{"key": "Corefile", "path": "Corefile"}]},
    }
    return {
        "metadata": _metadata(network, name, KUBE_SYSTEM),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"k8s-app": dns_service_name(network)}},
            "template": {
                "metadata": {"labels": _labels(network)},
                "spec": {
                    "serviceAccountName": name,
                    "dnsPolicy": "Default",
                    "containers": [container],
                    "volumes": [volume],
                },
            },
        },
    }


def _apiserver_service(network: str) -> Object:
    return {
        "metadata": _metadata(network, f"kubernetes-{network}", "default"),
        "spec": {"ports": [{"name": "https", "protocol": "TCP", "port": 443}]},
    }


def _apiserver_endpoints(network: str, apiserver: Object) -> Object:
    """The addresses and ports that the tenant's API server publishes of itself."""
    meta = _metadata(network, f"kubernetes-{network}", "default")
    meta["labels"]["kubernetes.io/service-name"] = f"kubernetes-{network}"
    meta["labels"]["endpointslice.kubernetes.io/managed-by"] = MANAGER
    addresses = [
        {"addresses": list(each.get("addresses") or ()), "conditions": {"ready": True}}
        for each in apiserver.get("endpoints") or ()
        if (each.get("conditions") or {}).get("ready") is not False
    ]
    ports = [
        {name: each[name] for name in ("name", "protocol", "port") if name in each}
        for each in apiserver.get("ports") or ()
    ]
    return {
        "metadata": meta,
        "addressType": apiserver.get("addressType", "IPv4"),
        "endpoints": addresses,
        "ports": ports,
    }
