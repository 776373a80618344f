# SPDX-License-Identifier: Apache-2.0
"""Reads a file of sync cases, whose header explains its form, and our differences from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

DIFFERENCES = Path(__file__).with_name("differences.yaml")

_RESULTS = ("super", "tenant", "tenant_gets", "tenant_events", "every_tenant", "after")
_CASE_KEYS = frozenset({"id", "kind", "direction", "needs", "defect", "note", *_RESULTS})
_STEP_KEYS = frozenset({"do", "patch", "super", "tenant", "deletion_seen", "defect", "note"})
_DIFFERENCE_KEYS = frozenset({"id", "reason", "policy", "refused", *_RESULTS})


class SyncFileError(Exception):
    """The file does not have this format."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `expected` has the keys that may be replaced by ours: super, tenant, after and others."""

    id: str
    kind: str
    direction: str
    given: Mapping[str, Any] | None
    expected: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    has_default_policy: bool = False


@dataclass(frozen=True, slots=True)
class WorldObject:
    side: str
    kind: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SyncFile:
    vc_spec: Mapping[str, Any]
    vc: Mapping[str, str]
    namespaces: tuple[str, ...]
    objects: tuple[WorldObject, ...]
    bases: Mapping[str, Any]
    kubernetes_env: tuple[Mapping[str, Any], ...]
    super_namespaces: Mapping[str, str]
    cases: tuple[Case, ...] = field(default=())


def is_sync_file(top: object) -> bool:
    """Whether its cases have a direction."""
    cases = top.get("cases") if isinstance(top, dict) else None
    return isinstance(cases, list) and any(isinstance(each, dict) and "direction" in each for each in cases)


def read(path: Path) -> SyncFile:
    """Raises SyncFileError, which names the case."""
    try:
        top = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise SyncFileError(f"{path}: {problem}") from problem
    if not is_sync_file(top):
        raise SyncFileError(f"{path}: no case has a direction")
    world, vectors = top.get("world") or {}, top.get("vectors") or {}
    try:
        return SyncFile(
            (world.get("vc") or {}).get("spec") or {},
            vectors.get("vc") or _VC,
            tuple(world.get("namespaces") or ()),
            tuple(
                WorldObject(each["side"], each["kind"], each["object"]) for each in world.get("objects") or ()
            ),
            top.get("bases") or {},
            tuple(top.get("kubernetes_env") or ()),
            vectors.get("super_namespaces") or {},
            tuple(_case(each, path) for each in top["cases"]),
        )
    except (AttributeError, KeyError, TypeError) as problem:
        raise SyncFileError(f"{path}: {type(problem).__name__} {problem}") from problem


_VC = {"namespace": "vcs", "name": "tenant-00", "uid": "07ec5e88-636d-4397-8319-8643864ff609"}


def _case(entry: Mapping[str, Any], path: Path) -> Case:
    name = f"{path}: case {entry.get('id')}"
    _check_keys(entry, _CASE_KEYS, name)
    for step in entry.get("after") or ():
        _check_keys(step, _STEP_KEYS, name)
    direction = entry["direction"]
    if direction not in ("down", "up"):
        raise SyncFileError(f"{name}: direction {direction!r}")
    given = entry["tenant" if direction == "down" else "super"]
    expected = {key: entry[key] for key in _RESULTS if key in entry}
    return Case(entry["id"], entry["kind"], direction, given, expected, tuple(entry.get("needs") or ()))


def _check_keys(entry: Mapping[str, Any], known: frozenset[str], name: str) -> None:
    if unknown := sorted(set(entry) - known):
        raise SyncFileError(f"{name}: unknown keys {', '.join(unknown)}")


@dataclass(frozen=True, slots=True)
class Everywhere:
    """A field that is not compared in any case of a kind. The last part of `path` is a pattern."""

    kind: str
    path: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Differences:
    """What we make otherwise: by case, and in all cases of a kind."""

    cases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    everywhere: tuple[Everywhere, ...] = ()


def differences(path: Path = DIFFERENCES) -> Differences:
    """Read the file of differences; each has a reason."""
    found: dict[str, Mapping[str, Any]] = {}
    top = yaml.safe_load(path.read_text(encoding="utf-8"))
    everywhere = tuple(
        Everywhere(each["kind"], tuple(each["path"]), each["reason"]) for each in top["everywhere"]
    )
    for entry in top["cases"]:
        _check_keys(entry, _DIFFERENCE_KEYS, f"{path}: {entry.get('id')}")
        if not entry.get("reason") or entry["id"] in found:
            raise SyncFileError(f"{path}: {entry['id']} has no reason, or is there twice")
        found[entry["id"]] = entry
    return Differences(found, everywhere)


def with_difference(case: Case, entry: Mapping[str, Any]) -> Case:
    """The case with our results in the place of the recorded ones.

    An object of the form `{with: patch}` is a merge patch of the recorded one. A step that is null is as
    recorded, and so are steps that are not there.
    """
    expected = dict(case.expected)
    for key in ("super", "tenant", "tenant_gets", "tenant_events", "every_tenant", "refused"):
        if key not in entry:
            continue
        value = entry[key]
        if isinstance(value, dict) and set(value) == {"with"}:
            recorded = dict(case.expected[key])
            if "base" in recorded:
                value = recorded | {
                    "with": merged(recorded.get("with") or {}, value["with"], keeps_null=True)
                }
            else:
                value = merged(recorded, value["with"])
        expected[key] = value
    if "after" in entry:
        steps = list(case.expected["after"])
        for index, step in enumerate(entry["after"]):
            if step is not None:
                steps[index] = {**steps[index], **step}
        expected["after"] = steps
    return replace(with_policy(case, entry), expected=expected)


def with_policy(case: Case, entry: Mapping[str, Any]) -> Case:
    """The case under the policy that the difference names."""
    return replace(case, has_default_policy=entry.get("policy") == "default")


def merged(value: Any, patch: Any, *, keeps_null: bool = False) -> Any:
    """The JSON merge patch applied. With `keeps_null` both are patches, and the result is theirs in a row."""
    if not isinstance(patch, dict):
        return patch
    found = dict(value) if isinstance(value, dict) else {}
    for name, field_value in patch.items():
        if field_value is None and not keeps_null:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), field_value, keeps_null=keeps_null)
    return found
