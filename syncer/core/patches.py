# SPDX-License-Identifier: Apache-2.0
"""What an object is after a patch, as the API server applies it. Pure.

A merge patch: RFC 7386. A strategic merge patch merges some lists item by item, by the merge keys of core/v1
(`patchMergeKey` in k8s.io/api), and replaces the others. Both take time in proportion to object and patch.
"""

from collections.abc import Mapping
from typing import Any

from syncer.core.objects import Object
from syncer.core.plan import Patch

# Of a Pod, by the names of the fields: no other kind is patched strategically in the super cluster.
_MERGE_KEYS: Mapping[str, str] = {
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_DIRECTIVE = "$patch"


def patched(value: Object, patch: Patch) -> Object:
    """A copy with the patch's body applied; what the patch does not touch is shared with `value`."""
    result: Object = strategic_merge(value, patch.body) if patch.is_strategic else merge(value, patch.body)
    return result


def merge(value: Any, patch: Any) -> Any:
    """Apply a JSON merge patch: null removes a field, an object is merged, all else replaces."""
    if type(patch) is not dict:
        return patch
    result: Object = dict(value) if type(value) is dict else {}
    for name, change in patch.items():
        if change is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), change)
    return result


def strategic_merge(value: Any, patch: Any) -> Any:
    """Apply a strategic merge patch. Directives are followed where a patch of ours could have them."""
    if type(patch) is not dict:
        return patch
    directive = patch.get(_DIRECTIVE)
    if directive == "delete":
        return {}
    is_merged = type(value) is dict and directive != "replace"
    result: Object = dict(value) if is_merged else {}
    for name, change in patch.items():
        if name.startswith("$"):
            continue
        if change is None:
            result.pop(name, None)
        elif type(change) is list and name in _MERGE_KEYS:
            result[name] = _merged(_MERGE_KEYS[name], result.get(name), change)
        else:
            result[name] = strategic_merge(result.get(name), change)
    return result


def _merged(key: str, value: Any, changes: list[Any]) -> list[Any]:
    """Items of a list by their merge key. Their order has no part in what a quota counts."""
    found: dict[object, Any] = {}
    is_replaced = {_DIRECTIVE: "replace"} in changes
    for at, each in enumerate(value if type(value) is list and not is_replaced else ()):
        found[_key_of(each, key, at)] = each
    for at, change in enumerate(changes):
        if change == {_DIRECTIVE: "replace"}:
            continue
        where = _key_of(change, key, len(found) + at)
        if type(change) is dict and change.get(_DIRECTIVE) == "delete":
            found.pop(where, None)
        else:
            found[where] = strategic_merge(found.get(where), change)
    return list(found.values())


def _key_of(item: Any, key: str, at: int) -> object:
    """The value of its merge key; a place of its own for an item that has none."""
    found = item.get(key) if type(item) is dict else None
    return found if type(found) in (str, int) else (at,)
