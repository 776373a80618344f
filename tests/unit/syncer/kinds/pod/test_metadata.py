# SPDX-License-Identifier: Apache-2.0
"""Labels and annotations of super pods (upstream's TestBuildSuperClusterObject and TestCheckDWKVEquality)."""

import pytest

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.core.view import SyncSettings
from syncer.kinds.pod.metadata import format_map, mounted_key, quote
from tenancy import keys
from tests.unit.syncer.kinds.pod.pods import (
    KEY,
    brief,
    created,
    owner_annotations,
    plan,
    pod,
    super_pod,
    view,
)

OWNER_LABELS = {keys.CLUSTER: KEY, keys.VC_NAME: "tenant-00", keys.VC_NAMESPACE: "vcs"}


def test_what_passes_at_creation() -> None:
    found = created(
        pod(
            labels={
                "app": "a",
                "app.kubernetes.io/name": "n",
                "notk8s.io/a": "1",
                "arktos.futurewei.com/network": "blue",
                "opaque.example.com/h": "1",
                "opaque.example.community/h": "1",
                "transparent.example.com/s": "1",
                "transparency.tenancy.x-k8s.io/z": "forged",
                "tenancy.x-k8s.io/cluster": "forged",
                "vcnode.io/x": "forged",
                "tenant-label.vcnode.io/app": "forged",
            },
            annotations={
                "plain": "1",
                "kubectl.kubernetes.io/default-container": "c",
                "tenancy.x-k8s.io/uid": "forged",
                "vcnode.io/containers": "c,injected",
                "vcnode.io/gate-opened": "now",
                "arktos.futurewei.com/network-readiness": "true",
                "required-plugins.noderesource.dev": "[]",
                "required-plugins.noderesource.dev/container.c": "[]",
                "opaque.example.com/h": "1",
                "transparent.example.com/s": "1",
            },
            generateName="p-",
            finalizers=["example.com/hold"],
            ownerReferences=[{"kind": "ReplicaSet", "name": "r"}],
            managedFields=[{"manager": "kubectl"}],
        )
    )["metadata"]
    assert found == {
        "name": "p",
        "namespace": f"{KEY}-plain",
        "generateName": "p-",
        "labels": {
            "app": "a",
            "tenant-label.vcnode.io/app.kubernetes.io__name": "n",
            "tenant-label.vcnode.io/notk8s.io__a": "1",
            "arktos.futurewei.com/network": "blue",
            "tenant-label.vcnode.io/opaque.example.community__h": "1",
            **OWNER_LABELS,
        },
        "annotations": owner_annotations(
            **{
                "plain": "1",
                "tenancy.x-k8s.io/ownerReferences": '[{"kind":"ReplicaSet","name":"r"}]',
            }
        ),
    }


def test_the_tenants_containers_are_listed() -> None:
    spec = {"initContainers": [{"name": "i", "image": "i"}], "ephemeralContainers": [{"name": "e"}]}
    assert created(pod(spec))["metadata"]["annotations"][keys.CONTAINERS] == "c,i,e"


def test_required_plugins_are_the_operators() -> None:
    seen = view(settings=SyncSettings(required_plugins=("vcnode", "other")))
    assert created(pod(), seen)["metadata"]["annotations"][keys.REQUIRED_PLUGINS] == "[vcnode, other]"


def metadata_patches(tenant: Object, found: Object, seen: object = None) -> list[Object]:
    return [each[3]["metadata"] for each in brief(plan(tenant, found, seen))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("labels", "super_labels", "patch"),
    [
        ({}, {}, None),
        ({"a": "1"}, {"a": "1"}, None),
        ({"a": "1"}, {}, {"a": "1"}),
        ({"a": "2"}, {"a": "1"}, {"a": "2"}),
        ({}, {"a": "1"}, {"a": None}),
        ({"app.kubernetes.io/name": "n"}, {}, {"tenant-label.vcnode.io/app.kubernetes.io__name": "n"}),
        ({}, {"tenant-label.vcnode.io/a.k8s.io__b": "1"}, {"tenant-label.vcnode.io/a.k8s.io__b": None}),
        ({}, {"tenancy.x-k8s.io/controlled": "true"}, None),
        ({}, {"opaque.example.com/h": "1"}, None),
        ({}, {"kubernetes.io/x": "1"}, None),
        ({}, {"m.k8s.io/x": "1"}, None),
        ({"transparent.example.com/s": "2"}, {"transparent.example.com/s": "2"}, None),
        ({"vcnode.io/x": "1", "opaque.example.com/h": "1"}, {}, None),
    ],
)
def test_labels_of_an_existing_pod(labels: Object, super_labels: Object, patch: Object | None) -> None:
    found = super_pod(pod())
    found["metadata"]["labels"] |= super_labels
    assert metadata_patches(pod(labels=labels), found) == ([] if patch is None else [{"labels": patch}])


PLUGINS = SyncSettings(required_plugins=("vcnode",))
NARROW = f"{keys.REQUIRED_PLUGINS}/container.c"


@pytest.mark.parametrize(
    ("settings", "added", "patch"),
    [
        pytest.param(SyncSettings(), {"x": "1"}, {"x": None}, id="another's"),
        pytest.param(SyncSettings(), {keys.NETWORK_READINESS: "true"}, None, id="the network provider's"),
        pytest.param(SyncSettings(), {keys.GATE_OPENED: "now"}, None, id="the start gate's"),
        pytest.param(
            SyncSettings(), {keys.REQUIRED_PLUGINS: "[vcnode]", NARROW: "[]"}, None, id="a policy's"
        ),
        pytest.param(SyncSettings(), {keys.CONTAINERS: "c,injected"}, {keys.CONTAINERS: "c"}, id="forged"),
        pytest.param(PLUGINS, {}, {keys.REQUIRED_PLUGINS: "[vcnode]"}, id="required now"),
        pytest.param(
            PLUGINS, {keys.REQUIRED_PLUGINS: "[vcnode]", NARROW: "[]"}, {NARROW: None}, id="a narrower one"
        ),
        pytest.param(
            SyncSettings(),
            {"tenant-metadata.vcnode.io/labels.x": "old"},
            {"tenant-metadata.vcnode.io/labels.x": None},
            id="a label that is gone",
        ),
    ],
)
def test_annotations_of_an_existing_pod(
    settings: SyncSettings, added: dict[str, str], patch: Object | None
) -> None:
    found = super_pod(pod())
    found["metadata"]["annotations"] |= added
    patches = metadata_patches(pod(), found, view(settings=settings))
    assert patches == ([] if patch is None else [{"annotations": patch}])


def test_mounted_metadata_is_kept_current() -> None:
    spec = {
        "volumes": [
            {
                "name": "d",
                "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]},
            }
        ]
    }
    found = super_pod(pod(spec, labels={"a": "1"}))
    assert metadata_patches(pod(spec, labels={"a": "2"}), found) == [
        {"labels": {"a": "2"}, "annotations": {"vcnode.io/tenant-labels": 'a="2"'}}
    ]


def test_upstreams_pod_with_a_foreign_container_gets_the_list() -> None:
    found = super_pod(pod())
    del found["metadata"]["annotations"][keys.CONTAINERS]
    found["spec"]["containers"].append({"name": "mesh", "image": "mesh:1"})
    assert metadata_patches(pod(), found) == [{"annotations": {keys.CONTAINERS: "c"}}]


def test_annotations_have_the_api_servers_limit() -> None:
    spec = {
        "volumes": [
            {
                "name": "d",
                "downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.annotations"}}]},
            }
        ]
    }
    refusal = Refusal(
        "metadata.annotations", "with those that the pod has in the super cluster, larger than 262144 bytes"
    )
    large = {"a": "x" * 140_000}
    assert plan(pod(spec, annotations=large)).refusals == (refusal,)
    found = super_pod(pod(spec))
    later = plan(pod(spec, annotations=large), found)
    assert (later.refusals, later.actions) == ((refusal,), ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", '""'),
        ("plain text", '"plain text"'),
        ('"\\\a\b\f\n\r\t\v', '"\\"\\\\\\a\\b\\f\\n\\r\\t\\v"'),
        ("\x00\x7f", '"\\x00\\x7f"'),
        ("zürich 日本", '"zürich 日本"'),
        ("\u00a0\u200b\U000e0001", '"\\u00a0\\u200b\\U000e0001"'),
    ],
)
def test_values_are_quoted_as_go_does(text: str, expected: str) -> None:
    assert quote(text) == expected


def test_maps_are_written_as_the_kubelet_does() -> None:
    assert format_map({"b": "2", "a": "1"}, 100) == 'a="1"\nb="2"'
    assert format_map({}, 100) == ""


def test_keys_of_mounted_values_differ_and_fit() -> None:
    long = "a" * 60 + ".example.com/"
    names = [
        mounted_key("metadata.labels", "k8s.io/a"),
        mounted_key("metadata.annotations", "k8s.io/a"),
        mounted_key("metadata.labels", long + "a"),
        mounted_key("metadata.labels", long + "b"),
        mounted_key("metadata.labels", "k8s.io/a__b"),
        mounted_key("metadata.labels", "k8s.io__a/b"),
    ]
    assert len(set(names)) == len(names)
    assert all(len(name.partition("/")[2]) <= 63 for name in names)
