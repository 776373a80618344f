# SPDX-License-Identifier: Apache-2.0
"""Stock metrics-server as a tenant's own Deployment, with a certificate that vn-agent serves.

The objects are those of metrics-server's manifests (v0.9.0, manifests/base), with these changes:

- Its token is the tenant's, which no kubelet of the super cluster knows. It gets a client certificate, by
  which vn-agent identifies the tenant, and the authority of vn-agent's own certificate.
- `priorityClassName: system-cluster-critical` is left out: a tenant's pods may not preempt others'.
- It reads as often as it can. Its probe does not wait, and takes 5 s on a slow machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from devkit.pki import Leaf
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.images import METRICS_SERVER
from tests.k8s.syncer.clients import registered, tls_secret
from tests.k8s.syncer.shops import Shop, deployment, object_of

NAMESPACE = "kube-system"
NAME = "metrics-server"
APP = f"app={NAME}"

_GROUP = "metrics.k8s.io"
_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_RBAC = "rbac.authorization.k8s.io/v1"
_PORT = 10250
_ACCOUNT = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
_READER = "extension-apiserver-authentication-reader"
# The shortest that it takes; a request to a kubelet must end within nine tenths of it.
_FLAGS = ("--metric-resolution=10s", "--kubelet-request-timeout=8s")


@contextmanager
def installed(shop: Shop) -> Iterator[None]:
    """metrics-server in the tenant of this namespace, which is `NAMESPACE`; does not wait for it."""
    created: list[str] = []
    with registered(shop, NAME) as (leaf,):
        try:
            for path, value in _cluster_objects():
                shop.api.create(path, value, may_exist=True)
                created.append(f"{path}/{value['metadata']['name']}")
            shop.apply(*_own_objects(leaf, shop.ring.authorities.agent_serving.cert_pem))
            yield
        finally:
            # The APIService comes first: while one has no server, no namespace of the cluster can be deleted.
            for path in reversed(created):
                shop.api.delete(path)
            kinds = "deployment,service,secret,serviceaccount"
            shop.kubectl("delete", kinds, NAME, "--ignore-not-found", "--wait=false").check()


def _cluster_objects() -> list[tuple[str, JsonObject]]:
    """Rights, and last the APIService by which the tenant's apiserver finds it."""
    rules = [
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
    ]
    service = {
        "group": _GROUP,
        "version": "v1beta1",
        "service": {"name": NAME, "namespace": NAMESPACE},
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    rbac = f"/apis/{_RBAC}"
    return [
        (f"{rbac}/clusterroles", object_of(_RBAC, "ClusterRole", f"system:{NAME}", rules=rules)),
        (
            f"{rbac}/clusterrolebindings",
            _binding("ClusterRoleBinding", f"system:{NAME}", "ClusterRole", f"system:{NAME}"),
        ),
        (
            f"{rbac}/clusterrolebindings",
            _binding(
                "ClusterRoleBinding",
                f"{NAME}:system:auth-delegator",
                "ClusterRole",
                "system:auth-delegator",
            ),
        ),
        (
            f"{rbac}/namespaces/{NAMESPACE}/rolebindings",
            _binding("RoleBinding", f"{NAME}-auth-reader", "Role", _READER),
        ),
        (
            _SERVICES,
            object_of("apiregistration.k8s.io/v1", "APIService", f"v1beta1.{_GROUP}", spec=service),
        ),
    ]


def _binding(kind: str, name: str, role_kind: str, role: str) -> JsonObject:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role}
    return object_of(_RBAC, kind, name, roleRef=reference, subjects=[_ACCOUNT])


def _own_objects(leaf: Leaf, authority_pem: bytes) -> list[JsonObject]:
    """The account, the Deployment with its Secret, and the Service."""
    secret = tls_secret(NAME, leaf, authority_pem)
    service = object_of(
        "v1",
        "Service",
        NAME,
        spec={
            "selector": {"app": NAME},
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": "https"}],
        },
    )
    return [object_of("v1", "ServiceAccount", NAME), secret, deployment(NAME, _pod_spec()), service]


def _pod_spec() -> JsonObject:
    container = {
        "name": NAME,
        "image": METRICS_SERVER,
        "imagePullPolicy": "Never",
        "args": [
            "--cert-dir=/serving",
            f"--secure-port={_PORT}",
            "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
            "--kubelet-use-node-status-port",
            *_FLAGS,
            "--kubelet-client-certificate=/kubelet/tls.crt",
            "--kubelet-client-key=/kubelet/tls.key",
            "--kubelet-certificate-authority=/kubelet/ca.crt",
        ],
        "ports": [{"name": "https", "containerPort": _PORT, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "200Mi"}},
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "https", "scheme": "HTTPS"},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
        },
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "allowPrivilegeEscalation": False,
            "seccompProfile": {"type": "RuntimeDefault"},
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "serving", "mountPath": "/serving"},
            {"name": "kubelet", "mountPath": "/kubelet", "readOnly": True},
        ],
    }
    return {
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [
            {"name": "serving", "emptyDir": {}},
            {"name": "kubelet", "secret": {"secretName": NAME}},
        ],
    }
