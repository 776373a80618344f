# SPDX-License-Identifier: Apache-2.0
"""A namespace of a tenant, as its owner uses it, with a view of what the super cluster made of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.images import AGNHOST
from tests.k8s.ring.kubectl import Kubectl, KubectlResult
from tests.k8s.ring.pods import container
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.tenants import RingTenant
from tests.k8s.syncer.cluster import SyncedRing
from tests.k8s.syncer.daemon import SyncerDaemon

# Two cores for three control planes: this is how long a test waits where a user would wait a second.
WAIT_S = 60.0

_GROUPS = {
    "deployments": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "statefulsets": "/apis/apps/v1",
    "daemonsets": "/apis/apps/v1",
    "jobs": "/apis/batch/v1",
    "cronjobs": "/apis/batch/v1",
    "ingresses": "/apis/networking.k8s.io/v1",
    "networkpolicies": "/apis/networking.k8s.io/v1",
    "endpointslices": "/apis/discovery.k8s.io/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
}


@dataclass(frozen=True, slots=True)
class Shop:
    """One namespace of one tenant."""

    ring: SyncedRing
    tenant: RingTenant
    namespace: str
    syncer: SyncerDaemon | None = None

    @property
    def kubectl(self) -> Kubectl:
        """The tenant's, in this namespace."""
        return replace(self.tenant.kubectl, namespace=self.namespace)

    @property
    def api(self) -> KubernetesApi:
        return self.tenant.api

    @property
    def super_api(self) -> KubernetesApi:
        return self.ring.super_cluster.api

    @property
    def super_namespace(self) -> str:
        return self.tenant.super_namespace(self.namespace)

    def create(self) -> None:
        self.api.create("/api/v1/namespaces", object_of("v1", "Namespace", self.namespace))

    def delete(self) -> None:
        """Delete the namespace with all that is in it; does not wait."""
        self.api.delete(f"/api/v1/namespaces/{self.namespace}")

    def apply(self, *values: JsonObject) -> None:
        """`kubectl apply` these objects."""
        document = {"apiVersion": "v1", "kind": "List", "items": list(values)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(document).encode()).check()

    def path(self, resource: str, name: str = "") -> str:
        return _path(resource, self.namespace, name)

    def get(self, resource: str, name: str) -> JsonObject:
        return self.api.get(self.path(resource, name))

    def items(self, resource: str, selector: str = "") -> list[JsonObject]:
        return _items(self.api, self.path(resource), selector)

    def reports(self, kind: str, name: str, reason: str) -> str:
        """The messages of the tenant's Events with this reason about one object, a line each."""
        return "\n".join(
            str(each["message"])
            for each in self.items("events")
            if each["reason"] == reason
            and (each["involvedObject"]["kind"], each["involvedObject"]["name"]) == (kind, name)
        )

    def in_super(self, resource: str, name: str) -> JsonObject | None:
        """The super cluster's object; None if there is none."""
        return self._find(self.super_api, _path(resource, self.super_namespace, name))

    def find(self, resource: str, name: str) -> JsonObject | None:
        """The tenant's object; None if there is none."""
        return self._find(self.api, self.path(resource, name))

    def super_items(self, resource: str, selector: str = "") -> list[JsonObject]:
        return _items(self.super_api, _path(resource, self.super_namespace), selector)

    def wait(self, what: str, probe: Callable[[], object], *, timeout_s: float = WAIT_S) -> None:
        """Wait for a condition. A failure shows what both sides have, and the end of the syncer's log."""
        try:
            wait_for(what, probe, timeout_s=timeout_s)
        except RingError as error:
            raise AssertionError(f"{error}\n{self._describe()}") from None

    def wait_own(self, what: str, probe: Callable[[Shop], object]) -> None:
        """The same, of a probe that is given this namespace: for loops over both tenants."""
        self.wait(what, lambda: probe(self))

    def wait_running(self, selector: str, count: int = 1) -> list[JsonObject]:
        """Wait until exactly so many pods are ready; return them in order of names."""

        def ready() -> bool:
            found = self.items("pods", selector)
            return len(found) == count and all(map(is_ready, found))

        self.wait(f"{count} ready pods of {selector}", ready)
        return sorted(self.items("pods", selector), key=lambda pod: str(pod["metadata"]["name"]))

    def wait_phase(self, pod: str, phase: str) -> None:
        self.wait(
            f"pod {pod} is {phase}", lambda: self.get("pods", pod).get("status", {}).get("phase") == phase
        )

    def wait_gone(self, resource: str, name: str) -> None:
        """Wait until neither side has it."""
        self.wait(
            f"{resource}/{name} is gone",
            lambda: self.find(resource, name) is None and self.in_super(resource, name) is None,
        )

    def sh(self, pod: str, script: str) -> KubectlResult:
        """Run a script in a pod, through the tenant's own apiserver."""
        return self.kubectl("exec", pod, "--", "sh", "-c", script)

    def wait_output(self, pod: str, script: str, text: str) -> None:
        """Repeat a script in a pod until its output has the text."""
        self.wait(f"{script!r} prints {text!r}", lambda: text in self.sh(pod, script).text)

    def _describe(self) -> str:
        lines = [f"tenant {self.tenant.key}, namespace {self.namespace}"]
        for side, where, kubectl in (
            ("tenant", self.namespace, self.tenant.kubectl),
            ("super", self.super_namespace, self.ring.super_kubectl),
        ):
            shown = replace(kubectl, namespace=where)(
                "get", "pods,services,configmaps,secrets,serviceaccounts,persistentvolumeclaims", "-o", "wide"
            )
            events = replace(kubectl, namespace=where)("get", "events")
            lines += [f"--- {side}", shown.text + shown.error_text[-500:], events.text[-3000:]]
        lines += [] if self.syncer is None else ["--- syncer", self.syncer.tail()]
        return "\n".join(lines)

    def _find(self, api: KubernetesApi, path: str) -> JsonObject | None:
        reply = api.endpoint.request("GET", path)
        if reply.status == 404:
            return None
        assert reply.status == 200, reply.text[:1000]
        return reply.json()


class DirectShop(Shop):
    """A namespace of the super cluster itself, for a look at a test without a syncer."""

    @property
    def super_namespace(self) -> str:
        return self.namespace


def _path(resource: str, namespace: str, name: str = "") -> str:
    group = _GROUPS.get(resource, "/api/v1")
    return f"{group}/namespaces/{namespace}/{resource}" + (f"/{name}" if name else "")


def _items(api: KubernetesApi, path: str, selector: str) -> list[JsonObject]:
    query = f"?labelSelector={selector.replace('=', '%3D')}" if selector else ""
    items: list[JsonObject] = api.get(path + query)["items"]
    return items


def is_ready(pod: JsonObject) -> bool:
    """Whether the pod's own status says so, and it is not being deleted."""
    conditions = pod.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def object_of(api_version: str, kind: str, name: str, **fields: object) -> JsonObject:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def pod_spec(*commands: str, **fields: object) -> JsonObject:
    """A spec whose container `main` runs a script of busybox; it ends on the spot when it is asked to."""
    script = " ; ".join(commands) or "exec sleep 100000"
    return {
        "terminationGracePeriodSeconds": 1,
        "containers": [container("main", ["sh", "-c", script])],
        **fields,
    }


def agnhost(*arguments: str, **fields: object) -> JsonObject:
    """A container of the server that Kubernetes' own tests use."""
    return {
        "name": "main",
        "image": AGNHOST,
        "imagePullPolicy": "Never",
        "command": ["/agnhost", *arguments],
        **fields,
    }


def template(app: str, spec: JsonObject) -> JsonObject:
    return {"metadata": {"labels": {"app": app}}, "spec": spec}


def deployment(name: str, spec: JsonObject, *, replicas: int = 1) -> JsonObject:
    """A Deployment with label `app` = its name."""
    return object_of(
        "apps/v1",
        "Deployment",
        name,
        spec={
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name, spec),
        },
    )


def service(name: str, app: str, port: int, **fields: object) -> JsonObject:
    """A Service in front of the pods with label `app`."""
    spec = {"selector": {"app": app}, "ports": [{"name": "http", "port": port}], **fields}
    return object_of("v1", "Service", name, spec=spec)


def pod(name: str, spec: JsonObject, **metadata: object) -> JsonObject:
    made = object_of("v1", "Pod", name, spec=spec)
    made["metadata"] |= metadata
    return made
