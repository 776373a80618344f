# SPDX-License-Identifier: Apache-2.0
"""What a fake API server records of who wrote which field: `metadata.managedFields` of updates (KEP-555).

As a real API server, it records the last writer of each field, and forgets removed fields. Fields that the
server itself sets or allocates have no writer. Lists are whole, but the ports of Services.
"""

from collections.abc import Iterator
from typing import Any

from devkit.kube.storage import Object

_Path = tuple[str, ...]

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
    old, new = dict(_leaves(before or {})), dict(_leaves(after))
    changed = {path for path, value in new.items() if path not in old or old[path] != value}
    entries: list[Object] = []
    own = set(changed)
    for each in ((before or after)["metadata"].get("managedFields") or ()) if before else ():
        paths = set(_paths(each["fieldsV1"])) & new.keys()
        if (each["manager"], each.get("subresource", "")) == (manager, subresource):
            own |= paths
        elif left := paths - changed:
            entries.append(each | {"fieldsV1": _tree(left)})
    if own:
        entry: Object = {
            "manager": manager,
            "operation": "Update",
            "apiVersion": after.get("apiVersion", "v1"),
            "fieldsType": "FieldsV1",
            "fieldsV1": _tree(own),
        }
        entries.append(entry | ({"subresource": subresource} if subresource else {}))
    after["metadata"]["managedFields"] = entries


def _leaves(value: Object) -> Iterator[tuple[_Path, Any]]:
    for name, each in value.items():
        if name == "metadata":
            for field, part in each.items():
                if field not in _SERVER_FIELDS:
                    yield from _leaves_at(("f:metadata", f"f:{field}"), part)
        elif name not in ("apiVersion", "kind"):
            yield from _leaves_at((f"f:{name}",), each)


def _leaves_at(path: _Path, value: Any) -> Iterator[tuple[_Path, Any]]:
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _leaves_at((*path, f"f:{name}"), each)
    elif path == ("f:spec", "f:ports") and isinstance(value, list):
        for each in value:
            key = f'k:{{"port":{each.get("port")},"protocol":"{each.get("protocol", "TCP")}"}}'
            yield from _leaves_at((*path, key), each)
    else:
        yield path, value


def _paths(tree: Object, above: _Path = ()) -> Iterator[_Path]:
    for name, below in tree.items():
        if below:
            yield from _paths(below, (*above, name))
        else:
            yield (*above, name)


def _tree(paths: set[_Path]) -> Object:
    made: Object = {}
    for path in sorted(paths):
        here = made
        for name in path:
            here = here.setdefault(name, {})
    return made
