# SPDX-License-Identifier: Apache-2.0
"""Paths of objects by kind: Kubernetes' own, and those that a list defines."""

import pytest

from daemonkit.kube.resources import Resource
from tenant_operator.defaults.kinds import TenantRef, kinds_of, ref_in
from tenant_operator.model.objects import Object

CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [{"name": "v1"}, {"name": "v2"}],
    },
}


def manifest(api_version: object, kind: object, **metadata: object) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (manifest("v1", "ConfigMap", name="a", namespace="b"), TenantRef("v1", "ConfigMap", "b", "a")),
        (manifest("v1", "ConfigMap", name="a"), TenantRef("v1", "ConfigMap", "default", "a")),
        (manifest("v1", "Namespace", name="a", namespace="b"), TenantRef("v1", "Namespace", "", "a")),
        (
            manifest("rbac.authorization.k8s.io/v1", "ClusterRole", name="a:b"),
            TenantRef("rbac.authorization.k8s.io/v1", "ClusterRole", "", "a:b"),
        ),
        (
            manifest("example.com/v2", "Widget", name="a"),
            TenantRef("example.com/v2", "Widget", "default", "a"),
        ),
        (CRD, TenantRef("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.example.com")),
        ({"kind": "ConfigMap", "metadata": {"name": "a"}}, "it lacks apiVersion, kind or metadata"),
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": 3}, "it lacks apiVersion, kind or metadata"),
        (manifest("v1", "ConfigMap", name="../x"), "metadata.name of a ConfigMap is not a name"),
        (manifest("v1", "ConfigMap", name="a/b"), "metadata.name of a ConfigMap is not a name"),
        (manifest("v1", "ConfigMap", name=3), "metadata.name of a ConfigMap is not a name"),
        (manifest("v1", "ConfigMap", generateName="a"), "metadata.name of a ConfigMap is not a name"),
        (
            manifest("v1", "ConfigMap", name="a", namespace="b/c"),
            "metadata.namespace of ConfigMap a is not a name",
        ),
        (
            manifest("example.com/v3", "Widget", name="a"),
            "kind Widget of example.com/v3 is unknown: put its CustomResourceDefinition into the same list",
        ),
        (
            manifest("v1", "List", name="a"),
            "kind List of v1 is unknown: put its CustomResourceDefinition into the same list",
        ),
    ],
)
def test_manifests_name_their_object(value: Object, expected: TenantRef | str) -> None:
    assert ref_in(value, kinds_of([CRD])) == expected


def test_kinds_have_their_paths() -> None:
    found = kinds_of([CRD])
    assert found["example.com/v2", "Widget"] == Resource("example.com", "v2", "widgets")
    assert found["v1", "Secret"].path("a", "b") == "/api/v1/namespaces/a/secrets/b"
    assert found["apps/v1", "Deployment"].path("a", "b") == "/apis/apps/v1/namespaces/a/deployments/b"
    assert found["v1", "Namespace"].path(None, "b") == "/api/v1/namespaces/b"


@pytest.mark.parametrize(
    "spec",
    [
        None,
        [],
        {},
        {**CRD["spec"], "group": "../x"},
        {**CRD["spec"], "names": None},
        {**CRD["spec"], "names": {"kind": "Widget", "plural": "a/b"}},
        {**CRD["spec"], "versions": None},
        {**CRD["spec"], "versions": [None, {"name": 3}, {"name": "v1/x"}]},
    ],
)
def test_a_broken_definition_defines_nothing(spec: object) -> None:
    assert kinds_of([{**CRD, "spec": spec}]) == kinds_of([])
