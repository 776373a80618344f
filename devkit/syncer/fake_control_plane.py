# SPDX-License-Identifier: Apache-2.0
"""A control plane that single requests are made to: objects of a storage, with patches and preconditions."""

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from daemonkit.kube.client import MAX_RESPONSE_BYTES, ApiError
from daemonkit.kube.resources import Resource, Status
from devkit.kube import wire
from devkit.kube.storage import Object, Selection, StatusError, Storage

_CLUSTER_SCOPED = frozenset(
    {"namespaces", "nodes", "networks", "clusterroles", "clusterrolebindings", "customresourcedefinitions"}
)
DELETED_AT = "2026-11-25T12:00:00Z"


class FakeControlPlane:
    """Answers as an API server does, without schema and admission.

    `requests` has what was asked, as `PATCH /api/v1/nodes/n`. `failures` are raised, one each, by the next
    requests; `delay_s` goes before each answer. `on_token` answers TokenRequests: it gets the path and the
    body, and returns the TokenRequest with its status or raises.
    """

    def __init__(self, *, on_token: Callable[[str, Object], Object] | None = None) -> None:
        self.storage = Storage()
        self.requests: list[str] = []
        self.bodies: list[Object] = []
        self.failures: list[Exception] = []
        self.delay_s = 0.0
        self.most_in_flight = 0
        self._in_flight = 0
        self._on_token = on_token

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
        limit_bytes: int = MAX_RESPONSE_BYTES,
    ) -> bytes:
        self.requests.append(f"{method} {path}")
        value = msgspec.json.decode(body) if body else {}
        self.bodies.append(value)
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            await asyncio.sleep(self.delay_s)
            if self.failures:
                raise self.failures.pop(0)
            return msgspec.json.encode(self._answer(method, path, params, value, content_type))
        except StatusError as error:
            raise ApiError(msgspec.convert(error.status, Status)) from None
        finally:
            self._in_flight -= 1

    def _answer(
        self, method: str, path: str, params: Mapping[str, str], value: Object, content_type: str
    ) -> Object:
        if method == "POST" and path.endswith("/token") and self._on_token is not None:
            return self._on_token(path, value)
        resource, namespace, name, subresource = target(path)
        match method:
            case "GET" if not name:
                labels = params.get("labelSelector", "")
                selection = Selection.parse(resource, namespace, labels, params.get("fieldSelector", ""))
                return wire.list_page(self.storage, selection, params)
            case "GET":
                return self.storage.get(resource, namespace, name)
            case "POST":
                return self.storage.create(resource, value)
            case "PATCH" if content_type == "application/merge-patch+json":
                return self._patch(resource, namespace, name, subresource, value)
            case "DELETE":
                return self._delete(resource, namespace, name, value.get("preconditions") or {})
            case _:
                raise StatusError(405, "MethodNotAllowed", f"{method} {content_type}")

    def _patch(
        self, resource: Resource, namespace: str, name: str, subresource: str, value: Object
    ) -> Object:
        actual = self.storage.get(resource, namespace, name)
        self._check(actual, value.get("metadata") or {})
        patched = apply_merge_patch(actual, value)
        if subresource:
            patched = actual | {subresource: patched.get(subresource)}
        elif "status" in actual:
            patched["status"] = actual["status"]
        if "deletionTimestamp" in patched["metadata"] and not patched["metadata"].get("finalizers"):
            return self.storage.delete(resource, namespace, name)
        # A patch that changes nothing makes no new version.
        return actual if patched == actual else self.storage.replace(resource, patched)

    def _delete(self, resource: Resource, namespace: str, name: str, conditions: Object) -> Object:
        """Remove an object, or mark it as one that waits for its finalizers."""
        actual = self.storage.get(resource, namespace, name)
        self._check(actual, conditions)
        if not actual["metadata"].get("finalizers"):
            return self.storage.delete(resource, namespace, name)
        actual["metadata"].setdefault("deletionTimestamp", DELETED_AT)
        return self.storage.replace(resource, actual)

    def _check(self, actual: Object, conditions: Object) -> None:
        for field in ("uid", "resourceVersion"):
            if field in conditions and conditions[field] != actual["metadata"][field]:
                raise StatusError(409, "Conflict", f"Precondition failed: {field}")


def target(path: str) -> tuple[Resource, str, str, str]:
    """Resource, namespace, name and subresource of a path, each empty where the path has none."""
    parts = path.strip("/").split("/")
    group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest, "", ""][:3]
    is_namespaced = bool(namespace) or plural not in _CLUSTER_SCOPED
    return Resource(group, version, plural, is_namespaced), namespace, name, subresource


def apply_merge_patch(actual: Object, patch: Object) -> Object:
    """RFC 7386, of objects."""
    found = dict(actual)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            old = found.get(key)
            found[key] = apply_merge_patch(old if isinstance(old, dict) else {}, value)
        else:
            found[key] = value
    return found
