# SPDX-License-Identifier: Apache-2.0
"""PersistentVolumeClaims (reference 8: persistentvolumeclaim dws, patrol and uws)."""

from typing import Any

import pytest

from devkit.syncer.fake_view import FakeView
from syncer.core.objects import Object
from syncer.core.plan import Side
from syncer.kinds.persistent_volume_claim import SYNC
from syncer.policy.sync_policy import ClaimPolicy, SyncPolicy
from tests.unit.syncer.kinds.objects import brief, created, patched, plan, super_object, tenant_object

REQUESTS = {"resources": {"requests": {"storage": "1Gi"}}}
VOLUME = {
    "kind": "PersistentVolume",
    "metadata": {"name": "pv", "annotations": {"tenancy.x-k8s.io/uid": "s-7"}},
    "spec": {"claimRef": {"name": "a", "namespace": "ns"}},
}


def own(phase: str = "", volume: str = "", **status: Any) -> Object:
    spec = REQUESTS | ({"volumeName": volume} if volume else {})
    return tenant_object(
        "PersistentVolumeClaim", spec=spec, status=({"phase": phase} if phase else {}) | status
    )


def there(phase: str = "", volume: str = "", size: str = "1Gi", **status: Any) -> Object:
    spec: Object = {"resources": {"requests": {"storage": size}}}
    if volume:
        spec["volumeName"] = volume
    return super_object(
        "PersistentVolumeClaim", spec=spec, status=({"phase": phase} if phase else {}) | status
    )


def test_the_whole_claim_goes_down_once() -> None:
    spec = {
        **REQUESTS,
        "storageClassName": "",
        "selector": {"matchLabels": {"disk": "ssd"}},
        "volumeMode": "Block",
    }
    claim = tenant_object("PersistentVolumeClaim", spec=spec)
    assert created(plan(SYNC, claim, None))["spec"] == spec


def test_only_the_size_is_compared_later() -> None:
    assert patched(plan(SYNC, own(), there(size="2Gi"))) == {
        "spec": {"resources": {"requests": {"storage": "1Gi"}}}
    }


@pytest.mark.parametrize(
    ("phase", "super_phase", "expected"),
    [
        ("Pending", "Pending", None),
        ("Bound", "Bound", None),
        ("Lost", "Lost", None),
        ("Bound", "Lost", "Lost"),
        ("Bound", "Pending", "Pending"),
        # The tenant's own controller binds it.
        ("Pending", "Bound", None),
    ],
)
def test_the_phase_comes_up(phase: str, super_phase: str, expected: str | None) -> None:
    result = plan(SYNC, own(phase), there(super_phase))
    if expected is None:
        assert brief(result) == []
    else:
        assert patched(result, Side.TENANT, "status") == {"status": {"phase": expected}}


def test_capacity_conditions_and_allocations_come_up() -> None:
    status: Object = {
        "capacity": {"storage": "2Gi"},
        "conditions": [{"type": "Resizing"}],
        "allocatedResources": {"storage": "2Gi"},
    }
    assert patched(plan(SYNC, own("Bound", "pv"), there("Bound", "pv", **status)), Side.TENANT, "status") == {
        "status": status
    }


def test_the_volume_is_named_once_the_tenant_has_it() -> None:
    bound = there("Bound", "pv", capacity={"storage": "1Gi"})
    assert brief(plan(SYNC, own("Pending"), bound)) == []
    result = plan(SYNC, own("Pending"), bound, FakeView(tenant_objects=[VOLUME]))
    assert patched(result, Side.TENANT) == {"spec": {"volumeName": "pv"}}
    assert patched(result, Side.TENANT, "status") == {
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}
    }
    of_the_tenant = {**VOLUME, "metadata": {"name": "pv"}}
    assert brief(plan(SYNC, own("Pending"), bound, FakeView(tenant_objects=[of_the_tenant]))) == []


def test_a_source_in_another_namespace_is_refused() -> None:
    source = {"kind": "VolumeSnapshot", "name": "s", "namespace": "other"}
    claim = tenant_object("PersistentVolumeClaim", spec={**REQUESTS, "dataSourceRef": source})
    assert brief(plan(SYNC, claim, None)) == ["refused spec.dataSourceRef.namespace"]


def with_classes(value: Object, attributes: str | None = None, storage: str | None = None) -> Object:
    named = {"volumeAttributesClassName": attributes, "storageClassName": storage}
    value["spec"] |= {name: each for name, each in named.items() if each is not None}
    return value


_ATTRIBUTES = FakeView(policy=SyncPolicy(claims=ClaimPolicy(attributes_classes=frozenset({"gold", "iron"}))))


@pytest.mark.parametrize(
    ("attributes", "there_before", "expected"),
    [("gold", "iron", "gold"), ("gold", None, "gold"), (None, "iron", None)],
)
def test_the_class_of_attributes_follows(
    attributes: str | None, there_before: str | None, expected: str | None
) -> None:
    found = plan(SYNC, with_classes(own(), attributes), with_classes(there(), there_before), _ATTRIBUTES)
    assert patched(found) == {"spec": {"volumeAttributesClassName": expected}}


def test_a_class_of_attributes_is_the_policys_to_allow() -> None:
    found = plan(SYNC, with_classes(own(), "gold"), with_classes(there(), "iron"))
    assert brief(found) == ["refused spec.volumeAttributesClassName"]


@pytest.mark.parametrize(
    ("own_class", "super_class", "expected", "changed"),
    [
        pytest.param("late", None, ["patch object in super s-1"], [], id="set later by the control plane"),
        pytest.param(None, "below", [], [], id="a default of the super cluster"),
        pytest.param("late", "below", [], ["spec.storageClassName"], id="another one below already"),
        pytest.param("same", "same", [], [], id="the same"),
    ],
)
def test_a_storage_class_is_set_once(
    own_class: str | None, super_class: str | None, expected: list[str], changed: list[str]
) -> None:
    found = plan(SYNC, with_classes(own(), storage=own_class), with_classes(there(), storage=super_class))
    assert (brief(found), [each.path for each in found.changes]) == (expected, changed)


def test_a_claim_of_the_tenants_own_volume_stays() -> None:
    """Its controller binds it there: what the super claim is would be a second writer of its status."""
    view = FakeView(tenant_objects=[{"kind": "PersistentVolume", "metadata": {"name": "mine"}}])
    assert brief(plan(SYNC, own("Bound", "mine"), None, view)) == ["refused spec.volumeName"]
    assert brief(plan(SYNC, own("Bound", "mine"), there("Pending"), view)) == ["refused spec.volumeName"]
    assert brief(plan(SYNC, own("Bound", "pv"), there("Pending", "pv"), view)) == [
        "patch status in tenant t-1"
    ]
