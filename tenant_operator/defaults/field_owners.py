# SPDX-License-Identifier: Apache-2.0
"""Whose the fields of an object are, by its `metadata.managedFields` (tenant_operator/defaults/README.md).

The tenant takes a field over by writing it: by `kubectl edit`, `kubectl scale`, an autoscaler, or
server-side apply with `--force-conflicts`. An apply of ours then leaves the field out, so that the rest of
the object goes on to follow the list.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tenant_operator.model.objects import OPERATOR, Object

MANAGED = "vcnode.io/managed"
"""Annotation of each object that the operator applies: `"true"`. A tenant takes the whole object over by
`"false"`.

So an object without any other field has one by which it is known to be applied.
"""

# vc-syncer makes what the list also has, with the same content.
_OUR_MANAGERS = frozenset({OPERATOR, "vc-syncer"})


def is_released(live: Object) -> bool:
    """Whether the tenant has taken the object over as a whole, by annotation."""
    annotations = _metadata(live).get("annotations")
    return isinstance(annotations, dict) and annotations.get(MANAGED) == "false"


def is_applied_by_us(live: Object) -> bool:
    """Whether the operator has applied the object, and the tenant has not taken all of its fields over."""
    own, others = False, False
    for entry in _entries(live):
        fields = entry.get("fieldsV1")
        if entry.get("manager") == OPERATOR and entry.get("operation") == "Apply":
            if _has_other_fields(fields):
                return True
            own = True
        elif entry.get("manager") not in _OUR_MANAGERS and not entry.get("subresource"):
            others = True
    return own and not others


def _has_other_fields(fields: Any) -> bool:
    """Whether fields of an object are more than the annotation that each has."""
    if not isinstance(fields, dict):
        return False
    metadata = fields.get("f:metadata")
    parts = metadata if isinstance(metadata, dict) else {}
    annotations = parts.get("f:annotations")
    named = annotations if isinstance(annotations, dict) else {}
    return bool(
        fields.keys() - {"f:metadata"}
        or parts.keys() - {"f:annotations"}
        or named.keys() - {".", f"f:{MANAGED}"}
    )


def without_taken_fields(manifest: Object, live: Object) -> Object:
    """The manifest without the fields that others own in the live object. Its name always stays."""
    found = manifest
    for entry in _entries(live):
        fields = entry.get("fieldsV1")
        if entry.get("manager") not in _OUR_MANAGERS and isinstance(fields, dict):
            found = _pruned(found, fields, ())
    metadata = {**_metadata(found), "name": manifest["metadata"]["name"]}
    if "namespace" in manifest["metadata"]:
        metadata["namespace"] = manifest["metadata"]["namespace"]
    identity = {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": metadata}
    return {**found, **identity}


def has_fields(manifest: Object) -> bool:
    """Whether a manifest has more than the identity of its object, and the annotation that each has."""
    metadata = manifest["metadata"]
    annotations = metadata.get("annotations")
    others = annotations.keys() - {MANAGED} if isinstance(annotations, dict) else annotations
    rest = manifest.keys() - {"apiVersion", "kind", "metadata"}
    return bool(rest or metadata.keys() - {"name", "namespace", "annotations"} or others)


def kept_metadata(live: Object, manifest: Object | None) -> Object:
    """What this module looks at of an object, where it is compared with this manifest or with none."""
    annotations = _metadata(live).get("annotations")
    value = annotations.get(MANAGED) if isinstance(annotations, dict) else None
    found: dict[tuple[Any, ...], Object] = {}
    for entry in _entries(live):
        is_applied = entry.get("manager") == OPERATOR and entry.get("operation") == "Apply"
        owner = next((each for each in _OUR_MANAGERS if entry.get("manager") == each), "")
        fields = entry.get("fieldsV1")
        kept_entry: Object = {"manager": owner}
        if is_applied:
            kept_entry |= {"operation": "Apply", "fieldsV1": {"f:": {}} if _has_other_fields(fields) else {}}
        elif not owner and manifest is not None and isinstance(fields, dict):
            kept_entry["fieldsV1"] = _named(fields, manifest)
        if entry.get("subresource"):
            kept_entry["subresource"] = "any"
        # Most managers have none of the fields, and are alike.
        found[tuple(map(str, kept_entry.items()))] = kept_entry
    return {"annotations": {MANAGED: "false"} if value == "false" else {}, "managedFields": [*found.values()]}


def _named(fields: Mapping[str, Any], value: Any) -> Object:
    """Those of the fields that the value has; an empty one is owned as a whole."""
    found: Object = {}
    for key, each in fields.items():
        if isinstance(value, dict):
            if key.startswith("f:") and key[2:] in value:
                found[key] = _named(each, value[key[2:]]) if isinstance(each, dict) else None
        elif isinstance(value, list) and key.startswith(("k:", "v:")):
            found[key] = each
    return found or ({".": {}} if fields else {})


def _metadata(value: Object) -> Object:
    found = value.get("metadata")
    return found if isinstance(found, dict) else {}


def _entries(live: Object) -> Iterator[Mapping[str, Any]]:
    entries = _metadata(live).get("managedFields")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            yield entry


def _pruned(value: Any, fields: Mapping[str, Any], kept: tuple[str, ...]) -> Any:
    """The value without what `fields` names; `kept` are keys by which the list that it is in knows it."""
    if isinstance(value, dict):
        return _pruned_map(value, fields, kept)
    if isinstance(value, list):
        return _pruned_list(value, fields)
    return value


def _pruned_map(value: Object, fields: Mapping[str, Any], kept: tuple[str, ...]) -> Object:
    found: Object = {}
    for key, each in value.items():
        owned = fields.get(f"f:{key}")
        if key in kept or not isinstance(owned, dict):
            found[key] = each
        elif not owned:
            continue  # owned as a whole; `{".": {}}` is of a map without anything in it
        else:
            rest = _pruned(each, owned, ())
            if rest or not each:
                found[key] = rest
    return found


def _pruned_list(value: list[Any], fields: Mapping[str, Any]) -> list[Any]:
    selected = [(_decoded(key[2:]), owned) for key, owned in fields.items() if key.startswith("k:")]
    of_set = [_decoded(key[2:]) for key in fields if key.startswith("v:")]
    found = []
    for each in value:
        if not isinstance(each, dict):
            if each not in of_set:
                found.append(each)
            continue
        rest = each
        for selector, owned in selected:
            if isinstance(selector, dict) and isinstance(owned, dict) and _is_selected(each, selector):
                rest = _pruned(rest, owned, tuple(selector))
        found.append(rest)
    return found


def _is_selected(element: Object, selector: Mapping[str, Any]) -> bool:
    """Whether the element of a list has these keys; the API server has filled in those that are left out."""
    known = [key for key in selector if key in element]
    return bool(known) and all(element[key] == selector[key] for key in known)


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
