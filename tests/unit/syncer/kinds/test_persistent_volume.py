# SPDX-License-Identifier: Apache-2.0
"""PersistentVolumes (reference 8: persistentvolume patrol and uws; 2.5 S16, 6.2 I7)."""

from typing import Any

import pytest

from devkit.syncer.fake_view import FakeView
from syncer.core.objects import Object
from syncer.core.plan import Side
from syncer.kinds.persistent_volume import SYNC
from tests.unit.syncer.kinds.objects import (
    SUPER_NAMESPACE,
    brief,
    created,
    deleting,
    patched,
    plan,
    super_object,
    tenant_object,
)

SPEC: Object = {
    "capacity": {"storage": "2Gi"},
    "accessModes": ["ReadWriteOnce"],
    "persistentVolumeReclaimPolicy": "Retain",
    "storageClassName": "pub",
    "volumeMode": "Filesystem",
    "csi": {
        "driver": "csi.example.com",
        "volumeHandle": "handle-1",
        "nodeStageSecretRef": {"name": "stage", "namespace": "super-storage"},
        "volumeAttributes": {"path": "/secret"},
    },
    "nodeAffinity": {"required": {"nodeSelectorTerms": []}},
}
SHOWN = {name: SPEC[name] for name in list(SPEC)[:5]}
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "name": "claim",
    "namespace": SUPER_NAMESPACE,
    "uid": "s-1",
    "resourceVersion": "8",
}


def volume(phase: str = "Bound", spec: Object = SPEC, **claim: Any) -> Object:
    meta = {
        "name": "pv",
        "uid": "s-7",
        "labels": {"disk": "ssd"},
        "annotations": {"a": "1", "volume.kubernetes.io/provisioner-deletion-secret-name": "s"},
    }
    body = {"kind": "PersistentVolume", "metadata": meta, "status": {"phase": phase}}
    return body | {"spec": {**spec, "claimRef": CLAIM | claim}}


def own(uid: str | None = "s-7", **spec: Any) -> Object:
    notes = {"a": "1"} | ({"tenancy.x-k8s.io/uid": uid} if uid else {})
    return tenant_object(
        "PersistentVolume",
        "pv",
        "",
        meta={"annotations": notes},
        spec=SHOWN | spec,
        status={"phase": "Bound"},
    )


def view(claim: Object | None = None, super_claim: Object | None = None) -> FakeView:
    tenant_claim = tenant_object("PersistentVolumeClaim", "claim") if claim is None else claim
    return FakeView(
        tenant_objects=[tenant_object("Namespace", "ns", ""), tenant_claim],
        super_objects=[super_claim or super_object("PersistentVolumeClaim", "claim")],
    )


def test_a_bound_volume_is_shown_without_its_location() -> None:
    result = plan(SYNC, None, volume(), view())
    assert result.is_partial
    assert created(result) == {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": "pv",
            "labels": {"disk": "ssd"},
            "annotations": {"a": "1", "tenancy.x-k8s.io/uid": "s-7"},
        },
        "spec": {
            **SHOWN,
            "csi": {"driver": "csi.example.com", "volumeHandle": "pv"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "ns",
                "name": "claim",
                "uid": "t-1",
            },
        },
    }


@pytest.mark.parametrize(
    "source", [{"hostPath": {"path": "/data"}}, {"nfs": {"server": "10.0.0.1", "path": "/"}}]
)
def test_other_sources_are_shown_by_their_type(source: Object) -> None:
    (kind,) = source
    spec = created(plan(SYNC, None, volume(spec=SHOWN | source), view()))["spec"]
    assert spec["csi"] == {"driver": f"{kind.lower()}.vcnode.io", "volumeHandle": "pv"}
    assert kind not in spec


@pytest.mark.parametrize(
    ("there", "objects"),
    [
        (volume("Available"), view()),
        (volume("Released"), view()),
        (deleting(volume()), view()),
        (volume(uid="s-0"), view()),
        (volume(namespace="foreign"), view()),
        (volume(name="unknown"), view()),
        (volume(), view(tenant_object("PersistentVolumeClaim", "other"))),
        (volume(), view(tenant_object("PersistentVolumeClaim", "claim", uid="t-2"))),
        (volume(), view(None, super_object("PersistentVolumeClaim", "claim", owner="t-9"))),
        (volume(), FakeView()),
    ],
)
def test_what_is_not_known_to_be_the_tenants_is_not_shown(there: Object, objects: FakeView) -> None:
    assert brief(plan(SYNC, None, there, objects)) == []


def test_changes_of_what_is_shown_come_up() -> None:
    changed = volume(spec={**SPEC, "persistentVolumeReclaimPolicy": "Delete"})
    assert patched(plan(SYNC, own(), changed, view()), Side.TENANT) == {
        "spec": {"persistentVolumeReclaimPolicy": "Delete"}
    }
    assert brief(plan(SYNC, own(csi=SPEC["csi"], nodeAffinity={}), volume(), view())) == []


def test_a_volume_that_nobody_binds_is_shown_as_bound() -> None:
    pending = own() | {"status": {"phase": "Pending"}}
    assert patched(plan(SYNC, pending, volume(), view()), Side.TENANT, "status") == {
        "status": {"phase": "Bound"}
    }
    released = own() | {"status": {"phase": "Released"}}
    assert brief(plan(SYNC, released, volume(), view())) == []


def test_ours_goes_and_the_tenants_own_volume_stays() -> None:
    assert brief(plan(SYNC, own(), None)) == ["delete in tenant t-1"]
    assert brief(plan(SYNC, deleting(own()), None)) == []
    assert brief(plan(SYNC, own("s-0"), volume(), view())) == ["delete in tenant t-1"]
    assert brief(plan(SYNC, own(None), None)) == []
    assert brief(plan(SYNC, own(None), volume(), view())) == ["conflict"]


_PRIVATE = {
    "kubectl.kubernetes.io/last-applied-configuration": '{"nfs":{"server":"10.9.9.9"}}',
    "vendor.example/pool": "gold",
    "volume.kubernetes.io/provisioner-deletion-secret-name": "s",
}
_OPEN = {"pv.kubernetes.io/provisioned-by": "csi.example.com", "topology.kubernetes.io/zone": "a"}


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_keys_of_the_super_clusters_programs_stay_below(field: str) -> None:
    there = volume(spec=SPEC | {"mountOptions": ["addr=10.9.9.9", "password=x"]})
    there["metadata"][field] = _PRIVATE | _OPEN | {"a": "1"}
    made = created(plan(SYNC, None, there, view()))
    assert {**made["metadata"][field]}.items() >= (_OPEN | {"a": "1"}).items()
    assert not made["metadata"][field].keys() & _PRIVATE.keys()
    assert "mountOptions" not in made["spec"]


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_what_was_shown_before_is_taken_away(field: str) -> None:
    there = volume(spec=SPEC | {"mountOptions": ["addr=10.9.9.9"]})
    there["metadata"][field] = _PRIVATE | _OPEN
    shown = own(mountOptions=["addr=10.9.9.9"])
    notes = shown["metadata"].setdefault(field, {})
    notes |= _PRIVATE | _OPEN | {"mine": "1"}
    result = plan(SYNC, shown, there, view())
    assert patched(result, Side.TENANT) == {
        "metadata": {field: dict.fromkeys(_PRIVATE)},
        "spec": {"mountOptions": None},
    }
