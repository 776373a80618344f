# SPDX-License-Identifier: Apache-2.0
"""Namespaces (reference 8: namespace dws and patrol; 2.5 S13, 4 d, 6.2 I5)."""

from collections.abc import Mapping
from typing import Any

import pytest

from devkit.syncer.fake_view import FakeView
from syncer.core.objects import Object
from syncer.core.pair import Pair
from syncer.core.plan import Conflict, Delete, Half, Plan, Side
from syncer.core.tenant_cluster import TenantCluster
from syncer.kinds.namespace import KIND, SYNC
from tests.unit.syncer.kinds.objects import (
    KEY,
    SUPER_NAMESPACE,
    brief,
    created,
    deleting,
    patched,
    tenant_object,
)

VC_UID = "07ec5e88-636d-4397-8319-8643864ff609"
OWN = {
    "tenancy.x-k8s.io/cluster": KEY,
    "tenancy.x-k8s.io/namespace": "ns",
    "tenancy.x-k8s.io/uid": "t-1",
    "tenancy.x-k8s.io/vcname": "tenant-00",
    "tenancy.x-k8s.io/vcnamespace": "vcs",
    "tenancy.x-k8s.io/vcuid": VC_UID,
}


def tenant(uid: str = "t-1", **meta: Any) -> Object:
    return tenant_object("Namespace", "ns", "", uid=uid, meta=meta)


def found(
    labels: dict[str, str] | None = None, annotations: Mapping[str, str | None] | None = None
) -> Object:
    notes = {key: value for key, value in {**OWN, **(annotations or {})}.items() if value is not None}
    meta = {"name": SUPER_NAMESPACE, "uid": "s-1", "annotations": notes, "labels": labels or {}}
    return {"kind": "Namespace", "metadata": meta}


def plan(own: Object | None, there: Object | None, view: FakeView | None = None) -> Plan:
    return SYNC.plan(("", "ns"), Pair(own, there), view or FakeView())


REMOVAL = Plan(Half((Delete(Side.SUPER, KIND, "", SUPER_NAMESPACE, "s-1"),)))


def test_a_new_namespace_is_created_without_labels_of_the_tenant() -> None:
    own = tenant(
        labels={"team": "blue", "kubernetes.io/metadata.name": "ns"},
        annotations={"note": "n", "tenancy.x-k8s.io/vcrootns": "true", "x.k8s.io/a": "b"},
    )
    assert created(plan(own, None)) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": SUPER_NAMESPACE,
            "labels": {"tenant-label.vcnode.io/team": "blue"},
            "annotations": {"note": "n", **OWN},
        },
    }


def test_one_that_is_there_is_adopted_without_a_write() -> None:
    assert plan(tenant(), found({"kubernetes.io/metadata.name": SUPER_NAMESPACE})) == Plan()


def test_changes_are_carried_and_the_operators_own_keys_stay() -> None:
    there = found(
        {"tenant-label.vcnode.io/team": "blue", "tenant-label.vcnode.io/old": "1", "team": "operator's"},
        {"policy": "operator's", "tenancy.x-k8s.io/vcname": "edited"},
    )
    assert patched(plan(tenant(labels={"team": "red"}, annotations={"note": "n"}), there)) == {
        "metadata": {
            "labels": {"tenant-label.vcnode.io/team": "red", "tenant-label.vcnode.io/old": None},
            "annotations": {"note": "n", "tenancy.x-k8s.io/vcname": "tenant-00"},
        }
    }


def test_it_is_deleted_when_the_tenants_is_gone() -> None:
    assert plan(None, found()) == REMOVAL
    assert plan(deleting(tenant()), found()) == Plan()
    assert plan(deleting(tenant()), None) == Plan()
    assert brief(plan(None, deleting(found()))) == ["wait NamespaceTerminating"]


def test_a_recreated_namespace_gets_a_new_one() -> None:
    assert plan(tenant("t-2"), found()) == REMOVAL
    assert brief(plan(tenant("t-2"), deleting(found()))) == ["wait NamespaceTerminating"]
    assert brief(plan(tenant("t-2"), None)) == [f"create in super {SUPER_NAMESPACE}"]


@pytest.mark.parametrize(
    "annotations",
    [
        {"tenancy.x-k8s.io/cluster": "other"},
        {"tenancy.x-k8s.io/namespace": "other"},
        {"tenancy.x-k8s.io/vcuid": "of a former VirtualCluster"},
        {"tenancy.x-k8s.io/vcuid": None},
        {"tenancy.x-k8s.io/uid": None},
        {"tenancy.x-k8s.io/vcrootns": "true"},
        dict.fromkeys(OWN),
    ],
)
def test_one_of_somebody_else_is_a_conflict_and_never_deleted(annotations: dict[str, str | None]) -> None:
    conflict = Plan(Half(conflict=Conflict(f"Namespace {SUPER_NAMESPACE} is not the tenant's")))
    assert plan(tenant(), found(annotations=annotations)) == conflict
    assert plan(tenant("t-2"), found(annotations=annotations)) == conflict
    assert plan(None, found(annotations=annotations)) == Plan()


def test_a_namespace_of_the_super_cluster_is_refused() -> None:
    view = FakeView(tenant=TenantCluster("kube", "kube", "vc", VC_UID))
    own = tenant_object("Namespace", "system", "")
    result = SYNC.plan(("", "system"), Pair(own, None), view)
    assert [each.path for each in result.refusals] == ["metadata.name"]
    assert result.actions == ()
