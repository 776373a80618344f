# SPDX-License-Identifier: Apache-2.0
"""Secrets (reference 8: secret dws and patrol)."""

from typing import Any

from devkit.syncer.fake_view import FakeView
from syncer.core.objects import Object
from syncer.kinds.secret import SYNC
from tests.unit.syncer.kinds.objects import (
    OWN_LABELS,
    brief,
    created,
    owner_annotations,
    patched,
    plan,
    super_object,
    tenant_object,
)

TOKEN = "kubernetes.io/service-account-token"


def of_upstream(**fields: Any) -> Object:
    """The copy of the token `robot-token` as upstream names it."""
    meta = {
        "labels": {"tenancy.x-k8s.io/secret.UID": "t-1"},
        "annotations": {"tenancy.x-k8s.io/secret.name": "robot-token"},
    }
    return super_object("Secret", "robot-token-x7k2p", meta=meta, type="Opaque", **fields)


def test_keys_of_secrets_have_the_rules_of_all_kinds() -> None:
    meta = {
        "labels": {"app.kubernetes.io/name": "n"},
        "annotations": {"meta.helm.sh/x": "y", "own.example/a": "b"},
    }
    body = created(
        plan(SYNC, tenant_object("Secret", meta=meta, type="example.com/own", data={"a": "YQ=="}), None)
    )
    assert body["metadata"]["labels"] == OWN_LABELS
    assert body["metadata"]["annotations"] == {"meta.helm.sh/x": "y", **owner_annotations()}
    assert body["type"] == "example.com/own"


def test_a_service_account_token_goes_down_as_opaque() -> None:
    own = tenant_object("Secret", "robot-token", type=TOKEN, data={"token": "dA=="})
    body = created(plan(SYNC, own, None))
    assert body["type"] == "Opaque"
    assert body["data"] == {"token": "dA=="}
    assert body["metadata"]["labels"] == {"tenancy.x-k8s.io/secret.UID": "t-1", **OWN_LABELS}
    assert body["metadata"]["annotations"] == {
        "tenancy.x-k8s.io/secret.name": "robot-token",
        **owner_annotations(),
    }


def test_upstreams_copy_of_a_token_lives_as_long_as_the_tenants() -> None:
    own = tenant_object("Secret", "robot-token", type=TOKEN, data={"token": "dA=="})
    view = FakeView(tenant_objects=[own])
    assert brief(plan(SYNC, None, of_upstream(data={"token": "dA=="}), view)) == []
    assert patched(plan(SYNC, None, of_upstream(data={"token": "b2xk"}), view)) == {"data": {"token": "dA=="}}
    assert brief(plan(SYNC, None, of_upstream(), FakeView())) == ["delete in super s-1"]
    remade = FakeView(tenant_objects=[tenant_object("Secret", "robot-token", uid="t-2", type=TOKEN)])
    assert brief(plan(SYNC, None, of_upstream(), remade)) == ["delete in super s-1"]


def test_the_token_controllers_own_secrets_stay() -> None:
    there = super_object("Secret", "default-token-abcde", type=TOKEN)
    del there["metadata"]["annotations"]
    assert brief(plan(SYNC, None, there)) == []
