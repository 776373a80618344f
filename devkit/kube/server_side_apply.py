# SPDX-License-Identifier: Apache-2.0
"""Server-side apply of a fake API server (KEP-555).

A manager owns what its last apply had. What a later one leaves out is removed, unless another manager owns it
too. A field that another manager owns with another value is a conflict: refused, or with `force` taken over.
There is no schema: lists have keys by their names (`managed_fields`), and all maps are merged.
"""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import yaml

from devkit.kube import managed_fields
from devkit.kube.managed_fields import APPLY, Path
from devkit.kube.storage import Object, StatusError, copied

CONTENT_TYPE = "application/apply-patch+yaml"

_Entries = list[Object]


def parsed(body: bytes) -> Object:
    """What is applied. Raises StatusError 400 and 422."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            value = yaml.safe_load(body)
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
            raise StatusError(400, "BadRequest", f"error decoding YAML: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
        raise StatusError(400, "BadRequest", "the body is no object with metadata")
    found: Object = value
    if found["metadata"].get("managedFields"):
        raise StatusError(400, "BadRequest", "metadata.managedFields must be nil")
    return found


def applied(
    old: Object | None, config: Object, manager: str, *, is_forced: bool, subresource: str = ""
) -> Object:
    """The object after an apply, with its `managedFields`. Raises StatusError 409 for conflicts."""
    before: Object = {} if old is None else copied(old)
    entries: _Entries = before.get("metadata", {}).get("managedFields") or []
    own, others = _split(entries, manager, subresource)
    current, wanted = dict(managed_fields.leaves(before)), dict(managed_fields.leaves(config))
    changed = {path for path, value in wanted.items() if path not in current or current[path] != value}
    conflicts = _conflicts(others, {path for path in changed if _is_there(path, current)})
    if conflicts and not is_forced:
        raise _conflict(before, conflicts)
    after: Object = _merged(before, config, "")
    kept = {*wanted, *(path for each in others for path in managed_fields.paths(each["fieldsV1"]))}
    for path in sorted(own - kept, reverse=True):
        if not any(_overlaps(path, each) for each in kept):
            _remove(after, path, kept)
    left = [_without(each, changed) for each in others]
    entry = managed_fields.entry_of(manager, APPLY, config, set(wanted), subresource)
    after["metadata"]["managedFields"] = [each for each in left if each["fieldsV1"]] + (
        [entry] if wanted else []
    )
    return after


def _split(entries: _Entries, manager: str, subresource: str) -> tuple[set[Path], _Entries]:
    """The fields of this manager's last apply, and the entries of others."""
    own: set[Path] = set()
    others: _Entries = []
    for each in entries:
        if (each["manager"], each["operation"], each.get("subresource", "")) == (manager, APPLY, subresource):
            own |= set(managed_fields.paths(each["fieldsV1"]))
        else:
            others.append(each)
    return own, others


def _overlaps(path: Path, other: Path) -> bool:
    """Whether one is the other, or is in it."""
    shorter = min(len(path), len(other))
    return path[:shorter] == other[:shorter]


def _is_there(path: Path, current: Collection[Path]) -> bool:
    return any(_overlaps(path, each) for each in current)


def _conflicts(others: _Entries, changed: Collection[Path]) -> list[tuple[str, Path]]:
    return [
        (each["manager"], path)
        for each in others
        for path in sorted(changed)
        if any(_overlaps(path, owned) for owned in managed_fields.paths(each["fieldsV1"]))
    ]


def _conflict(value: Object, conflicts: Sequence[tuple[str, Path]]) -> StatusError:
    named = [f'conflict with "{manager}": {_printed(path)}' for manager, path in conflicts]
    count = f"{len(named)} conflict{'s' if len(named) > 1 else ''}"
    message = f"Apply failed with {count}: {', '.join(named)}"
    return StatusError(
        409,
        "Conflict",
        message,
        cause="FieldManagerConflict",
        kind=value.get("kind", ""),
        name=value["metadata"]["name"],
    )


def _printed(path: Path) -> str:
    return "".join(f".{step[2:]}" if step.startswith("f:") else f"[{step[2:]}]" for step in path)


def _without(entry: Object, taken: Collection[Path]) -> Object:
    """An entry without fields that now have another value by another manager."""
    left = {
        path
        for path in managed_fields.paths(entry["fieldsV1"])
        if not any(_overlaps(path, each) for each in taken)
    }
    return entry | {"fieldsV1": managed_fields.tree(left)}


def _merged(value: Any, config: Any, field: str) -> Any:
    if isinstance(config, dict):
        merged = dict(value) if isinstance(value, dict) else {}
        for name, each in config.items():
            merged[name] = _merged(merged.get(name), each, name)
        return merged
    keys = managed_fields.item_keys(field, config)
    if not keys or managed_fields.item_keys(field, value) != keys:
        return config
    result = list(value)
    places = {managed_fields.item_name(each, keys): at for at, each in enumerate(value)}
    for each in config:
        at = places.get(managed_fields.item_name(each, keys))
        if at is None:
            result.append(each)
        else:
            result[at] = _merged(result[at], each, "")
    return result


def _remove(value: Object, path: Path, kept: Collection[Path]) -> None:
    """Remove a field, and what is empty without it. An item of a list goes whole, with what a server set in
    it, once no manager owns a field of it."""
    for at, step in enumerate(path):
        is_item = step.startswith("k:")
        if is_item and not any(each[: at + 1] == path[: at + 1] for each in kept):
            path = path[: at + 1]
            break
    holders: list[tuple[Any, str, str]] = []
    here: Any = value
    for at, step in enumerate(path):
        field = path[at - 1].removeprefix("f:") if at else ""
        holders.append((here, step, field))
        here = _at(here, step, field)
        if here is None:
            return
    _drop(*holders[-1])
    for holder, step, field in reversed(holders[:-1]):
        if _at(holder, step, field):
            return
        _drop(holder, step, field)


def _at(holder: Any, step: str, field: str) -> Any:
    if step.startswith("f:"):
        return holder.get(step[2:]) if isinstance(holder, dict) else None
    keys = managed_fields.item_keys(field, holder)
    return next((each for each in holder or () if managed_fields.item_name(each, keys) == step), None)


def _drop(holder: Any, step: str, field: str) -> None:
    if step.startswith("f:"):
        holder.pop(step[2:], None)
        return
    keys = managed_fields.item_keys(field, holder)
    holder[:] = [each for each in holder if managed_fields.item_name(each, keys) != step]
