# SPDX-License-Identifier: Apache-2.0
"""What is kept of an object of the tenant until its pass has ended: what `plan` looks at, and no more.

Its API server may answer anything, and megabytes of it for each object of the list.
"""

from typing import Any

from tenant_operator.defaults.desired import DesiredObject, is_definition
from tenant_operator.defaults.field_owners import kept_metadata
from tenant_operator.defaults.kinds import TenantRef
from tenant_operator.model.objects import Object

_TEXTS = ("uid", "resourceVersion", "deletionTimestamp")
_MAX_TEXT = 253


def kept(ref: TenantRef, value: Object, desired: DesiredObject | None) -> Object | None:
    """The object, for a plan in which it is desired so, or has left the list; None if it is no object.

    The plan is the same with it. An object has a UID and a version of some length.
    """
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        return None
    texts = {key: metadata.get(key) or "" for key in _TEXTS}
    if not all(
        isinstance(each, str) and len(each) <= _MAX_TEXT and each.isprintable() for each in texts.values()
    ):
        return None
    found: Object = {}
    if desired is not None and desired.is_essential:
        found = _shared(value, desired.manifest)
    found["metadata"] = {
        **(found.get("metadata") or {}),
        **texts,
        **kept_metadata(value, None if desired is None else desired.manifest),
    }
    if is_definition(ref):
        found["status"] = {"conditions": _established(value)}
    return found


def is_established(definition: Object | None) -> bool:
    """Whether a CustomResourceDefinition is served."""
    return bool(_established(definition or {}))


def _established(definition: Object) -> list[Object]:
    status = definition.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    wanted = {"type": "Established", "status": "True"}
    return [
        wanted
        for each in (conditions if isinstance(conditions, list) else ())
        if isinstance(each, dict) and all(each.get(key) == value for key, value in wanted.items())
    ][:1]


def _shared(live: Any, desired: Any) -> Any:
    """What is desired and there, by the manifest's values; where it is not, another value."""
    if isinstance(desired, dict) and isinstance(live, dict):
        return {key: _shared(live[key], each) for key, each in desired.items() if key in live}
    if isinstance(desired, list) and isinstance(live, list) and len(desired) == len(live):
        return list(map(_shared, live, desired))
    if not isinstance(desired, dict | list) and live == desired:
        return desired
    return False if desired is None else None
