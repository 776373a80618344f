# SPDX-License-Identifier: Apache-2.0
"""The HTTP forms of a Kubernetes API server: paths, lists, events, tokens, kubeconfigs."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import yaml

from daemonkit.kube.resources import Key, Resource
from devkit.kube.storage import Object, Selection, StatusError, Storage
from devkit.pki import Leaf

_KINDS = {
    "configmaps": "ConfigMap",
    "csidrivers": "CSIDriver",
    "csinodes": "CSINode",
    "clusterrolebindings": "ClusterRoleBinding",
    "clusterroles": "ClusterRole",
    "clusterversions": "ClusterVersion",
    "customresourcedefinitions": "CustomResourceDefinition",
    "daemonsets": "DaemonSet",
    "endpoints": "Endpoints",
    "endpointslices": "EndpointSlice",
    "ingressclasses": "IngressClass",
    "ingresses": "Ingress",
    "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
    "networkpolicies": "NetworkPolicy",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "persistentvolumes": "PersistentVolume",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "priorityclasses": "PriorityClass",
    "replicasets": "ReplicaSet",
    "rolebindings": "RoleBinding",
    "runtimeclasses": "RuntimeClass",
    "serviceaccounts": "ServiceAccount",
    "statefulsets": "StatefulSet",
    "storageclasses": "StorageClass",
    "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
    "virtualclusters": "VirtualCluster",
    "volumeattachments": "VolumeAttachment",
}
_CLUSTER_SCOPED = frozenset(
    {
        "clusterrolebindings",
        "clusterroles",
        "clusterversions",
        "csidrivers",
        "csinodes",
        "customresourcedefinitions",
        "ingressclasses",
        "mutatingwebhookconfigurations",
        "namespaces",
        "nodes",
        "persistentvolumes",
        "priorityclasses",
        "runtimeclasses",
        "storageclasses",
        "validatingwebhookconfigurations",
        "volumeattachments",
    }
)
_SUBRESOURCES = frozenset(
    {"status", "binding", "eviction", "ephemeralcontainers", "resize", "token", "finalize"}
)
HEALTH_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names; `name` is empty for a collection."""

    resource: Resource
    namespace: str
    name: str
    subresource: str = ""


def full_target(path: str) -> Target:
    """What a path names, with a subresource. Raises StatusError 404 for other paths."""
    owner, _, last = path.rstrip("/").rpartition("/")
    if last in _SUBRESOURCES:
        resource, namespace, name = target(owner)
        if name:
            return Target(resource, namespace, name, last)
    return Target(*target(path))


def target(path: str) -> tuple[Resource, str, str]:
    """Resource, namespace and name of a path. Raises StatusError 404 for other paths."""
    match path.strip("/").split("/"):
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
    match rest:
        case ["namespaces", namespace, plural, *name] if len(name) <= 1:
            return Resource(group, version, plural), namespace, "".join(name)
        case [plural, *name] if len(name) <= 1:
            resource = Resource(group, version, plural, plural not in _CLUSTER_SCOPED)
            return resource, "", "".join(name)
        case _:
            raise StatusError(404, "NotFound", "the server could not find the requested resource")


def verb(method: str, name: str, query: Mapping[str, str], subresource: str = "") -> str:
    """The verb that authorization sees. Raises StatusError 405."""
    if method == "GET":
        if query.get("watch") in ("1", "true"):
            return "watch"
        return "get" if name else "list"
    found = _VERBS.get(method)
    if found == "delete" and not name:
        return "deletecollection"
    is_for_object = bool(name) and not (found == "create" and subresource)
    if found is None or (found == "create") == is_for_object:
        raise StatusError(405, "MethodNotAllowed", "the server does not allow this method")
    return found


def sent_object(body: bytes, resource: Resource, namespace: str, name: str) -> Object:
    """The object of a write, with namespace and name of the path. Raises StatusError 400."""
    try:
        value = msgspec.json.decode(body, type=Object)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StatusError(400, "BadRequest", f"the body is no object: {error}") from None
    metadata = value.setdefault("metadata", {})
    if resource.is_namespaced:
        metadata["namespace"] = namespace
    if name:
        metadata["name"] = name
    return value


def event(kind: str, value: Object) -> bytes:
    """One line of a watch."""
    return msgspec.json.encode({"type": kind, "object": value}) + b"\n"


def bookmark(resource: Resource, revision: int) -> bytes:
    metadata = {"resourceVersion": str(revision), "creationTimestamp": None}
    return event("BOOKMARK", typed(resource) | {"metadata": metadata})


def list_page(storage: Storage, selection: Selection, query: Mapping[str, str]) -> Object:
    """One page of a list, or the whole. Raises StatusError 400, 410 and 504."""
    revision, after = storage.revision, ("", "")
    token = query.get("continue")
    if token:
        if query.get("resourceVersion"):
            message = "specifying resource version is not allowed when using continue"
            raise StatusError(400, "BadRequest", message)
        revision, after = _read_page_token(token)
    else:
        storage.check_seen(number(query.get("resourceVersion", "")))
    values = [value for value in storage.select(selection, revision) if _key(value) > after]
    metadata = {"resourceVersion": str(revision)}
    limit = number(query.get("limit", ""))
    # Where any version will do a real server answers from its cache, and whole.
    if limit and query.get("resourceVersion") != "0" and len(values) > limit:
        values = values[:limit]
        metadata["continue"] = _page_token(revision, _key(values[-1]))
    return typed(selection.resource, "List") | {"metadata": metadata, "items": values}


def typed(resource: Resource, suffix: str = "") -> Object:
    version = f"{resource.group}/{resource.version}" if resource.group else resource.version
    kind = _KINDS.get(resource.plural, resource.plural.removesuffix("s").capitalize())
    return {"kind": kind + suffix, "apiVersion": version}


def number(text: str) -> int:
    """A number of a query, 0 for none. Raises StatusError 400."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise StatusError(400, "BadRequest", f"Invalid value: {text[:40]!r}")
    return int(text)


def _key(value: Object) -> Key:
    return value["metadata"].get("namespace", ""), value["metadata"]["name"]


def _page_token(revision: int, last: Key) -> str:
    # Opaque to clients, without a memory in the server.
    return base64.urlsafe_b64encode(msgspec.json.encode([revision, *last])).decode()


def _read_page_token(token: str) -> tuple[int, Key]:
    try:
        plain = base64.urlsafe_b64decode(token)
        revision, namespace, name = msgspec.json.decode(plain, type=tuple[int, str, str])
    except (binascii.Error, ValueError):
        raise StatusError(400, "BadRequest", "continue key is not valid") from None
    return revision, (namespace, name)


def kubeconfig(
    server: str, ca_pem: bytes | None, leaf: Leaf | None = None, *, token: str | None = None
) -> str:
    """The text of a kubeconfig with everything embedded and one context called `default`."""
    cluster: Object = {"server": server}
    if ca_pem is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem).decode()
    user: Object = {}
    if leaf is not None:
        user["client-certificate-data"] = base64.b64encode(leaf.cert_pem).decode()
        user["client-key-data"] = base64.b64encode(leaf.key_pem).decode()
    if token is not None:
        user["token"] = token
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "default",
            "clusters": [{"name": "default", "cluster": cluster}],
            "users": [{"name": "default", "user": user}],
            "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
        }
    )
