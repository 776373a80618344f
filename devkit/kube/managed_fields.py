# SPDX-License-Identifier: Apache-2.0
"""What a fake API server records of who wrote which field: `metadata.managedFields` of updates (KEP-555).

As a real API server, it records the last writer of each field, and forgets removed fields. Fields that the
server itself sets or allocates have no writer. Lists are whole, but those whose items have keys. A real
server reads these off its schema; here they are known by their names.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from devkit.kube.storage import Object

Path = tuple[str, ...]
"""Of a field: `f:NAME` for each step, `k:{...}` for an item of a list."""

# `listMapKeys` of the kinds that we use.
_ITEM_KEYS = {
    "containers": ("name",),
    "conditions": ("type",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
    "webhooks": ("name",),
}
_CONTAINER_PORT_KEYS, _SERVICE_PORT_KEYS = ("containerPort", "protocol"), ("port", "protocol")
_KEY_DEFAULTS = {"protocol": "TCP"}

APPLY, UPDATE = "Apply", "Update"
_SERVER_FIELDS = frozenset(
    {
        *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"),
        *("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generateName"),
    }
)


def manager_of(user_agent: str) -> str:
    """The manager of a request that names none."""
    return user_agent.partition("/")[0][:128]


def note(before: Object | None, after: Object, manager: str, subresource: str = "") -> None:
    """Record a write by `manager` in `after`; `before` is None for a creation."""
    old, new = dict(leaves(before or {})), dict(leaves(after))
    changed = {path for path, value in new.items() if path not in old or old[path] != value}
    entries: list[Object] = []
    own = set(changed)
    for each in ((before or after)["metadata"].get("managedFields") or ()) if before else ():
        known = set(paths(each["fieldsV1"])) & new.keys()
        if (each["manager"], each["operation"], each.get("subresource", "")) == (
            manager,
            UPDATE,
            subresource,
        ):
            own |= known
        elif left := known - changed:
            entries.append(each | {"fieldsV1": tree(left)})
    if own:
        entries.append(entry_of(manager, UPDATE, after, own, subresource))
    after["metadata"]["managedFields"] = entries


def entry_of(manager: str, operation: str, value: Object, owned: set[Path], subresource: str = "") -> Object:
    """One entry of `managedFields`."""
    entry: Object = {
        "manager": manager,
        "operation": operation,
        "apiVersion": value.get("apiVersion", "v1"),
        "fieldsType": "FieldsV1",
        "fieldsV1": tree(owned),
    }
    return entry | ({"subresource": subresource} if subresource else {})


def leaves(value: Object) -> Iterator[tuple[Path, Any]]:
    """All fields of an object that a client may own, with their values."""
    for name, each in value.items():
        if name == "metadata":
            for field, part in each.items():
                if field not in _SERVER_FIELDS:
                    yield from _leaves_at(("f:metadata", f"f:{field}"), part)
        elif name not in ("apiVersion", "kind"):
            yield from _leaves_at((f"f:{name}",), each)


def _leaves_at(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _leaves_at((*path, f"f:{name}"), each)
        return
    keys = item_keys(path[-1].removeprefix("f:"), value)
    if keys:
        for each in value:
            yield from _leaves_at((*path, item_name(each, keys)), each)
    else:
        yield path, value


def item_keys(field: str, items: Any) -> tuple[str, ...]:
    """The fields that name each item of a list; empty for one that is whole."""
    if not isinstance(items, list) or not items or not all(isinstance(each, dict) for each in items):
        return ()
    keys: tuple[str, ...] = _ITEM_KEYS.get(field, ())
    if field == "ports":
        keys = _CONTAINER_PORT_KEYS if "containerPort" in items[0] else _SERVICE_PORT_KEYS
    return keys if all(set(keys[:1]) <= each.keys() for each in items) else ()


def item_name(item: Object, keys: Sequence[str]) -> str:
    """How a path names an item of a list."""
    found = {key: item.get(key, _KEY_DEFAULTS.get(key, "")) for key in keys}
    return f"k:{msgspec.json.encode(found).decode()}"


def paths(tree: Object, above: Path = ()) -> Iterator[Path]:
    """The fields that a `fieldsV1` names."""
    for name, below in tree.items():
        if below:
            yield from paths(below, (*above, name))
        else:
            yield (*above, name)


def tree(owned: set[Path]) -> Object:
    """The `fieldsV1` of these fields."""
    made: Object = {}
    for path in sorted(owned):
        here = made
        for name in path:
            here = here.setdefault(name, {})
    return made
