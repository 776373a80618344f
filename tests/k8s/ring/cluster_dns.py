# SPDX-License-Identifier: Apache-2.0
"""The DNS of a cluster as kubeadm's: CoreDNS as pods, in front of them the Service `kube-dns`."""

from __future__ import annotations

from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.processes import wait_for

_NAMESPACE = "kube-system"
_READY_S = 120.0

# Other names do not exist: no resolver of the world is reachable here. A block of its own has them, because
# CoreDNS asks `template` before `kubernetes`.
_COREFILE = """cluster.local:53 in-addr.arpa:53 ip6.arpa:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 5
    }
}
.:53 {
    errors
    template ANY ANY {
        rcode NXDOMAIN
    }
}
"""


def install(api: KubernetesApi, address: str, image: str) -> None:
    """Create it all in a cluster; `address` is the Service's, and nodes have the image of CoreDNS."""
    labels = {"k8s-app": "kube-dns"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"}
    watched = (
        ("", ["endpoints", "services", "pods", "namespaces"]),
        ("discovery.k8s.io", ["endpointslices"]),
    )
    rbac, core = "/apis/rbac.authorization.k8s.io/v1", f"/api/v1/namespaces/{_NAMESPACE}"
    objects: list[tuple[str, JsonObject]] = [
        (f"{core}/serviceaccounts", _named("coredns")),
        (
            f"{rbac}/clusterroles",
            {
                **_named("system:coredns"),
                "rules": [
                    {"apiGroups": [group], "resources": resources, "verbs": ["list", "watch"]}
                    for group, resources in watched
                ],
            },
        ),
        (
            f"{rbac}/clusterrolebindings",
            {
                **_named("system:coredns"),
                "roleRef": role,
                "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": _NAMESPACE}],
            },
        ),
        (f"{core}/configmaps", {**_named("coredns"), "data": {"Corefile": _COREFILE}}),
        (
            f"{core}/services",
            {
                "metadata": {"name": "kube-dns", "labels": labels},
                "spec": {
                    "clusterIP": address,
                    "selector": labels,
                    "ports": [
                        {"name": "dns", "protocol": "UDP", "port": 53},
                        {"name": "dns-tcp", "protocol": "TCP", "port": 53},
                    ],
                },
            },
        ),
        (
            f"/apis/apps/v1/namespaces/{_NAMESPACE}/deployments",
            {
                **_named("coredns"),
                "spec": {
                    "replicas": 1,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": _pod(image)},
                },
            },
        ),
    ]
    for path, value in objects:
        api.create(path, value, may_exist=True)


def wait_ready(api: KubernetesApi) -> None:
    """Wait until it answers."""
    path = f"/apis/apps/v1/namespaces/{_NAMESPACE}/deployments/coredns"

    def is_ready() -> bool:
        return bool(api.get(path).get("status", {}).get("readyReplicas"))

    wait_for("CoreDNS is ready", is_ready, timeout_s=_READY_S)


def _named(name: str) -> JsonObject:
    return {"metadata": {"name": name}}


def _pod(image: str) -> JsonObject:
    return {
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "containers": [
            {
                "name": "coredns",
                "image": image,
                "args": ["-conf", "/etc/coredns/Corefile"],
                "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
                "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
            }
        ],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }
