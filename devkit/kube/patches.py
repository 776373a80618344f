# SPDX-License-Identifier: Apache-2.0
"""The three kinds of patch that an API server takes.

The lists that a strategic merge patch merges are in a small table: real servers read them off Go's types.
"""

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from devkit.kube.storage import Object, StatusError, copied

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

# The merge keys of core/v1 (patchMergeKey). Lists that are not here are replaced, `tolerations` among them.
_MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "hostIPs": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_MERGED_SETS = frozenset({"finalizers"})


def patched(content_type: str, value: Object, body: bytes) -> Object:
    """The object with a patch applied to a copy. Raises StatusError 400, 415 and 422."""
    apply = _KINDS.get(content_type.partition(";")[0].strip())
    if apply is None:
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type")
    try:
        patch = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StatusError(400, "BadRequest", f"the patch is not JSON: {error}") from None
    if isinstance(patch, list) is not (apply is json_patch):
        raise StatusError(400, "BadRequest", "a patch of another kind than its content type")
    result = apply(copied(value), patch)
    if not isinstance(result, dict) or not isinstance(result.get("metadata"), dict):
        raise StatusError(422, "Invalid", "the patched object is no object")
    return result


def merge_patch(value: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for name, change in patch.items():
        if change is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), change)
    return result


def strategic_merge(value: Any, patch: Any) -> Any:
    """As `merge_patch`; lists of the table are merged item by item. Orders are not kept up."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {name: each for name, each in patch.items() if name != "$patch"}
    result = dict(value) if isinstance(value, dict) else {}
    for name, change in patch.items():
        directive, _, field = name.partition("/")
        if directive == "$deleteFromPrimitiveList":
            result[field] = [each for each in result.get(field) or [] if each not in change]
        elif name.startswith("$"):
            continue
        elif change is None or (isinstance(change, dict) and change.get("$patch") == "delete"):
            result.pop(name, None)
        elif isinstance(change, list):
            result[name] = _merged_list(name, result.get(name) or [], change)
        else:
            result[name] = strategic_merge(result.get(name), change)
    return result


def _merged_list(name: str, values: list[Any], changes: list[Any]) -> list[Any]:
    if name in _MERGED_SETS:
        return [*values, *(each for each in changes if each not in values)]
    key = _merge_key(name, [*values, *changes])
    changed = [each for each in changes if "$patch" not in each] if key else changes
    if key is None or {"$patch": "replace"} in changes:
        return [each for each in changes if each != {"$patch": "replace"}]
    result = list(values)
    for each in changes:
        if each.get("$patch") == "delete":
            result = [old for old in result if old.get(key) != each.get(key)]
    for each in changed:
        if key not in each:
            raise StatusError(400, "BadRequest", f"an item of {name} without {key}")
        at = next((at for at, old in enumerate(result) if old.get(key) == each[key]), None)
        if at is None:
            result.append(strategic_merge({}, each))
        else:
            result[at] = strategic_merge(result[at], each)
    return result


def _merge_key(name: str, items: list[Any]) -> str | None:
    if name == "ports":
        # Those of a container and those of a Service.
        return "containerPort" if any("containerPort" in each for each in items) else "port"
    return _MERGE_KEYS.get(name)


def json_patch(value: Any, operations: Any) -> Any:
    """RFC 6902. Raises StatusError 422 where an operation does not fit."""
    document = {"": value}
    try:
        for operation in operations:
            _apply(document, operation)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        message = "the server rejected our request due to an error in our request"
        raise StatusError(422, "Invalid", message) from None
    return document[""]


def _apply(document: Object, operation: Object) -> None:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "test":
            if _at(document, path) != operation["value"]:
                raise ValueError("the test failed")
        case "add":
            _add(document, path, operation["value"])
        case "remove":
            _remove(document, path)
        case "replace":
            _remove(document, path)
            _add(document, path, operation["value"])
        case "move":
            source = _pointer(operation["from"])
            moved = _at(document, source)
            _remove(document, source)
            _add(document, path, moved)
        case "copy":
            _add(document, path, copy.deepcopy(_at(document, _pointer(operation["from"]))))
        case _:
            raise ValueError("an unknown operation")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError("no JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")]


def _at(document: Object, path: list[str]) -> Any:
    here: Any = document
    for part in path:
        here = here[int(part)] if isinstance(here, list) else here[part]
    return here


def _add(document: Object, path: list[str], value: Any) -> None:
    parent = _at(document, path[:-1])
    if isinstance(parent, list):
        at = len(parent) if path[-1] == "-" else int(path[-1])
        if not 0 <= at <= len(parent):
            raise IndexError
        parent.insert(at, value)
    else:
        parent[path[-1]] = value


def _remove(document: Object, path: list[str]) -> None:
    parent = _at(document, path[:-1])
    del parent[int(path[-1]) if isinstance(parent, list) else path[-1]]


_KINDS: dict[str, Callable[[Any, Any], Any]] = {
    MERGE: merge_patch,
    JSON: json_patch,
    STRATEGIC: strategic_merge,
}
