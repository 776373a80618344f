# SPDX-License-Identifier: Apache-2.0
"""Every field of the kinds that go down, by Kubernetes' own schemas: what becomes of it.

The schemas are those of the Kubernetes that the tests run (`python3 -m tests.kube_schemas.generate`). With a
new version, each new field is a failing row here: say in `syncer.policy.fields` what becomes of it.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.kinds.custom_resource import CustomResource
from syncer.kinds.table import kinds
from syncer.policy import document, fields, patterns, unknown_fields
from syncer.policy.fields import FIELDS, KINDS, FieldVerdict
from syncer.policy.sync_policy import NO_NAMES, SyncPolicy
from tests.kube_schemas.generate import OUTPUT
from tests.unit.syncer.kinds.objects import created, plan, tenant_object
from tests.unit.syncer.policy.arbitrary_json import are_refusals, changed

_SCHEMAS: Any = json.loads(OUTPUT.read_text())
# Whose content is not gone into: the API server's own records, and what comes up.
_WHOLE = ("status", "managedFields", "ownerReferences")


def _type_of(schema: Any) -> str:
    if isinstance(schema, str):
        return ""
    ((form, below),) = schema.items()
    return str(below).rpartition(".")[2] if form == "object" else _type_of(below)


def _rows() -> Iterator[tuple[str, str, str]]:
    """(type, field, type of its value) of all that the kinds reach."""
    names = {str(name).rpartition(".")[2]: types for name, types in _SCHEMAS["types"].items()}
    # Of two types with one name, as EndpointPort, the fields are the same.
    seen: set[str] = set()
    waiting = list(KINDS)
    while waiting:
        type_name = waiting.pop()
        if type_name in seen:
            continue
        seen.add(type_name)
        for name, schema in names[type_name].items():
            below = "" if name in _WHOLE else _type_of(schema)
            yield type_name, name, below
            if below:
                waiting.append(below)


ROWS = list(_rows())


@pytest.mark.parametrize(("type_name", "name", "below"), ROWS, ids=lambda each: each)
def test_each_field_has_a_verdict(type_name: str, name: str, below: str) -> None:
    assert name in FIELDS.get(type_name, {}), f"{type_name}.{name} is new: what becomes of it?"
    assert FIELDS[type_name][name].type_name == below


def test_no_verdict_is_of_a_field_that_is_gone() -> None:
    rows = {(type_name, name) for type_name, name, _ in ROWS}
    assert {(type_name, name) for type_name, found in FIELDS.items() for name in found} == rows
    for notes in (fields.CHANGED, fields.JUDGED, fields.STAYS):
        for path in notes:
            if path.rpartition(".")[2] != "status":
                assert tuple(path.split(".")) in rows, path


def test_types_of_one_name_have_the_same_fields() -> None:
    by_name: dict[str, list[str]] = {}
    for name in _SCHEMAS["types"]:
        by_name.setdefault(str(name).rpartition(".")[2], []).append(name)
    for name in FIELDS:
        one, *others = by_name[name]
        assert all(_SCHEMAS["types"][each] == _SCHEMAS["types"][one] for each in others), name


def test_each_kind_that_goes_down_has_its_fields() -> None:
    """But for custom resources, for whose fields the operator answers who has them synced."""
    up = {"CustomResourceDefinition", "Event", "IngressClass", "PersistentVolume", "PriorityClass"}
    up |= {"RuntimeClass", "StorageClass"}
    every = kinds(["ingress"], [CustomResource("a.example", "v1", "widgets", "Widget")])
    assert {each.kind.kind for each in every} - up - set(KINDS) == {"Widget"}


def test_what_is_refused_names_the_field_that_allows_it() -> None:
    known = {
        f"{section}.{name}" for section, (_, _, parsers) in document.SECTIONS.items() for name in parsers
    }
    for type_name, found in FIELDS.items():
        for name, field in found.items():
            named = re.findall(r"`([a-z][A-Za-z]*\.[A-Za-z]+)`", field.how)
            if field.verdict is FieldVerdict.JUDGED:
                assert field.how, (type_name, name)
                assert named or "never" in field.how or "alone" in field.how, (type_name, name)
            assert {each for each in named if not each.startswith("metadata.")} <= known, (type_name, name)


@pytest.mark.parametrize(("type_name", "name", "below"), ROWS, ids=lambda each: each)
def test_a_field_that_is_not_known_is_refused_wherever_it_is(type_name: str, name: str, below: str) -> None:
    """In each object of each kind; here in one of this type."""
    kind, path = _way_to(type_name)
    value: Object = {"aNewField": 1}
    for step in reversed(path):
        value = {step: [value]} if _is_list(step) else {step: value}
    found = unknown_fields.refusals(kind, value, NO_NAMES)
    assert [each.path.rpartition(".")[2] for each in found] == ["aNewField"]
    plain = ".".join([kind, *path, "aNewField"])
    assert unknown_fields.refusals(kind, value, patterns.of(plain)) == ()


def _is_list(step: str) -> bool:
    return step in ("containers", "volumes", "subsets", "endpoints", "rules", "ports")


def _way_to(type_name: str) -> tuple[str, list[str]]:
    """A kind, and the fields by which an object of the type is reached."""
    for kind in KINDS:
        waiting: list[tuple[str, list[str]]] = [(kind, [])]
        seen = set()
        while waiting:
            here, path = waiting.pop(0)
            if here == type_name:
                return kind, path
            if here in seen:
                continue
            seen.add(here)
            waiting += [
                (field.type_name, [*path, name]) for name, field in FIELDS[here].items() if field.type_name
            ]
    raise AssertionError(type_name)


def test_the_refusal_says_what_allows_it() -> None:
    value = {"spec": {"containers": [{"name": "c", "aNewField": {}}]}}
    assert unknown_fields.refusals("Pod", value, NO_NAMES) == (
        Refusal(
            "spec.containers[0].aNewField",
            "a field that is not known here: SyncPolicy field spec.fields.allowed does not allow it",
        ),
    )


def test_what_stays_does_not_go_down() -> None:
    """Of the metadata and the specification of kinds that need no more than this to go down."""
    for kind in ("ConfigMap", "NetworkPolicy", "Secret", "Service", "ServiceAccount"):
        sync = next(each for each in kinds([]) if each.kind.kind == kind)
        for type_name, path in ((kind, ()), ("ObjectMeta", ("metadata",)), (f"{kind}Spec", ("spec",))):
            for name, field in FIELDS.get(type_name, {}).items():
                if field.verdict is not FieldVerdict.STAYS or name in ("uid", "deletionTimestamp"):
                    continue
                own = tenant_object(kind)
                place = own
                for step in path:
                    place = place.setdefault(step, {})
                place[name] = [{}]
                made = created(plan(sync, own, None))
                for step in path:
                    made = made.get(step) or {}
                assert name not in made, (kind, name)


def test_what_is_allowed_goes_down_as_it_is() -> None:
    for kind, skipped in (("Service", ()), ("NetworkPolicy", ()), ("ConfigMap", ()), ("Secret", ())):
        sync = next(each for each in kinds([]) if each.kind.kind == kind)
        where = ("spec",) if f"{kind}Spec" in FIELDS else ()
        for name, field in FIELDS[f"{kind}Spec" if where else kind].items():
            if (
                field.verdict is not FieldVerdict.ALLOWED
                or field.type_name
                or name in (*skipped, "kind", "apiVersion")
            ):
                continue
            own = tenant_object(kind)
            place = own
            for step in where:
                place = place.setdefault(step, {})
            place[name] = "x"
            made = created(plan(sync, own, None))
            for step in where:
                made = made[step]
            assert made[name] == "x", (kind, name)


@given(changed({"spec": {"containers": [{"env": [{"valueFrom": {"fieldRef": {"a": 1}}}]}]}, "metadata": {}}))
def test_any_json_is_judged(value: Object) -> None:
    assert are_refusals(unknown_fields.refusals("Pod", value, NO_NAMES))


def test_the_policy_allows_no_unknown_field_by_default() -> None:
    assert SyncPolicy().fields.allowed == NO_NAMES
