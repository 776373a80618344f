# SPDX-License-Identifier: Apache-2.0
"""PersistentVolumeClaims (reference 8: persistentvolumeclaim dws, patrol and uws)."""

from typing import Any

import pytest

from devkit.syncer.fake_view import FakeView
from syncer.core.objects import Object
from syncer.core.plan import Side
from syncer.kinds.persistent_volume_claim import SYNC
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
