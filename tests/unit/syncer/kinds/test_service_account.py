# SPDX-License-Identifier: Apache-2.0
"""ServiceAccounts (reference 8: serviceaccount dws and patrol)."""

from typing import Any

from syncer.core.objects import Object
from syncer.kinds.service_account import SYNC
from tests.unit.syncer.kinds.objects import (
    KEY,
    brief,
    created,
    foreign_object,
    patched,
    plan,
    super_object,
    tenant_object,
)

THREE = {
    "tenancy.x-k8s.io/cluster": KEY,
    "tenancy.x-k8s.io/uid": "t-1",
    "tenancy.x-k8s.io/namespace": "ns",
}


def default(**fields: Any) -> Object:
    return tenant_object("ServiceAccount", "default", **fields)


def test_secrets_stay_behind_and_the_rest_goes_down() -> None:
    own = tenant_object(
        "ServiceAccount",
        meta={"annotations": {"iam.k8s.io/role": "r", "note": "n"}},
        secrets=[{"name": "s"}],
        imagePullSecrets=[{"name": "p"}],
        automountServiceAccountToken=False,
    )
    body = created(plan(SYNC, own, None))
    assert body["metadata"]["annotations"]["note"] == "n"
    assert "iam.k8s.io/role" not in body["metadata"]["annotations"], (
        "an identity in the super cluster's cloud"
    )
    assert {name: field for name, field in body.items() if name not in ("metadata", "kind")} == {
        "imagePullSecrets": [{"name": "p"}],
        "automountServiceAccountToken": False,
    }


def test_later_changes_are_carried() -> None:
    own = tenant_object("ServiceAccount", imagePullSecrets=[{"name": "new"}])
    there = super_object("ServiceAccount", imagePullSecrets=[{"name": "old"}])
    assert patched(plan(SYNC, own, there)) == {"imagePullSecrets": [{"name": "new"}]}


def test_the_default_account_ends_the_same_whoever_was_first() -> None:
    made_here = created(plan(SYNC, default(), None))["metadata"]
    assert (made_here.get("labels") or {}, made_here["annotations"]) == ({}, THREE)
    body = patched(plan(SYNC, default(), foreign_object("ServiceAccount", "default")))
    assert body == {"metadata": {"annotations": THREE}}


def test_upstreams_default_account_is_adopted_without_a_write() -> None:
    assert brief(plan(SYNC, default(), super_object("ServiceAccount", "default"))) == []
    three = foreign_object("ServiceAccount", "default")
    three["metadata"]["annotations"] = THREE
    assert brief(plan(SYNC, default(), three)) == []


def test_another_tenants_default_account_is_a_conflict() -> None:
    there = super_object("ServiceAccount", "default")
    there["metadata"]["annotations"]["tenancy.x-k8s.io/cluster"] = "other"
    assert brief(plan(SYNC, default(), there)) == ["conflict"]
    assert brief(plan(SYNC, tenant_object("ServiceAccount"), foreign_object("ServiceAccount"))) == [
        "conflict"
    ]
