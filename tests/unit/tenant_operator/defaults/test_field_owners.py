# SPDX-License-Identifier: Apache-2.0
"""Fields that others own are left out of what is applied."""

import pytest

from tenant_operator.defaults.field_owners import (
    has_fields,
    is_applied_by_us,
    is_released,
    without_taken_fields,
)
from tenant_operator.model.objects import OPERATOR, Object

MANIFEST: Object = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "a", "namespace": "b", "labels": {"x": "1", "y": "2"}},
    "spec": {
        "replicas": 1,
        "template": {
            "spec": {
                "containers": [
                    {"name": "one", "image": "i", "args": ["-v"], "ports": [{"containerPort": 53}]},
                    {"name": "two", "image": "i"},
                ]
            }
        },
    },
}


def owned(fields: object, manager: str = "kubectl-edit", **entry: object) -> Object:
    return {"metadata": {"managedFields": [{"manager": manager, "fieldsV1": fields, **entry}]}}


def containers(*fields: object) -> Object:
    names = ("one", "two")
    owners = {f'k:{{"name":"{name}"}}': each for name, each in zip(names, fields, strict=False)}
    return {"f:spec": {"f:template": {"f:spec": {"f:containers": owners}}}}


def changed(**containers_: Object) -> Object:
    spec = {"containers": [{"name": name, **each} for name, each in containers_.items()]}
    return {**MANIFEST, "spec": {"replicas": 1, "template": {"spec": spec}}}


ONE: Object = {"image": "i", "args": ["-v"], "ports": [{"containerPort": 53}]}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, MANIFEST),
        ({"f:spec": {"f:replicas": {}}}, {**MANIFEST, "spec": {"template": MANIFEST["spec"]["template"]}}),
        ({"f:spec": {}}, {key: each for key, each in MANIFEST.items() if key != "spec"}),
        (
            {"f:metadata": {"f:labels": {".": {}, "f:x": {}, "f:z": {}}}},
            {**MANIFEST, "metadata": {"name": "a", "namespace": "b", "labels": {"y": "2"}}},
        ),
        ({"f:metadata": {"f:labels": {".": {}}}}, MANIFEST),
        (
            {"f:metadata": {"f:labels": {"f:x": {}, "f:y": {}}, "f:name": {}}},
            {**MANIFEST, "metadata": {"name": "a", "namespace": "b"}},
        ),
        (
            containers({".": {}, "f:image": {}, "f:name": {}}),
            changed(one={**ONE, "image": None}, two={"image": "i"}),
        ),
        (containers({"f:args": {}}, {"f:image": {}}), changed(one={**ONE, "args": None}, two={})),
        (
            containers(
                {"f:ports": {'k:{"containerPort":53,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}}}
            ),
            MANIFEST,
        ),
        ({"f:spec": {"f:template": 3, "f:replicas": []}}, MANIFEST),
        (containers("no map"), MANIFEST),
        (
            {"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:[": {}, "k:3": {}, "v:1": {}}}}}},
            MANIFEST,
        ),
    ],
)
def test_fields_of_others_are_left_out(fields: object, expected: Object) -> None:
    for each in expected.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ()):
        for key in [key for key, value in each.items() if value is None]:
            del each[key]
    assert without_taken_fields(MANIFEST, owned(fields)) == expected


@pytest.mark.parametrize("manager", [OPERATOR, "vc-syncer"])
def test_fields_of_our_own_stay(manager: str) -> None:
    assert without_taken_fields(MANIFEST, owned({"f:spec": {}}, manager)) == MANIFEST


def test_values_of_a_set_are_left_out() -> None:
    manifest = {**MANIFEST, "metadata": {"name": "a", "finalizers": ["x", "y"]}}
    found = without_taken_fields(manifest, owned({"f:metadata": {"f:finalizers": {'v:"x"': {}}}}))
    assert found["metadata"] == {"name": "a", "finalizers": ["y"]}


@pytest.mark.parametrize("live", [{}, {"metadata": 3}, {"metadata": {"managedFields": 3}}, owned(3)])
def test_broken_records_own_nothing(live: Object) -> None:
    assert without_taken_fields(MANIFEST, live) == MANIFEST
    assert not is_applied_by_us(live)
    assert not is_released(live)


MARK: Object = {"f:metadata": {"f:annotations": {".": {}, "f:vcnode.io/managed": {}}}}


def managed(*entries: tuple[str, str, object, str]) -> Object:
    return {
        "metadata": {
            "managedFields": [
                {"manager": manager, "operation": operation, "fieldsV1": fields, "subresource": subresource}
                for manager, operation, fields, subresource in entries
            ]
        }
    }


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(OPERATOR, "Apply", {"f:data": {}}, "")], True),
        ([(OPERATOR, "Apply", MARK, "")], True),
        ([(OPERATOR, "Apply", {}, "")], True),
        ([(OPERATOR, "Update", {"f:data": {}}, "")], False),
        ([("helm", "Apply", {"f:data": {}}, "")], False),
        ([(OPERATOR, "Apply", {"f:data": {}}, ""), ("helm", "Apply", {"f:spec": {}}, "")], True),
        ([(OPERATOR, "Apply", {"f:metadata": {"f:labels": {}}}, ""), ("helm", "Apply", {}, "")], True),
        # Only the mark is left of ours.
        ([(OPERATOR, "Apply", MARK, ""), ("helm", "Apply", {"f:data": {}}, "")], False),
        ([("helm", "Apply", {"f:data": {}}, ""), (OPERATOR, "Apply", MARK, "")], False),
        ([(OPERATOR, "Apply", MARK, ""), ("kube-controller-manager", "Update", {}, "status")], True),
        ([(OPERATOR, "Apply", MARK, ""), ("vc-syncer", "Update", {"f:spec": {}}, "")], True),
    ],
)
def test_an_apply_of_ours_is_known(entries: list[tuple[str, str, object, str]], expected: bool) -> None:
    assert is_applied_by_us(managed(*entries)) == expected


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [({"vcnode.io/managed": "false"}, True), ({"vcnode.io/managed": "true"}, False), (3, False)],
)
def test_an_annotation_takes_an_object_over(annotations: object, expected: bool) -> None:
    assert is_released({"metadata": {"annotations": annotations}}) == expected


def test_identity_alone_is_no_field() -> None:
    identity = {"apiVersion": "v1", "kind": "A", "metadata": {"name": "a", "namespace": "b"}}
    assert not has_fields(identity)
    marked = {"name": "a", "annotations": {"vcnode.io/managed": "true"}}
    assert not has_fields({**identity, "metadata": marked})
    assert has_fields({**identity, "metadata": {**marked, "annotations": {"other": "a"}}})
    assert has_fields({**identity, "data": {}})
    assert has_fields({**identity, "metadata": {"name": "a", "labels": {"a": "b"}}})
