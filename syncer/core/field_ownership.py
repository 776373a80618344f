# SPDX-License-Identifier: Apache-2.0
"""Which fields of a super object others wrote, by what its API server recorded of each writer. Pure.

`metadata.managedFields` names the writers of each field (KEP-555, structured-merge-diff's FieldsV1). What is
in no entry of ours was written by a controller or by admission of the super cluster, and is not ours to take
away. Only that difference is kept of the record: of most objects it is empty.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from daemonkit.kube import deep_json
from syncer.core.objects import FOREIGN_FIELDS, Object, metadata

MANAGERS = ("vc-syncer", "syncer", "resource-syncer")
"""Who we are in these records: the User-Agent up to its first slash, and that of upstream's syncer."""

ForeignFields = dict[str, Any]
"""The part of an object that is not ours: its names, with an empty dict for a whole value.

Items of a list stand under the JSON of what identifies them: of their key fields, or of themselves.
"""

_WHOLE: ForeignFields = {}
_FIELDS = msgspec.json.Decoder(dict[str, Any])
# Of a record that is nested deeper all counts as ours: no schema that a person wrote comes near.
_MAX_DEPTH = 64


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    manager: str = ""
    subresource: str = ""
    fields_v1: dict[str, Any] = msgspec.field(name="fieldsV1", default_factory=dict)


def note_foreign_fields(value: Object) -> Object:
    """Put the foreign fields of a super object in the place of its `managedFields`; returns the object.

    Without a record nothing is known to be ours. Where all is ours nothing is noted.
    """
    meta = metadata(value)
    managed = meta.pop("managedFields", None)
    meta.pop(FOREIGN_FIELDS, None)
    found = foreign_fields(value, managed)
    if found is not None:
        meta[FOREIGN_FIELDS] = found
    return value


def foreign_fields(value: Object, managed: Any) -> ForeignFields | None:
    """The foreign fields of an object with these `managedFields`; None if there are none."""
    entries = _entries(managed)
    if not entries:
        return _WHOLE
    ours: Object = {}
    others: Object = {}
    for each in entries:
        if each.manager in MANAGERS:
            ours = _merged(ours, each.fields_v1, 0)
        elif each.subresource != "status":
            others = _merged(others, each.fields_v1, 0)
    found: ForeignFields = {}
    for name in value:
        if name in ("apiVersion", "kind", "metadata"):
            continue
        if name == "status" and "f:status" not in ours:
            continue  # never compared: it is a controller's own
        part = _foreign(value[name], ours.get(f"f:{name}"), others.get(f"f:{name}"), 0)
        if part is not None:
            found[name] = part
    meta = _foreign_metadata(metadata(value), ours.get("f:metadata") or {})
    if meta:
        found["metadata"] = meta
    return found or None


class _OwnKeys(msgspec.Struct, frozen=True):
    labels: dict[str, msgspec.Raw] = msgspec.field(name="f:labels", default_factory=dict)
    annotations: dict[str, msgspec.Raw] = msgspec.field(name="f:annotations", default_factory=dict)


class _OwnMetadata(msgspec.Struct, frozen=True):
    metadata: _OwnKeys = msgspec.field(name="f:metadata", default=_OwnKeys())


class _RawEntry(msgspec.Struct, frozen=True, rename="camel"):
    manager: str = ""
    fields_v1: msgspec.Raw = msgspec.field(name="fieldsV1", default=msgspec.Raw(b""))


_RAW_ENTRIES = msgspec.json.Decoder(list[_RawEntry] | None)
_OWN_METADATA = msgspec.json.Decoder(_OwnMetadata)
_NO_FIELDS = (b"", b"null", b"{}")


def foreign_keys(managed: msgspec.Raw, labels: Object, annotations: Object) -> ForeignFields | None:
    """As `foreign_fields` of an object that has metadata alone, by the JSON of its `managedFields`.

    That is empty where an object has none. Nothing else of it is decoded.
    """
    own_labels: Object = {}
    own_annotations: Object = {}
    has_entries = False
    try:
        for each in (deep_json.decode(_RAW_ENTRIES, managed) if managed else None) or ():
            has_fields = bytes(each.fields_v1) not in _NO_FIELDS
            has_entries |= has_fields
            if has_fields and each.manager in MANAGERS:
                own = deep_json.decode(_OWN_METADATA, each.fields_v1).metadata
                own_labels |= own.labels
                own_annotations |= own.annotations
    except msgspec.ValidationError:
        return _WHOLE  # as without a record
    if not has_entries:
        return _WHOLE
    ours = {"f:labels": own_labels, "f:annotations": own_annotations}
    found = _foreign_metadata({"labels": labels, "annotations": annotations}, ours)
    return {"metadata": found} if found else None


def _entries(managed: Any) -> list[_Entry]:
    try:
        return [each for each in msgspec.convert(managed or [], list[_Entry]) if each.fields_v1]
    except msgspec.ValidationError:
        return []  # as without a record


def _foreign_metadata(meta: Object, ours: Object) -> ForeignFields:
    found: ForeignFields = {}
    for field in ("labels", "annotations"):
        own, actual = ours.get(f"f:{field}") or {}, meta.get(field)
        if not isinstance(actual, dict):
            continue
        # Of most objects all keys are ours: no key is looked at by itself then.
        if not own.keys() >= set(map("f:".__add__, actual)):
            found[field] = {key: _WHOLE for key in actual if f"f:{key}" not in own}
    return found


def _foreign(value: Any, ours: Any, others: Any, depth: int) -> ForeignFields | None:
    """What of a value is not ours: None for nothing, an empty dict for all of it."""
    others = others if isinstance(others, dict) else {}
    if not isinstance(ours, dict):
        if isinstance(value, dict) and depth <= _MAX_DEPTH and any(name.startswith("f:") for name in others):
            # Not atomic: it has room for more.
            return {
                name: _foreign(each, None, others.get(f"f:{name}"), depth + 1) or _WHOLE
                for name, each in value.items()
            }
        return _WHOLE
    if depth > _MAX_DEPTH:
        return None
    is_leaf = not any(name != "." for name in ours)
    if isinstance(value, dict):
        if is_leaf:
            # Atomic, or ours as long as it was empty.
            return {name: _WHOLE for name in value if f"f:{name}" in others} or None
        return {
            name: part
            for name, each in value.items()
            if (part := _foreign(each, ours.get(f"f:{name}"), others.get(f"f:{name}"), depth + 1)) is not None
        } or None
    if isinstance(value, list) and not is_leaf:
        return _foreign_items(value, ours, others, depth)
    return None


def _foreign_items(value: list[Any], ours: Object, others: Object, depth: int) -> ForeignFields | None:
    """As `_foreign`, for a list whose items have owners."""
    names = _key_fields(ours)
    own = {_identity_of(name): each for name, each in ours.items()}
    theirs = {_identity_of(name): each for name, each in others.items()}
    found: ForeignFields = {}
    for item in value:
        identity = _identity(item, names)
        part = _foreign(item, own[identity], theirs.get(identity), depth + 1) if identity in own else _WHOLE
        if part is not None:
            found[identity] = part
    return found or None


def _key_fields(items: Iterable[str]) -> tuple[str, ...]:
    """The names of the fields that identify items in a record; none for items that are their own key."""
    for name in items:
        if name.startswith("k:"):
            try:
                return tuple(sorted(_FIELDS.decode(name[2:])))
            except msgspec.DecodeError:
                continue
    return ()


def _identity_of(name: str) -> str:
    """The identity of an item of a record, as `_identity` writes it."""
    try:
        return _encoded(msgspec.json.decode(name[2:]))
    except msgspec.DecodeError:
        return ""


def _identity(item: Any, names: tuple[str, ...]) -> str:
    if names and isinstance(item, dict):
        return _encoded({name: item[name] for name in names if name in item})
    return _encoded(item)


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _merged(one: Object, other: Object, depth: int) -> Object:
    if depth > _MAX_DEPTH or not (one and other):
        return one or other
    made = dict(one)
    for name, each in other.items():
        before = made.get(name)
        if isinstance(before, dict) and isinstance(each, dict):
            made[name] = _merged(before, each, depth + 1)
        else:
            made[name] = each
    return made


# ---- what plans make of it


def is_foreign_key(found: Object, field: str, key: str) -> bool:
    """Whether a key of a super object's `labels` or `annotations` was written by another client."""
    foreign = metadata(found).get(FOREIGN_FIELDS)
    if foreign is None:
        return False
    return foreign == _WHOLE or key in ((foreign.get("metadata") or {}).get(field) or {})


def with_foreign_fields(desired: Object, actual: Object, found: Object) -> Object:
    """The owned part of a desired object, with what others wrote where the tenant has nothing.

    `actual` is the same part of `found`, as it is. A merge patch to the result takes away only what is ours.
    """
    foreign = metadata(found).get(FOREIGN_FIELDS)
    if foreign is None:
        return desired
    return _with_all(desired, actual, 0) if foreign == _WHOLE else _with(desired, actual, foreign, 0)


def _with(desired: Object, actual: Object, foreign: ForeignFields, depth: int) -> Object:
    made = dict(desired)
    for name, part in foreign.items():
        if name not in actual:
            continue
        there, wanted = actual[name], made.get(name)
        if wanted is None:
            kept = _kept(there, part)
            if kept not in (None, {}, []):
                made[name] = kept
        elif part and depth <= _MAX_DEPTH:
            if isinstance(wanted, dict) and isinstance(there, dict):
                made[name] = _with(wanted, there, part, depth + 1)
            elif isinstance(wanted, list) and isinstance(there, list):
                made[name] = _with_items(wanted, there, part, depth + 1)
    return made


def _with_items(desired: list[Any], actual: list[Any], foreign: ForeignFields, depth: int) -> list[Any]:
    names = _names_of(foreign)
    wanted = {_identity(each, names): each for each in desired}
    made: list[Any] = []
    own: list[str] = []
    for item in actual:
        identity = _identity(item, names)
        part = foreign.get(identity)
        if identity in wanted:
            own.append(identity)
            each = wanted[identity]
            if part and isinstance(each, dict) and isinstance(item, dict):
                each = wanted[identity] = _with(each, item, part, depth)
            made.append(each)
        elif part == _WHOLE:
            made.append(item)
    if own == list(wanted):
        return made  # in the order that is there
    extra = [item for item in actual if _identity(item, names) not in wanted]
    return [*wanted.values(), *(item for item in extra if foreign.get(_identity(item, names)) == _WHOLE)]


def _names_of(foreign: ForeignFields) -> tuple[str, ...]:
    first = msgspec.json.decode(next(iter(foreign)))
    return tuple(sorted(first)) if isinstance(first, dict) else ()


def _kept(value: Any, foreign: ForeignFields) -> Any:
    """The foreign part of a value that the tenant does not have."""
    if not foreign:
        return value
    if isinstance(value, dict):
        kept = {name: _kept(value[name], part) for name, part in foreign.items() if name in value}
        return {name: each for name, each in kept.items() if each not in (None, {}, [])}
    if isinstance(value, list):
        # An item of ours ends with its own fields, whatever others added to it.
        names = _names_of(foreign)
        return [item for item in value if foreign.get(_identity(item, names)) == _WHOLE]
    return None


def _with_all(desired: Object, actual: Object, depth: int) -> Object:
    """For an object of which nothing is known to be ours: nothing is taken away."""
    made = dict(desired)
    for name, there in actual.items():
        wanted = made.get(name)
        if wanted is None:
            made[name] = there
        elif isinstance(wanted, dict) and isinstance(there, dict) and depth <= _MAX_DEPTH:
            made[name] = _with_all(wanted, there, depth + 1)
    return made
