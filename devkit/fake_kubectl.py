# SPDX-License-Identifier: Apache-2.0
"""A fake of the API server that `kubectl_vc` asks by kubectl: objects in memory.

`changes` are what happens to a watched object, one for each event after its first state; None ends the watch
as its time would. `refusals` are faults by method and resource. `requests` has what was written.
"""

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kubectl_vc.core.faults import FaultReason, RequestError, RequestFault
from kubectl_vc.core.view import VIRTUAL_CLUSTERS, Object, TenantView, at
from kubectl_vc.port import DEFAULT_NAMESPACE, EVERY_NAMESPACE, WatchEvent

DEFAULT = "default"
_RESOURCES = {"VirtualCluster": VIRTUAL_CLUSTERS, "ConfigMap": "configmaps"}


class FakeKubectl:
    """One API server, whose objects all belong to resources that it knows by their names alone."""

    def __init__(self, objects: Mapping[str, Sequence[Object]] | None = None) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.changes: list[Callable[[Object], None] | None] = []
        self.refusals: dict[tuple[str, str], RequestFault] = {}
        self.requests: list[tuple[Any, ...]] = []
        self.config_answers: dict[str, str] = {}
        self._created: list[str] = []
        for resource, values in (objects or {}).items():
            for value in values:
                self.add(resource, value)

    def add(self, resource: str, value: Object) -> None:
        """Put an object into it."""
        metadata = value["metadata"]
        self.objects[resource, metadata.get("namespace", ""), metadata["name"]] = copy.deepcopy(value)

    def config(self, words: Sequence[str]) -> str:
        self.requests.append(("config", *words))
        if words[0] not in self.config_answers:
            raise RequestError(RequestFault(FaultReason.NO_CONTEXT, f"{words[0]}: no such answer"))
        return self.config_answers[words[0]]

    def get(self, resource: str, name: str, namespace: str = DEFAULT_NAMESPACE) -> Object:
        self._check("get", resource)
        return copy.deepcopy(self._found(resource, name, namespace))

    def list_objects(
        self,
        resource: str,
        namespace: str = DEFAULT_NAMESPACE,
        *,
        names: Sequence[str] = (),
        selector: Mapping[str, str] | None = None,
    ) -> list[Object]:
        self._check("list", resource)
        if names:
            return [self.get(resource, name, namespace) for name in names]
        where = namespace or DEFAULT
        return [
            copy.deepcopy(value)
            for (kind, within, _), value in self.objects.items()
            if kind == resource
            and (where == EVERY_NAMESPACE or within in (where, ""))
            and all(at(value, *key.split(".")) == wanted for key, wanted in (selector or {}).items())
        ]

    def printed(self, resource: str, namespace: str, names: Sequence[str], output: str) -> str:
        found = self.list_objects(resource, namespace, names=names)
        return f"{output}: {json.dumps([each['metadata']['name'] for each in found])}\n"

    def create(
        self, manifest: Object, namespace: str = DEFAULT_NAMESPACE, *, dry_run: bool = False
    ) -> Object:
        resource, metadata = _RESOURCES[manifest["kind"]], manifest["metadata"]
        name = metadata.get("name") or f"{metadata['generateName']}x"
        self._check("create", resource)
        where = namespace or DEFAULT
        if (resource, where, name) in self.objects:
            fault = RequestFault(FaultReason.ALREADY_EXISTS, f'{resource} "{name}" already exists')
            raise RequestError(fault)
        made = copy.deepcopy(manifest)
        made["metadata"] |= {
            "name": name,
            "namespace": where,
            "uid": f"uid-of-{name}" + "-again" * self._created.count(name),
            "generation": 1,
            "resourceVersion": "1",
        }
        if not dry_run:
            self._created.append(name)
            self.requests.append(("create", where, copy.deepcopy(manifest)))
            self.add(resource, made)
        return made

    def patch(
        self, resource: str, name: str, namespace: str, patch: Any, *, is_json_patch: bool = False
    ) -> Object:
        self._check("patch", resource)
        found = self._found(resource, name, namespace)
        self.requests.append(("patch", resource, namespace, name, patch))
        if is_json_patch:
            _json_patch(found, patch)
            return copy.deepcopy(found)
        for field in ("uid", "resourceVersion"):
            expected = at(patch, "metadata", field)
            if expected is not None and expected != found["metadata"].get(field):
                raise RequestError(RequestFault(FaultReason.CONFLICT, f"{field} is another"))
        metadata = {key: each for key, each in patch.get("metadata", {}).items() if key != "resourceVersion"}
        _merge(found, {**patch, "metadata": metadata})
        found["metadata"]["resourceVersion"] = f"{int(found['metadata'].get('resourceVersion', '1')) + 1}"
        if "spec" in patch:
            found["metadata"]["generation"] = found["metadata"].get("generation", 0) + 1
        return copy.deepcopy(found)

    def delete(self, view: TenantView) -> None:
        self._check("delete", VIRTUAL_CLUSTERS)
        self.requests.append(("delete", view.path, view.uid))
        found = self._found(VIRTUAL_CLUSTERS, view.name, view.namespace)
        if found["metadata"]["uid"] != view.uid:
            raise RequestError(RequestFault(FaultReason.CONFLICT, "the UID is another"))
        found["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z"
        if not found["metadata"].get("finalizers") and not self.changes:
            del self.objects[VIRTUAL_CLUSTERS, view.namespace, view.name]

    def watch(self, resource: str, view: TenantView, until: float) -> Iterator[WatchEvent]:
        del until
        key = (resource, view.namespace, view.name)
        gone = WatchEvent("DELETED", copy.deepcopy(view.value))
        if key in self.objects:
            yield WatchEvent("ADDED", copy.deepcopy(self.objects[key]))
        for change in self.changes:
            if change is None:
                return
            value = self.objects[key]
            change(value)
            if not value:
                yield gone
                return
            yield WatchEvent("MODIFIED", copy.deepcopy(value))
        if key in self.objects:
            raise AssertionError("the watch goes on, and the test has no more changes")
        yield gone

    def _check(self, method: str, resource: str) -> None:
        if (method, resource) in self.refusals:
            raise RequestError(self.refusals[method, resource])

    def _found(self, resource: str, name: str, namespace: str) -> Object:
        for where in (namespace or DEFAULT, ""):
            if (resource, where, name) in self.objects:
                return self.objects[resource, where, name]
        raise RequestError(RequestFault(FaultReason.NOT_FOUND, f'{resource} "{name}" not found'))


def _merge(value: Object, patch: Object) -> None:
    """RFC 7386."""
    for key, new in patch.items():
        if new is None:
            value.pop(key, None)
        elif isinstance(new, dict) and isinstance(value.get(key), dict):
            _merge(value[key], new)
        else:
            value[key] = copy.deepcopy(new)


def _json_patch(value: Any, operations: Sequence[Object]) -> None:
    """`test` and `replace` of RFC 6902."""
    for each in operations:
        *path, last = each["path"].strip("/").split("/")
        found = value
        for key in path:
            found = found[int(key)] if isinstance(found, list) else found[key]
        if each["op"] == "replace":
            found[last] = each["value"]
        elif found.get(last) != each["value"]:
            raise RequestError(RequestFault(FaultReason.INVALID, f"test of {each['path']} failed"))
