# SPDX-License-Identifier: Apache-2.0
"""Tenants as a platform's administrator makes them: ClusterVersions and VirtualClusters, by kubectl."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from devkit.pki import Leaf
from tests.k8s import build
from tests.k8s.operator import releases
from tests.k8s.operator.daemon import OperatorDaemon
from tests.k8s.operator.ground import OperatorGround
from tests.k8s.operator.releases import KubernetesImages
from tests.k8s.ring import virtual_clusters
from tests.k8s.ring.api import JsonObject, KubernetesApi, TlsEndpoint
from tests.k8s.ring.kubectl import Kubectl, KubectlResult
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.syncer.provisioned import HOME
from tests.k8s.syncer.shops import object_of

READY = "Ready"
READY_S = 120.0
GONE_S = 120.0
# As the class `small` has it.
SMALL_API_SERVER = {"cpu": "100m", "memory": "320Mi", "goGC": 40, "goMemoryLimit": "200MiB"}
# The least that a class may have.
TINY_STORE = {"cpu": "20m", "memory": "96Mi", "goGC": 40, "quotaBytes": 64 << 20}
_SERVICE_CIDR = "10.32.0.0/16"


def cluster_version(name: str, release: KubernetesImages, **spec: object) -> JsonObject:
    """A ClusterVersion of the ring's images, with etcd for each tenant; `spec` replaces its fields."""
    return {
        "apiVersion": virtual_clusters.GROUP,
        "kind": "ClusterVersion",
        "metadata": {"name": name},
        "spec": {
            "kubernetesVersion": release.version.removeprefix("v"),
            "etcdVersion": build.ETCD_VERSION,
            "images": {
                "apiServer": release.api_server,
                "controllerManager": release.controller_manager,
                "etcd": releases.ETCD,
                "signer": releases.SIGNER,
            },
            "datastore": {"type": "etcd", "size": "1Gi"},
            **spec,
        },
    }


def apply(ground: OperatorGround, value: JsonObject) -> None:
    """`kubectl apply` in the super cluster, as its administrator."""
    namespace = value["metadata"].get("namespace", "default")
    kubectl = replace(ground.ring.super_kubectl, namespace=namespace)
    kubectl("apply", "-f", "-", stdin=json.dumps(value).encode()).check()


@dataclass(frozen=True, slots=True)
class OperatedTenant:
    """One VirtualCluster, and the tenant behind it. `applied_at` is of the monotonic clock."""

    ground: OperatorGround
    operator: OperatorDaemon
    name: str
    applied_at: float

    @property
    def elapsed_s(self) -> float:
        """Since the VirtualCluster was applied."""
        return time.monotonic() - self.applied_at

    @property
    def path(self) -> str:
        return virtual_clusters.path(HOME, self.name)

    def get(self) -> JsonObject:
        """The VirtualCluster; empty if there is none."""
        reply = self.ground.api.endpoint.request("GET", self.path)
        return reply.json() if reply.status == 200 else {}

    @property
    def key(self) -> str:
        """Its cluster key, which is also the name of its root namespace; empty before it has one."""
        return str(self.get().get("status", {}).get("clusterNamespace", ""))

    def super_namespace(self, namespace: str) -> str:
        """The name of its namespace in the super cluster (names here are all short)."""
        return f"{self.key}-{namespace}"

    def annotate(self, **annotations: str) -> None:
        """Set annotations of the VirtualCluster; `_` stands for `-`, behind `vcnode.io/`."""
        named = {f"vcnode.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.ground.api.patch(self.path, {"metadata": {"annotations": named}})

    def change(self, **spec: object) -> None:
        """Change fields of its spec."""
        self.ground.api.patch(self.path, {"spec": spec})

    def condition(self, kind: str) -> JsonObject:
        """One condition; empty while the operator has not written it."""
        conditions = self.get().get("status", {}).get("conditions", [])
        return next((each for each in conditions if each.get("type") == kind), {})

    def wait(self, what: str, probe: Callable[[], object], *, timeout_s: float = READY_S) -> None:
        """Wait for anything. A failure shows the conditions, the root namespace and the operator's log."""
        try:
            wait_for(what, probe, timeout_s=timeout_s)
        except RingError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def wait_condition(
        self, kind: str, status: str = "True", *, reason: str = "", timeout_s: float = READY_S
    ) -> JsonObject:
        """Wait until the condition has the status, and the reason if one is given; returns it."""

        def has_it() -> bool:
            found = self.condition(kind)
            return found.get("status") == status and reason in ("", found.get("reason"))

        self.wait(f"{self.name} is {kind}={status} {reason}", has_it, timeout_s=timeout_s)
        return self.condition(kind)

    def kubeconfig(self) -> Path:
        """The administrator's, from the Secret beside the VirtualCluster."""
        secret = self.ground.api.get(f"/api/v1/namespaces/{HOME}/secrets/{self.name}-kubeconfig")
        path = self.ground.directory / f"{self.name}.kubeconfig"
        path.write_bytes(base64.b64decode(secret["data"]["value"]))
        return path

    def kubectl(self, namespace: str = "default") -> Kubectl:
        """The tenant administrator's."""
        plain = self.ground.ring.super_kubectl
        return Kubectl(plain.network, plain.binary, self.kubeconfig(), namespace)

    def api(self) -> KubernetesApi:
        """The tenant's API server, as its administrator."""
        return KubernetesApi(endpoint_of(self.ground, yaml.safe_load(self.kubeconfig().read_text())))

    def root_kubectl(self, *arguments: str) -> KubectlResult:
        """In its root namespace, as the super cluster's administrator."""
        return replace(self.ground.ring.super_kubectl, namespace=self.key)(*arguments)

    def delete(self) -> None:
        """Ask for its deletion; does not wait."""
        self.ground.api.delete(self.path)

    def wait_gone(self) -> None:
        self.wait(f"{self.name} is gone", lambda: not self.get(), timeout_s=GONE_S)

    def describe(self) -> str:
        """What is known of it, for a failure."""
        status = self.get().get("status", {})
        lines = [f"--- VirtualCluster {self.name}: {json.dumps(status, indent=1)}"]
        if self.key:
            shown = self.root_kubectl(
                "get", "deployments,statefulsets,pods,persistentvolumeclaims,services,secrets", "-o", "wide"
            )
            events = self.root_kubectl("get", "events", "--sort-by=.lastTimestamp")
            lines += [f"--- {self.key}", shown.text + shown.error_text[-500:], events.text[-3000:]]
            for pod in self.root_kubectl("get", "pods", "-o", "name").text.split():
                log = self.root_kubectl("logs", pod, "--all-containers", "--tail=8", "--prefix")
                lines.append(log.text[-2500:])
        return "\n".join([*lines, "--- operator", self.operator.tail()])


def create(ground: OperatorGround, operator: OperatorDaemon, name: str, **spec: object) -> OperatedTenant:
    """Apply a VirtualCluster; does not wait. `spec` must name its ClusterVersion."""
    ground.api.create("/api/v1/namespaces", object_of("v1", "Namespace", HOME), may_exist=True)
    made = virtual_clusters.manifest(name, {"serviceCidr": _SERVICE_CIDR, **spec})
    made["metadata"]["namespace"] = HOME
    applied_at = time.monotonic()
    apply(ground, made)
    return OperatedTenant(ground, operator, name, applied_at)


def endpoint_of(ground: OperatorGround, kubeconfig: dict[str, Any]) -> TlsEndpoint:
    """The server of a kubeconfig with embedded certificates, dialled from the control planes' network."""
    cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
    address, _, port = cluster["server"].removeprefix("https://").partition(":")
    leaf = Leaf.from_pem(
        base64.b64decode(user["client-certificate-data"]), base64.b64decode(user["client-key-data"])
    )
    authority = base64.b64decode(cluster["certificate-authority-data"])
    return TlsEndpoint(ground.ring.control, address, int(port), authority, leaf)
