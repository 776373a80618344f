# SPDX-License-Identifier: Apache-2.0
"""Every field of what comes up, by Kubernetes' own schemas: what becomes of it.

With a new version of Kubernetes, each new field is a failing row here: say in `syncer.policy.shown_fields`
what becomes of it. Until then it stays below.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from syncer.core.objects import Object
from syncer.policy import shown_fields
from syncer.policy.shown_fields import PARTS, SHOWN, Shown, shown_part
from tests.kube_schemas.generate import OUTPUT
from tests.unit.syncer.policy.arbitrary_json import changed

_TYPES: Any = {
    str(name).rpartition(".")[2]: types for name, types in json.loads(OUTPUT.read_text())["types"].items()
}


def type_of(schema: Any) -> str:
    """The type of a field's value, or of the items of its list; empty for plain values."""
    if isinstance(schema, str):
        return ""
    ((form, below),) = schema.items()
    return str(below).rpartition(".")[2] if form == "object" else type_of(below)


def _rows() -> Iterator[tuple[str, str]]:
    waiting, seen = list(PARTS), set[str]()
    while waiting:
        type_name = waiting.pop()
        if type_name in seen:
            continue
        seen.add(type_name)
        for name, schema in _TYPES[type_name].items():
            yield type_name, name
            field = SHOWN.get(type_name, {}).get(name)
            if field is not None and field.type_name:
                assert field.type_name == type_of(schema)
                waiting.append(field.type_name)


ROWS = sorted(_rows())


@pytest.mark.parametrize(("type_name", "name"), ROWS, ids=lambda each: each)
def test_each_field_has_a_verdict(type_name: str, name: str) -> None:
    field = SHOWN.get(type_name, {}).get(name)
    assert field is not None, f"{type_name}.{name} is new: what becomes of it?"
    # Of what is made field by field, and of what is left out, no type is gone into without need.
    is_whole = field.verdict is not Shown.COPIED or not type_of(_TYPES[type_name][name])
    assert is_whole or field.type_name, f"{type_name}.{name} would come up whole, whatever it has"


def test_no_verdict_is_of_a_field_that_is_gone() -> None:
    assert {(type_name, name) for type_name, found in SHOWN.items() for name in found} == set(ROWS)
    for notes in (shown_fields.MAPPED, shown_fields.LEFT_OUT):
        assert {tuple(path.split(".")) for path in notes} <= set(ROWS)
    assert not shown_fields.MAPPED.keys() & shown_fields.LEFT_OUT.keys()


def _whole(type_name: str, schema_types: Any = _TYPES) -> Object:
    """A value that has each field of a type, and an unknown one, at each depth; texts are their paths."""

    def made(schema: Any, path: str) -> Any:
        if isinstance(schema, str):
            return {"integer": 7, "boolean": True}.get(schema, path)
        ((form, below),) = schema.items()
        match form:
            case "list":
                return [made(below, path)]
            case "map":
                return {"key": made(below, path)}
            case _:
                return of(str(below).rpartition(".")[2])

    def of(name: str) -> Object:
        return {field: made(schema, f"{name}.{field}") for field, schema in schema_types[name].items()} | {
            "aNewField": "secret"
        }

    return of(type_name)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_has_what_the_table_says_and_nothing_else(part: str) -> None:
    """Each field of each object that Kubernetes' schema has, and a new one in each."""
    value = _with_known_conditions(_whole(part))
    shown = shown_part(part, value, lambda text: f"<{text}>")

    def expected(type_name: str, found: Object) -> Object:
        made: Object = {}
        for name, each in found.items():
            field = SHOWN[type_name].get(name)
            if field is None or field.verdict is Shown.LEFT_OUT:
                continue
            below = field.type_name
            if not below:
                made[name] = f"<{each}>" if "without names" in field.how else each
            else:
                made[name] = (
                    [expected(below, item) for item in each]
                    if isinstance(each, list)
                    else expected(below, each)
                )
        return made

    assert shown == expected(part, value)
    assert "aNewField" not in json.dumps(shown)


def _with_known_conditions(value: Object) -> Object:
    for condition in value.get("conditions") or ():
        condition["type"] = {"PodStatus": "Ready"}.get(
            str(condition["type"]).partition(".")[0], condition["type"]
        )
        for known in shown_fields.CONDITIONS.items():
            if str(condition["type"]).startswith(f"{known[0]}."):
                condition["type"] = min(known[1])
    return value


@pytest.mark.parametrize("part", ["PodStatus", "ServiceStatus", "PersistentVolumeClaimStatus"])
def test_conditions_of_the_super_clusters_programs_stay_below(part: str) -> None:
    value = {"conditions": [{"type": "operator.example/audit", "status": "True", "message": "rival"}]}
    assert shown_part(part, value, str) == {"conditions": []}


@pytest.mark.parametrize("kind", [[], {}, None, 7])
def test_a_condition_whose_type_is_no_text_stays_below(kind: object) -> None:
    assert shown_part("PodStatus", {"conditions": [{"type": kind, "status": "True"}]}, str) == {
        "conditions": []
    }


@given(changed(_with_known_conditions(_whole("PodStatus"))))
def test_any_json_is_shown_without_what_is_not_known(value: Object) -> None:
    if isinstance(value, dict):
        assert "aNewField" not in json.dumps(_known(shown_part("PodStatus", value, str)))


def _known(status: Object) -> Object:
    """Without plain values: nothing is gone into where a field has a value of another type."""
    return {name: each for name, each in status.items() if SHOWN["PodStatus"][name].type_name}
