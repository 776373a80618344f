# SPDX-License-Identifier: Apache-2.0
"""Tenants of the ring: their keys, their control planes, and the hand that syncs their pods.

There is no syncer yet, so the ring does by hand what one does: super namespaces and pods with
VirtualCluster's annotations, statuses up, ephemeral containers down, one vNode a tenant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from devkit.pki import Leaf
from tests.cases.agent_files import tenant_document
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.controlplane import Apiserver
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.ring.processes import wait_for

_CLUSTER = "tenancy.x-k8s.io/cluster"
_NAMESPACE = "tenancy.x-k8s.io/namespace"
_UID = "tenancy.x-k8s.io/uid"

_POD_READY_TIMEOUT_S = 40.0


@dataclass(slots=True)
class RingTenant:
    """A tenant as its owner sees it, and the name that the super cluster has for it."""

    key: str
    apiserver: Apiserver
    kubectl: Kubectl
    # The leaf that its apiserver shows to the node, and one that its administrator made alone.
    client: Leaf
    unregistered: Leaf
    namespaces: set[str] = field(default_factory=set)

    @property
    def api(self) -> KubernetesApi:
        """Its apiserver, as its administrator."""
        return self.apiserver.api

    def super_namespace(self, namespace: str) -> str:
        """The name of its namespace in the super cluster (names here are all short)."""
        return f"{self.key}-{namespace}"

    def registration(self, *more: Leaf) -> JsonObject:
        """Its file for the agent's directory of tenants, with further leaves registered."""
        clients = ((leaf.spki_sha256, "apiserver") for leaf in (self.client, *more))
        authority_pem = self.apiserver.authority.cert_pem
        return tenant_document(self.key, authority_pem, clients, clusterDomain="cluster.local")


@dataclass(frozen=True, slots=True)
class HandSyncer:
    """Does for the tests what a syncer does for tenants."""

    super_api: KubernetesApi
    node: str

    def create_vnode(self, tenant: RingTenant, address: str, port: int) -> None:
        """Make the node that the tenant sees, its kubelet at `address` and `port`."""
        tenant.api.create(
            "/api/v1/nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": self.node,
                    "labels": {"tenancy.x-k8s.io/virtualnode": "true"},
                },
                "spec": {"unschedulable": True},
            },
        )
        tenant.api.patch(
            f"/api/v1/nodes/{self.node}/status",
            {
                "status": {
                    "addresses": [{"type": "InternalIP", "address": address}],
                    "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
                    "conditions": [{"type": "Ready", "status": "True"}],
                }
            },
        )

    def create_namespace(self, tenant: RingTenant, namespace: str) -> None:
        """Make a namespace in the tenant and its counterpart in the super cluster."""
        if namespace in tenant.namespaces:
            return
        whose = {"annotations": {_CLUSTER: tenant.key, _NAMESPACE: namespace}}
        for api, metadata in (
            (tenant.api, {"name": namespace}),
            (self.super_api, {"name": tenant.super_namespace(namespace), **whose}),
        ):
            api.create("/api/v1/namespaces", _object("Namespace", metadata), may_exist=True)
        tenant.namespaces.add(namespace)

    def create_ghost(self, tenant: RingTenant, namespace: str, name: str) -> None:
        """A pod that the tenant bound to the node and that never ran there.

        A tenant may write what it likes into its own apiserver, so this makes its kubectl
        request a name from the agent: the apiserver calls the node of any pod that is bound to it.
        """
        tenant.api.create("/api/v1/namespaces", _object("Namespace", {"name": namespace}), may_exist=True)
        pods = f"/api/v1/namespaces/{namespace}/pods"
        container = {"name": "main", "image": "missing/image:1", "imagePullPolicy": "Never"}
        pod = _object("Pod", {"name": name})
        pod["spec"] = {"nodeName": self.node, "containers": [container]}
        tenant.api.create(pods, pod)
        tenant.api.patch(
            f"{pods}/{name}/status",
            {
                "status": {
                    "phase": "Running",
                    "podIP": "10.88.0.250",
                    "containerStatuses": [
                        {
                            "name": "main",
                            "ready": True,
                            "restartCount": 0,
                            "image": "missing/image:1",
                            "imageID": "",
                            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                        }
                    ],
                }
            },
        )

    def create_pod(
        self,
        tenant: RingTenant,
        namespace: str,
        name: str,
        spec: JsonObject,
        *,
        injected: tuple[JsonObject, ...] = (),
        labels: dict[str, str] | None = None,
        changed: JsonObject | None = None,
    ) -> None:
        """Make a pod in the tenant and start it in the super cluster.

        `injected` are containers that the super side adds: the tenant's pod lacks them.
        `changed` are fields of the spec that are otherwise on the super side.
        """
        self.create_namespace(tenant, namespace)
        pod = _object("Pod", {"name": name, "labels": labels or {}})
        pod["spec"] = {"nodeName": self.node, "terminationGracePeriodSeconds": 0, **spec}
        made = tenant.api.create(f"/api/v1/namespaces/{namespace}/pods", pod)
        pod["metadata"] = {
            "name": name,
            "labels": labels or {},
            "annotations": {
                _CLUSTER: tenant.key,
                _NAMESPACE: namespace,
                _UID: made["metadata"]["uid"],
            },
        }
        containers = [*spec["containers"], *injected]
        pod["spec"] = {**pod["spec"], "containers": containers, **(changed or {})}
        self.super_api.create(f"/api/v1/namespaces/{tenant.super_namespace(namespace)}/pods", pod)

    def super_pod(self, tenant: RingTenant, namespace: str, name: str) -> JsonObject:
        """The pod as the super cluster has it."""
        return self.super_api.get(f"/api/v1/namespaces/{tenant.super_namespace(namespace)}/pods/{name}")

    def wait_running(self, tenant: RingTenant, namespace: str, name: str) -> None:
        """Wait until every container of the pod runs, then copy its status up."""
        self.wait_status(tenant, namespace, name, _all_run)

    def wait_status(
        self,
        tenant: RingTenant,
        namespace: str,
        name: str,
        condition: Callable[[JsonObject], bool],
    ) -> None:
        """Wait until the super pod meets `condition`, then copy its status up."""

        def met() -> bool:
            pod = self.super_pod(tenant, namespace, name)
            if not condition(pod):
                return False
            self._copy_status(tenant, namespace, name, pod)
            return True

        wait_for(f"pod {namespace}/{name} as awaited", met, timeout_s=_POD_READY_TIMEOUT_S)

    def copy_ephemeral_containers(self, tenant: RingTenant, namespace: str, name: str) -> None:
        """Bring what `kubectl debug` added to the tenant's pod down to the super pod."""
        pod = tenant.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        desired = pod["spec"].get("ephemeralContainers", [])
        target = f"/api/v1/namespaces/{tenant.super_namespace(namespace)}/pods/{name}"
        current = self.super_api.get(target)
        current["spec"]["ephemeralContainers"] = desired
        self.super_api.put(f"{target}/ephemeralcontainers", current)

    def delete_pod(self, tenant: RingTenant, namespace: str, name: str) -> None:
        """Remove a pod from both."""
        for api, where in (
            (tenant.api, namespace),
            (self.super_api, tenant.super_namespace(namespace)),
        ):
            api.delete(f"/api/v1/namespaces/{where}/pods/{name}")

    def _copy_status(self, tenant: RingTenant, namespace: str, name: str, pod: JsonObject) -> None:
        status: dict[str, Any] = {
            key: pod["status"][key]
            for key in (
                *("phase", "podIP", "podIPs", "hostIP", "startTime", "conditions"),
                *("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"),
            )
            if key in pod["status"]
        }
        tenant.api.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status})


def container_state(pod: JsonObject, container: str) -> JsonObject:
    """The status of one container of any kind, or {} when there is none yet."""
    status = pod.get("status", {})
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for entry in status.get(kind, []):
            if entry["name"] == container:
                found: JsonObject = entry
                return found
    return {}


def _all_run(pod: JsonObject) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return len(statuses) == len(pod["spec"]["containers"]) and all("running" in s["state"] for s in statuses)


def _object(kind: str, metadata: JsonObject) -> JsonObject:
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}
