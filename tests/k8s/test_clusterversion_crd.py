# SPDX-License-Identifier: Apache-2.0
"""The shipped definition of ClusterVersions on a real apiserver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.k8s.ring import virtual_clusters
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.processes import RingError
from tests.k8s.ring.tenants import RingTenant

_PATH = f"/apis/{virtual_clusters.GROUP}/clusterversions"
_IMAGES = {"apiServer": "apiserver:v1.34.4", "controllerManager": "kcm:v1.34.4", "etcd": "etcd:v3.7.3"}
_LEAST: JsonObject = {"kubernetesVersion": "1.34.4", "images": _IMAGES}
_SIZES = {
    "apiServer": {"replicas": 1, "cpu": "100m", "memory": "320Mi", "goGC": 40, "goMemoryLimit": "200MiB"},
    "controllerManager": {
        "replicas": 1,
        "cpu": "20m",
        "memory": "96Mi",
        "goGC": 40,
        "goMemoryLimit": "60MiB",
    },
    "etcd": {
        "replicas": 1,
        "cpu": "20m",
        "memory": "96Mi",
        "goGC": 40,
        "goMemoryLimit": "",
        "quotaBytes": 512 << 20,
    },
}
_WHOLE = {
    **_LEAST,
    "etcdVersion": "3.7.3",
    "images": {**_IMAGES, "kine": "kine:0.17.5", "signer": "signer:1", "backup": "backup:1"},
    "datastore": {"type": "etcd", "storageClassName": "fast", "size": "2Gi", "secretName": ""},
    "upgradesFrom": ["v1.33"],
    "defaultClass": "small",
    "classes": {"small": _SIZES},
    "apiServerArgs": {"goaway-chance": "0.001"},
    "controllerManagerArgs": {"concurrent-deployment-syncs": "1"},
    "auditPolicy": {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]},
    "authenticationConfig": {"jwt": [{"issuer": {"url": "https://issuer.example"}}]},
    "defaults": [{"configMap": "defaults-small"}],
    "addedLater": {"deep": [1]},
}
_BUNDLE = {
    "metadata": {"name": "apiserver"},
    "statefulset": {"spec": {"replicas": 1, "template": {"spec": {"containers": [{"image": "a:v1.34.4"}]}}}},
    "service": {"spec": {"type": "NodePort"}},
}
_LIMITS: list[tuple[str, list[Any], list[Any]]] = [
    (
        "kubernetesVersion",
        ["1.34.4", "v1.34.4", "1.0.0", "1.9999.9999"],
        ["", "1.34", "2.0.0", "1.34.4-rc.1", "1.34.x", "1.34.4\n", 1.34],
    ),
    ("etcdVersion", ["3.7.3", "v3.5.28"], ["", "3.7", "4.0.0", "3.7.3-0"]),
    ("images.apiServer", ["a" * 500], ["", "a" * 501, 1]),
    ("images.controllerManager", ["a" * 500], ["", "a" * 501]),
    ("images.signer", ["", "a" * 500], ["a" * 501]),
    ("images.backup", ["", "a" * 500], ["a" * 501]),
    ("datastore.type", ["etcd"], ["", "mysql", "Etcd"]),
    ("datastore.size", ["1Mi", "100Gi", "2T"], ["", "0Gi", "2", "2Ki", "2.5Gi", "-1Gi", 2]),
    ("datastore.storageClassName", ["s" * 253], ["s" * 254]),
    ("upgradesFrom", [[], ["v"] * 64, ["v" * 253]], [["v"] * 65, [""], ["v" * 254], "v1.33"]),
    ("defaultClass", ["", "small"], ["big", "A", "s" * 64]),
    ("classes", [{}, {"small": {}}, {f"c{n}": {} for n in range(31)} | {"small": {}}], [{"big": {}}, []]),
    ("classes.small.apiServer.replicas", [1, 9], [0, 10, "1"]),
    ("classes.small.controllerManager.replicas", [1, 3], [0, 4]),
    ("classes.small.etcd.replicas", [1, 3], [0, 2, 5]),
    (
        "classes.small.apiServer.cpu",
        ["1m", "999999m", "1", "999", "0.5", "1.250"],
        ["", "0", "0m", "1000", "1.5m", "half", "-1", 1],
    ),
    (
        "classes.small.etcd.memory",
        ["1Mi", "320Mi", "99999999Gi", "1G"],
        ["", "0Mi", "320", "320mb", "320MiB", "-1Mi", 320],
    ),
    ("classes.small.apiServer.goGC", [0, 1000], [-1, 1001, "40"]),
    ("classes.small.apiServer.goMemoryLimit", ["", "140MiB", "140Mi", "1Gi"], ["140", "140MB", "0MiB"]),
    ("classes.small.etcd.quotaBytes", [64 << 20, 8 << 30], [(64 << 20) - 1, (8 << 30) + 1, "1Gi"]),
    (
        "apiServerArgs",
        [{}, {"a": ""}, {"v": "4" * 4096}, {f"f-{n}": "" for n in range(64)}],
        [{"--v": "4"}, {"V": "4"}, {"v": "4" * 4097}, {"v": 4}, {f"f-{n}": "" for n in range(65)}],
    ),
    ("controllerManagerArgs", [{"v": "4"}], [{"--v": "4"}, {"": "4"}, {"v": 4}]),
    ("auditPolicy", [{}, {"rules": []}], ["Metadata", []]),
    ("authenticationConfig", [{}, {"jwt": []}], ["https://issuer.example", []]),
    (
        "defaults",
        [[], [{"configMap": "a"}] * 32],
        [[{"configMap": "a"}] * 33, [{}], ["a"], [{"configMap": ""}]],
    ),
]


@pytest.fixture(scope="module")
def api(acme: RingTenant) -> Iterator[KubernetesApi]:
    virtual_clusters.install(acme.api, "clusterversions.yaml")
    try:
        yield acme.api
    finally:
        virtual_clusters.uninstall(acme.api, "clusterversions.yaml")


@pytest.fixture
def one(api: KubernetesApi) -> Iterator[str]:
    yield f"{_PATH}/one"
    api.delete(f"{_PATH}/one")


def _create(api: KubernetesApi, spec: JsonObject, *, is_dry: bool = True) -> JsonObject:
    query = "?fieldValidation=Strict" + ("&dryRun=All" if is_dry else "")
    return api.create(
        _PATH + query,
        {
            "apiVersion": virtual_clusters.GROUP,
            "kind": "ClusterVersion",
            "metadata": {"name": "one"},
            "spec": spec,
        },
    )


def _with(place: str, value: Any) -> JsonObject:
    """The least spec with this value at a place below it."""
    spec: JsonObject = json.loads(json.dumps(_LEAST))
    *parents, last = place.split(".")
    at = spec
    for each in parents:
        at = at.setdefault(each, {})
    at[last] = value
    return spec


def test_the_definition_is_structural_and_accepted(api: KubernetesApi) -> None:
    definition = api.get(f"{virtual_clusters.CRDS}/clusterversions.tenancy.x-k8s.io")
    conditions = {each["type"]: each["status"] for each in definition["status"]["conditions"]}
    assert (conditions["Established"], conditions["NamesAccepted"]) == ("True", "True")
    assert "NonStructuralSchema" not in conditions
    resources = {each["name"]: each for each in api.get(f"/apis/{virtual_clusters.GROUP}")["resources"]}
    assert resources.keys() == {"clusterversions", "clusterversions/status"}
    plural = resources["clusterversions"]
    assert (plural["kind"], plural["shortNames"], plural["namespaced"]) == ("ClusterVersion", ["cv"], False)


def test_every_field_is_kept(api: KubernetesApi) -> None:
    assert _create(api, _WHOLE)["spec"] == _WHOLE


def test_a_class_has_measured_sizes_where_it_gives_none(api: KubernetesApi) -> None:
    made = _create(api, {**_LEAST, "classes": {"small": {}, "big": {"apiServer": {"replicas": 3}}}})
    big = {**_SIZES, "apiServer": {**_SIZES["apiServer"], "replicas": 3}}
    assert made["spec"]["classes"] == {"small": _SIZES, "big": big}


def test_bundles_of_upstream_are_kept(api: KubernetesApi) -> None:
    spec = {"apiServer": _BUNDLE, "controllerManager": _BUNDLE, "etcd": _BUNDLE}
    assert _create(api, spec)["spec"] == spec


@pytest.mark.parametrize(("place", "good", "bad"), _LIMITS, ids=[each[0] for each in _LIMITS])
def test_each_field_at_its_limits_and_beyond(
    api: KubernetesApi, place: str, good: list[Any], bad: list[Any]
) -> None:
    """A refusal names the field; what is refused and what is not are the two lists, whole."""
    refused = {}
    for value in [*good, *bad]:
        try:
            _create(api, _with(place, value))
        except RingError as error:
            refused[json.dumps(value)] = str(error)
    assert list(refused) == [json.dumps(value) for value in bad]
    # A default class that is not in the classes is refused at defaultClass.
    at = ("spec.classes", "spec.defaultClass") if place == "classes" else (f"spec.{place}",)
    assert [
        text for text in refused.values() if ": 422 " not in text or not any(each in text for each in at)
    ] == []


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "give either images, or upstream's bundles"),
        ({"kubernetesVersion": "1.34.4"}, "give either images, or upstream's bundles"),
        ({**_LEAST, "apiServer": _BUNDLE}, "give either images, or upstream's bundles"),
        ({"images": _IMAGES}, "spec.kubernetesVersion: .*is required"),
        ({**_LEAST, "images": {"apiServer": "a"}}, "spec.images.controllerManager: Required"),
        (
            {**_LEAST, "images": {"apiServer": "a", "controllerManager": "b"}},
            "spec.images: .*etcd is required",
        ),
        ({**_LEAST, "datastore": {"type": "kine-sqlite"}}, "spec.images: .*kine is required"),
        ({**_LEAST, "datastore": {"type": "shared-etcd"}}, "spec.datastore.secretName: .*is required"),
        (
            {**_LEAST, "datastore": {"type": "kine-postgresql", "secretName": ""}},
            "spec.datastore.secretName: .*is required",
        ),
        ({**_LEAST, "classes": {"big": {}}}, "spec.defaultClass: .*is not in classes"),
        ({**_LEAST, "defaultClass": "big"}, "spec.defaultClass: .*is not in classes"),
    ],
)
def test_specs_that_cannot_work(api: KubernetesApi, spec: JsonObject, words: str) -> None:
    with pytest.raises(RingError, match=f": 422 .*{words}"):
        _create(api, spec)


@pytest.mark.parametrize(
    "spec",
    [
        {**_LEAST, "datastore": {"type": "kine-sqlite"}, "images": {**_IMAGES, "kine": "k", "etcd": ""}},
        {**_LEAST, "datastore": {"type": "shared-etcd", "secretName": "s"}},
        {**_LEAST, "classes": {"big": {}, "small": {}}, "defaultClass": "big"},
        {"kubernetesVersion": "1.34.4", "apiServer": _BUNDLE},
    ],
)
def test_specs_that_can_work(api: KubernetesApi, spec: JsonObject) -> None:
    _create(api, spec)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kubernetesVersion": "1.35.0"}, "spec.kubernetesVersion: .*make another ClusterVersion"),
        ({"kubernetesVersion": "1.3.0"}, "spec.kubernetesVersion: .*make another ClusterVersion"),
        ({"kubernetesVersion": "v1.34.9"}, ""),
        (
            {"datastore": {"type": "shared-etcd", "secretName": "s"}},
            "spec.datastore: .*make another ClusterVersion",
        ),
        ({"datastore": {"type": "etcd", "size": "9Gi"}}, ""),
        ({"images": {"apiServer": "mirror.example/apiserver:v1.34.4"}, "classes": {"small": {}}}, ""),
    ],
)
def test_what_tenants_depend_on_is_not_changed(
    api: KubernetesApi, one: str, change: JsonObject, words: str
) -> None:
    _create(api, _LEAST, is_dry=False)
    if words:
        with pytest.raises(RingError, match=f": 422 .*{words}"):
            api.patch(one, {"spec": change})
    else:
        api.patch(one, {"spec": change})


def test_kubectl_columns(api: KubernetesApi, one: str, acme: RingTenant) -> None:
    _create(api, _WHOLE, is_dry=False)
    head, row = acme.kubectl("get", "cv").check().text.splitlines()
    assert head.split() == ["NAME", "KUBERNETES", "ETCD", "DATASTORE", "CLASS", "AGE"]
    assert row.split()[:-1] == ["one", "1.34.4", "3.7.3", "etcd", "small"]
