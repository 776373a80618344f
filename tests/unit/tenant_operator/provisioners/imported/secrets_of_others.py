# SPDX-License-Identifier: Apache-2.0
"""Secrets as others write them: their names, keys and labels (docs/spec/imported-control-planes.md)."""

import base64
from collections.abc import Mapping
from typing import NamedTuple

from devkit.pki import Authority
from tenant_operator.model.objects import Object
from tenant_operator.provisioners.imported.source import SourceSecret

AUTHORITY = Authority.create("kubernetes")
ADMIN = AUTHORITY.issue("kubernetes-admin", usages=("client",), organization="system:masters")
KUBELET_CLIENT = AUTHORITY.issue("kube-apiserver-kubelet-client", usages=("client",))


def encoded(value: bytes | str) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def kubeconfig(server: str = "https://10.96.7.7:6443", **cluster: object) -> str:
    """As client-go writes it."""
    lines = [
        "apiVersion: v1",
        "clusters:",
        "- cluster:",
        f"    certificate-authority-data: {encoded(AUTHORITY.cert_pem)}",
        *(f"    {key.replace('_', '-')}: {value}" for key, value in cluster.items()),
        f"    server: {server}",
        "  name: default",
        "contexts:",
        "- context:",
        "    cluster: default",
        "    user: default",
        "  name: default",
        "current-context: default",
        "kind: Config",
        "preferences: {}",
        "users:",
        "- name: default",
        "  user:",
        f"    client-certificate-data: {encoded(ADMIN.cert_pem)}",
        f"    client-key-data: {encoded(ADMIN.key_pem)}",
    ]
    return "\n".join(lines) + "\n"


class OthersSecret(NamedTuple):
    """A Secret; values are texts or bytes."""

    name: str
    data: Mapping[str, bytes | str]
    labels: Mapping[str, str] = {}

    @property
    def facts(self) -> SourceSecret:
        return SourceSecret(self.name, tuple(self.data), self.labels)

    @property
    def object(self) -> Object:
        data = {key: encoded(value) for key, value in self.data.items()}
        metadata = {"name": self.name, "namespace": "tenants", "labels": dict(self.labels)}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}

    @property
    def values(self) -> dict[tuple[str, str], str]:
        return {(self.name, key): encoded(value) for key, value in self.data.items()}


# clastix/kamaji, internal/resources/kubeconfig.go, api_server_kubelet_client_certificate.go,
# ca_certificate.go
KAMAJI = OthersSecret(
    "acme-admin-kubeconfig",
    {
        "admin.conf": kubeconfig(),
        "admin.svc": kubeconfig("https://acme.tenants.svc:6443"),
        "super-admin.conf": kubeconfig(),
        "super-admin.svc": kubeconfig("https://acme.tenants.svc:6443"),
    },
    {"kamaji.clastix.io/component": "admin-kubeconfig", "kamaji.clastix.io/name": "acme"},
)
KAMAJI_KUBELET_CLIENT = OthersSecret(
    "acme-api-server-kubelet-client-certificate",
    {
        "apiserver-kubelet-client.crt": KUBELET_CLIENT.cert_pem,
        "apiserver-kubelet-client.key": KUBELET_CLIENT.key_pem,
    },
)
KAMAJI_CA = OthersSecret("acme-ca", {"ca.crt": AUTHORITY.cert_pem, "ca.key": "-"})

# loft-sh/vcluster, pkg/util/kubeconfig/kubeconfig.go, pkg/certs/ensure.go and constants.go
VCLUSTER = OthersSecret(
    "vc-acme",
    {
        "certificate-authority": AUTHORITY.cert_pem,
        "client-certificate": ADMIN.cert_pem,
        "client-key": ADMIN.key_pem,
        "config": kubeconfig("https://acme.tenants.svc:443"),
    },
)
VCLUSTER_CERTS = OthersSecret(
    "acme-certs",
    {
        "ca.crt": AUTHORITY.cert_pem,
        "ca.key": "-",
        "apiserver-kubelet-client.crt": KUBELET_CLIENT.cert_pem,
        "apiserver-kubelet-client.key": KUBELET_CLIENT.key_pem,
        "admin.conf": "-",
    },
    {"app": "vcluster", "vcluster-name": "acme"},
)

# rancher/k3k, pkg/controller/cluster and pkg/controller/kubeconfig
K3K = OthersSecret("k3k-acme-kubeconfig", {"kubeconfig.yaml": kubeconfig("https://10.43.7.7")})

# kubernetes-sigs/cluster-api, util/secret/consts.go and util/kubeconfig/kubeconfig.go
CLUSTER_API = OthersSecret(
    "acme-kubeconfig", {"value": kubeconfig()}, {"cluster.x-k8s.io/cluster-name": "acme"}
)

# k3s without k3k: /etc/rancher/k3s/k3s.yaml with its server changed, put into a Secret by hand
K3S = OthersSecret("edge", {"k3s.yaml": kubeconfig("https://192.0.2.7:6443")})
