# SPDX-License-Identifier: Apache-2.0
"""The eight paths on which a tenant has its own API server dial an address of its choice."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.images import AGNHOST
from tests.k8s.ring.processes import RingError
from tests.k8s.syncer.shops import object_of

NAMESPACE = "escape"
_GROUP = "escape.test"
_HERE = f"/api/v1/namespaces/{NAMESPACE}"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
# Conversions have 30 s, and what is refused without a reset takes all of them.
_DIALLED_S = 45.0


@dataclass(frozen=True, slots=True)
class DialledAddress:
    """Where the tenant wants its API server to go. `name` is a part of names of objects."""

    name: str
    address: str
    port: int

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.port}/"


@dataclass(frozen=True, slots=True)
class EscapePath:
    """`prepare` writes what the tenant needs once; `dial` makes its API server dial."""

    prepare: Callable[[KubernetesApi, DialledAddress], None]
    dial: Callable[[KubernetesApi, DialledAddress], None]


def _webhook(kind: str, api: KubernetesApi, to: DialledAddress) -> None:
    """Of ConfigMaps that are named for the address, so that each webhook is called alone."""
    webhook = {
        "name": f"{to.name}.{_GROUP}",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "timeoutSeconds": 1,
        "clientConfig": {"url": to.url},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
        "matchConditions": [{"name": "own", "expression": f"object.metadata.name == '{kind}-{to.name}'"}],
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
        ],
    }
    title = f"{kind.capitalize()}WebhookConfiguration"
    made = object_of("admissionregistration.k8s.io/v1", title, f"escape-{to.name}", webhooks=[webhook])
    api.create(f"{_WEBHOOKS}/{kind}webhookconfigurations", made)


def _admit(kind: str, api: KubernetesApi, to: DialledAddress) -> None:
    _request(api, "POST", f"{_HERE}/configmaps?dryRun=All", object_of("v1", "ConfigMap", f"{kind}-{to.name}"))


def _service(prefix: str, api: KubernetesApi, to: DialledAddress) -> None:
    """Without a selector, whose endpoint is the address."""
    name = f"{prefix}-{to.name}"
    ports = [{"name": "https", "port": to.port}]
    api.create(f"{_HERE}/services", object_of("v1", "Service", name, spec={"ports": ports}))
    made = object_of(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        name,
        addressType="IPv4",
        ports=ports,
        endpoints=[{"addresses": [to.address], "conditions": {"ready": True}}],
    )
    made["metadata"]["labels"] = {"kubernetes.io/service-name": name}
    api.create(f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices", made)


def _api_service(api: KubernetesApi, to: DialledAddress) -> None:
    _service("api", api, to)
    spec = {
        "group": f"{to.name}.{_GROUP}",
        "version": "v1",
        "service": {"namespace": NAMESPACE, "name": f"api-{to.name}", "port": to.port},
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 100,
        "versionPriority": 10,
    }
    made = object_of("apiregistration.k8s.io/v1", "APIService", f"v1.{to.name}.{_GROUP}", spec=spec)
    api.create("/apis/apiregistration.k8s.io/v1/apiservices", made)


def _aggregate(api: KubernetesApi, to: DialledAddress) -> None:
    """An API that was not available is not dialled for a request. A change has it looked at again."""
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/v1.{to.name}.{_GROUP}"
    with contextlib.suppress(RingError):
        api.patch(path, {"metadata": {"annotations": {"changed": str(time.monotonic())}}})
    _request(api, "GET", f"/apis/{to.name}.{_GROUP}/v1/things")


def _converted_definition(api: KubernetesApi, to: DialledAddress) -> None:
    """Of two versions, between which the address converts, with an object of the stored one."""
    plural, kind = f"{to.name}s", to.name.capitalize()
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2")
    ]
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": to.url}}
    spec = {
        "group": _GROUP,
        "scope": "Cluster",
        "names": {"plural": plural, "singular": to.name, "kind": kind},
        "versions": versions,
        "conversion": {"strategy": "Webhook", "webhook": webhook},
    }
    made = object_of("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{plural}.{_GROUP}", spec=spec)
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", made)


def _convert(api: KubernetesApi, to: DialledAddress) -> None:
    """The object is there once the definition is served."""
    plural = f"{to.name}s"
    made = object_of(f"{_GROUP}/v1", to.name.capitalize(), "one")
    _request(api, "POST", f"/apis/{_GROUP}/v1/{plural}", made)
    _request(api, "GET", f"/apis/{_GROUP}/v2/{plural}/one")


def _node(prefix: str, api: KubernetesApi, to: DialledAddress) -> None:
    """Made up: it is there by its object alone."""
    name = f"{prefix}-{to.name}"
    api.create("/api/v1/nodes", object_of("v1", "Node", name))
    status = {
        "addresses": [{"type": "InternalIP", "address": to.address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": to.port}},
    }
    api.patch(f"/api/v1/nodes/{name}/status", {"status": status})


def _node_proxy(api: KubernetesApi, to: DialledAddress) -> None:
    _request(api, "GET", f"/api/v1/nodes/https:proxied-{to.name}:{to.port}/proxy/")


def _service_proxy(api: KubernetesApi, to: DialledAddress) -> None:
    _request(api, "GET", f"{_HERE}/services/https:proxied-{to.name}:{to.port}/proxy/")


def _pod(prefix: str, api: KubernetesApi, to: DialledAddress) -> None:
    """On a made-up node, with the address as its own."""
    name = f"{prefix}-{to.name}"
    spec = {"nodeName": name, "containers": [{"name": "main", "image": AGNHOST}]}
    _node(prefix, api, to)
    api.create(f"{_HERE}/pods", object_of("v1", "Pod", name, spec=spec))
    status = {"phase": "Running", "podIP": to.address, "podIPs": [{"ip": to.address}]}
    api.patch(f"{_HERE}/pods/{name}/status", {"status": status})


def _pod_proxy(api: KubernetesApi, to: DialledAddress) -> None:
    _request(api, "GET", f"{_HERE}/pods/https:podproxy-{to.name}:{to.port}/proxy/")


def _log(api: KubernetesApi, to: DialledAddress) -> None:
    _request(api, "GET", f"{_HERE}/pods/logged-{to.name}/log")


PATHS = {
    "validating webhook": EscapePath(partial(_webhook, "validating"), partial(_admit, "validating")),
    "mutating webhook": EscapePath(partial(_webhook, "mutating"), partial(_admit, "mutating")),
    "conversion webhook": EscapePath(_converted_definition, _convert),
    "APIService": EscapePath(_api_service, _aggregate),
    "services/proxy": EscapePath(partial(_service, "proxied"), _service_proxy),
    "nodes/proxy": EscapePath(partial(_node, "proxied"), _node_proxy),
    "pods/proxy": EscapePath(partial(_pod, "podproxy"), _pod_proxy),
    "log of a pod of a made-up node": EscapePath(partial(_pod, "logged"), _log),
}


def _request(api: KubernetesApi, method: str, path: str, value: JsonObject | None = None) -> None:
    """What the tenant's API server answers is no matter: packets are counted."""
    body = None if value is None else json.dumps(value).encode()
    headers = {"Content-Type": "application/json"}
    with contextlib.suppress(OSError):
        api.endpoint.request(method, path, body=body, headers=headers, timeout_s=_DIALLED_S)
