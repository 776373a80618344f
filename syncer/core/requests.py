# SPDX-License-Identifier: Apache-2.0
"""The HTTP request of each action. Pure."""

import msgspec

from daemonkit.kube.resources import PODS
from syncer.core.objects import Object, SyncedKind, name_of, namespace_of
from syncer.core.plan import Bind, Create, Delete, Patch

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
_JSON = "application/json"


class ApiRequest(msgspec.Struct, frozen=True):
    """One request to an API server; `namespace` is the one that it writes to, empty for the cluster."""

    method: str
    path: str
    namespace: str
    body: bytes
    content_type: str = _JSON


def request_of(action: Create | Patch | Delete | Bind) -> ApiRequest:
    """The request that carries out an action."""
    match action:
        case Create(_, kind, body):
            namespace = namespace_of(body)
            typed = {**body, "apiVersion": kind.api_version, "kind": kind.kind}
            return ApiRequest("POST", _path(kind, namespace), namespace, msgspec.json.encode(typed))
        case Patch():
            path = _path(action.kind, action.namespace, action.name)
            if action.subresource:
                path += f"/{action.subresource}"
            content_type = STRATEGIC_MERGE_PATCH if action.is_strategic else MERGE_PATCH
            patch = msgspec.json.encode(_with_preconditions(action))
            return ApiRequest("PATCH", path, action.namespace, patch, content_type)
        case Delete(_, kind, namespace, name, uid, grace_s):
            options: Object = {
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "preconditions": {"uid": uid},
                "propagationPolicy": "Background",
            }
            if grace_s is not None:
                options["gracePeriodSeconds"] = grace_s
            return ApiRequest("DELETE", _path(kind, namespace, name), namespace, msgspec.json.encode(options))
        case Bind(namespace, name, uid, node):
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name, "namespace": namespace, "uid": uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }
            path = PODS.path(namespace, name) + "/binding"
            return ApiRequest("POST", path, namespace, msgspec.json.encode(binding))


def read_path(kind: SyncedKind, body: Object) -> str:
    """The path of an object."""
    return _path(kind, namespace_of(body), name_of(body))


def _path(kind: SyncedKind, namespace: str, name: str | None = None) -> str:
    return kind.resource.path(namespace or None, name)


def _with_preconditions(action: Patch) -> Object:
    """The patch, with the UID: the API server answers 409 if the object is another one by now."""
    metadata = {**action.body.get("metadata", {}), "uid": action.uid}
    if action.version:
        metadata["resourceVersion"] = action.version
    return {**action.body, "metadata": metadata}
