# SPDX-License-Identifier: Apache-2.0
"""Kubernetes objects as the syncer handles them: plain JSON values, so that no unknown field is lost. Pure.

A plan about an Object only reads it: the same object is planned again, and reported about.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from daemonkit.kube.resources import Resource

Object = dict[str, Any]

FOREIGN_FIELDS = "foreignFields"
"""Of a super object's metadata, in the place of `managedFields`: see `syncer.core.field_ownership`."""

SERVER_FIELDS = frozenset(
    {
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "ownerReferences",
        "finalizers",
        "clusterName",
        "managedFields",
        FOREIGN_FIELDS,
    }
)
"""Of metadata, what the API server or the tenant's controllers own: never carried to the other side."""


class SyncedKind(msgspec.Struct, frozen=True):
    """A kind by both of its names: in paths (`resource`), and in objects (`kind`)."""

    resource: Resource
    kind: str

    @property
    def api_version(self) -> str:
        group, version = self.resource.group, self.resource.version
        return f"{group}/{version}" if group else version


def metadata(value: Object) -> Object:
    """The metadata of an object, which has one."""
    found = value.get("metadata")
    return found if isinstance(found, dict) else {}


def name_of(value: Object) -> str:
    return str(metadata(value).get("name", ""))


def namespace_of(value: Object) -> str:
    return str(metadata(value).get("namespace", ""))


def uid_of(value: Object) -> str:
    return str(metadata(value).get("uid", ""))


def version_of(value: Object) -> str:
    return str(metadata(value).get("resourceVersion", ""))


def labels_of(value: Object) -> dict[str, str]:
    """A copy; empty without labels. A tenant's API server may have anything in their place."""
    found = metadata(value).get("labels")
    return dict(found) if isinstance(found, dict) else {}


def annotations_of(value: Object) -> dict[str, str]:
    """A copy; empty without annotations, as with `labels_of`."""
    found = metadata(value).get("annotations")
    return dict(found) if isinstance(found, dict) else {}


def is_deleting(value: Object) -> bool:
    return (value.get("metadata") or {}).get("deletionTimestamp") is not None


_NESTED = frozenset((dict, list))


def copied(value: Any) -> Any:
    """A deep copy of a JSON value, in a tenth of the time of `copy.deepcopy`."""
    if type(value) is dict:
        found = value.copy()
        # Most have only plain values.
        if not _NESTED.isdisjoint(map(type, value.values())):
            for name, each in value.items():
                if type(each) in _NESTED:
                    found[name] = copied(each)
        return found
    if type(value) is list:
        return [copied(each) if type(each) in _NESTED else each for each in value]
    return value


def text_of_value(value: Any) -> str:
    """A text that equal JSON values have in common: members of two lists are found by it, one by one."""
    return json.dumps(value, sort_keys=True)


def without_server_fields(value: Mapping[str, Any]) -> Object:
    """A deep copy without the fields of metadata that belong to one API server, and without status."""
    found: Object = copied({name: field for name, field in value.items() if name != "status"})
    meta = found.get("metadata", {})
    found["metadata"] = {name: each for name, each in meta.items() if name not in SERVER_FIELDS}
    return found


def merge_patch(actual: Any, desired: Any) -> Any:
    """The JSON merge patch (RFC 7386) that makes `desired` of `actual`; an empty dict if they are equal.

    Both are the owned parts of an object. Fields that are null count as absent, and so do empty
    objects and lists where the other side has no such field: the API server leaves them out as it likes.
    """
    patch: Object = {}
    for name, value in desired.items():
        found = actual.get(name)
        if isinstance(value, dict) and isinstance(found, dict):
            below = merge_patch(found, value)
            if below:
                patch[name] = below
        elif found != value and not (_is_void(found) and _is_void(value)):
            patch[name] = value
    for name, found in actual.items():
        if name not in desired and not _is_void(found):
            patch[name] = None
    return patch


def _is_void(value: Any) -> bool:
    return value is None or value == {} or value == []
