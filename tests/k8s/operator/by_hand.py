# SPDX-License-Identifier: Apache-2.0
"""A control plane written by hand, as pods that a restricted namespace admits: it proves the ground.

No operator takes part. What a test here needs of certificates `devkit.pki` makes.
"""

from __future__ import annotations

import base64
import json

from cryptography.hazmat.primitives import serialization

from devkit import pki
from tests.k8s.operator import releases
from tests.k8s.operator.releases import KubernetesImages
from tests.k8s.ring.api import JsonObject, TlsEndpoint
from tests.k8s.ring.certs import signing_key_pem
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.syncer.shops import object_of

PORT = 6443
_USER = 65532
_SECRET, _MOUNT = "pki", "/pki"
_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def namespace(name: str) -> JsonObject:
    made = object_of("v1", "Namespace", name)
    made["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "restricted"}
    return made


def services(name: str) -> list[JsonObject]:
    """etcd's names, and the address of the API server."""
    etcd = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "etcd"}}
    server = {"selector": {"app": "apiserver"}, "ports": [{"port": PORT}]}
    made = [
        object_of("v1", "Service", "etcd", spec={**etcd, "ports": [{"port": 2379}]}),
        object_of("v1", "Service", "apiserver", spec=server),
    ]
    for each in made:
        each["metadata"]["namespace"] = name
    return made


class HandMadeCertificates:
    """What the control plane of a namespace is known by, and an administrator's certificate."""

    def __init__(self, name: str, address: str) -> None:
        """`address` is the cluster IP of its API server."""
        self.cluster, store = pki.Authority.create("kubernetes"), pki.Authority.create("etcd")
        member = f"etcd-0.etcd.{name}.svc"
        self.admin = self.cluster.issue("admin", organization="system:masters", usages=("client",))
        manager = self.cluster.issue("system:kube-controller-manager", usages=("client",))
        serving = self.cluster.issue("kube-apiserver", sans_ip=[address, "10.32.0.1"], usages=("server",))
        etcd_serving = store.issue(
            member, sans_dns=[member], sans_ip=["127.0.0.1"], usages=("server", "client")
        )
        etcd_client = store.issue("kube-apiserver", usages=("client",))
        authority_key = self.cluster.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self.files = {
            "ca.crt": self.cluster.cert_pem,
            "ca.key": authority_key,
            "etcd-ca.crt": store.cert_pem,
            "accounts.key": signing_key_pem(),
            "manager.kubeconfig": _kubeconfig(f"https://{address}:{PORT}").encode(),
        }
        for stem, leaf in (
            ("serving", serving),
            ("etcd", etcd_serving),
            ("etcd-client", etcd_client),
            ("manager", manager),
        ):
            self.files |= {f"{stem}.crt": leaf.cert_pem, f"{stem}.key": leaf.key_pem}

    def endpoint(self, network: NetworkNamespace, address: str) -> TlsEndpoint:
        """Its API server, as its administrator, dialled from a namespace."""
        return TlsEndpoint(network, address, PORT, self.cluster.cert_pem, self.admin)

    def secret(self, name: str) -> JsonObject:
        data = {key: base64.b64encode(value).decode() for key, value in self.files.items()}
        made = object_of("v1", "Secret", _SECRET, data=data)
        made["metadata"]["namespace"] = name
        return made


def workloads(name: str, release: KubernetesImages) -> list[JsonObject]:
    """etcd with a volume of its own, an API server and a controller manager."""
    member = f"https://etcd-0.etcd.{name}.svc"
    etcd = _container(
        "etcd",
        releases.ETCD,
        [
            "--name=etcd-0",
            "--data-dir=/data/etcd",
            "--listen-client-urls=https://0.0.0.0:2379",
            f"--advertise-client-urls={member}:2379",
            "--listen-peer-urls=https://127.0.0.1:2380",
            "--initial-advertise-peer-urls=https://127.0.0.1:2380",
            "--initial-cluster=etcd-0=https://127.0.0.1:2380",
            *("--client-cert-auth", f"--trusted-ca-file={_MOUNT}/etcd-ca.crt"),
            *(f"--cert-file={_MOUNT}/etcd.crt", f"--key-file={_MOUNT}/etcd.key"),
            *("--peer-client-cert-auth", f"--peer-trusted-ca-file={_MOUNT}/etcd-ca.crt"),
            *(f"--peer-cert-file={_MOUNT}/etcd.crt", f"--peer-key-file={_MOUNT}/etcd.key"),
        ],
        volumeMounts=[_pki_mount(), {"name": "data", "mountPath": "/data"}],
        readinessProbe={"tcpSocket": {"port": 2379}, "periodSeconds": 1},
    )
    server = _container(
        "kube-apiserver",
        release.api_server,
        [
            f"--etcd-servers={member}:2379",
            f"--etcd-cafile={_MOUNT}/etcd-ca.crt",
            *(f"--etcd-certfile={_MOUNT}/etcd-client.crt", f"--etcd-keyfile={_MOUNT}/etcd-client.key"),
            f"--client-ca-file={_MOUNT}/ca.crt",
            *(f"--tls-cert-file={_MOUNT}/serving.crt", f"--tls-private-key-file={_MOUNT}/serving.key"),
            f"--service-account-key-file={_MOUNT}/accounts.key",
            f"--service-account-signing-key-file={_MOUNT}/accounts.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.32.0.0/24",
            "--authorization-mode=Node,RBAC",
            *("--advertise-address=$(POD_IP)", f"--secure-port={PORT}"),
        ],
        env=[{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        volumeMounts=[_pki_mount()],
        readinessProbe={
            "httpGet": {"path": "/readyz", "port": PORT, "scheme": "HTTPS"},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
        },
    )
    manager = _container(
        "kube-controller-manager",
        release.controller_manager,
        [
            f"--kubeconfig={_MOUNT}/manager.kubeconfig",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={_MOUNT}/accounts.key",
            f"--root-ca-file={_MOUNT}/ca.crt",
            "--leader-elect=false",
            "--secure-port=0",
        ],
        volumeMounts=[_pki_mount()],
    )
    claim = object_of(
        "v1",
        "PersistentVolumeClaim",
        "data",
        spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    )
    made = [
        _workload("StatefulSet", "etcd", etcd, serviceName="etcd", volumeClaimTemplates=[claim]),
        _workload("Deployment", "apiserver", server),
        _workload("Deployment", "controller-manager", manager),
    ]
    for each in made:
        each["metadata"]["namespace"] = name
    return made


def _workload(kind: str, name: str, container: JsonObject, **more: object) -> JsonObject:
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsNonRoot": True,
            **dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), _USER),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "pki", "secret": {"secretName": _SECRET, "defaultMode": 0o440}}],
    }
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return object_of(
        "apps/v1", kind, name, spec={"selector": {"matchLabels": labels}, "template": template, **more}
    )


def _container(program: str, image: str, arguments: list[str], **more: object) -> JsonObject:
    return {
        "name": program,
        "image": image,
        "imagePullPolicy": "Never",
        "command": [program, *arguments],
        "securityContext": _RESTRICTED,
        **more,
    }


def _pki_mount() -> JsonObject:
    return {"name": "pki", "mountPath": _MOUNT, "readOnly": True}


def _kubeconfig(server: str) -> str:
    """That of the controller manager, by names of files."""
    user = {"client-certificate": f"{_MOUNT}/manager.crt", "client-key": f"{_MOUNT}/manager.key"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "own", "cluster": {"server": server, "certificate-authority": f"{_MOUNT}/ca.crt"}}
            ],
            "users": [{"name": "manager", "user": user}],
            "contexts": [{"name": "own", "context": {"cluster": "own", "user": "manager"}}],
            "current-context": "own",
        }
    )
