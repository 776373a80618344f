# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, PODS, SECRETS
from syncer.core.objects import Object, SyncedKind
from syncer.core.plan import (
    NOTHING,
    Action,
    Bind,
    Conflict,
    Create,
    Delete,
    Half,
    IssueTokens,
    Patch,
    Plan,
    Refusal,
    Side,
    Wait,
)
from syncer.core.plan_description import describe_plan

POD, SECRET = SyncedKind(PODS, "Pod"), SyncedKind(SECRETS, "Secret")
CONFIG_MAP = SyncedKind(CONFIG_MAPS, "ConfigMap")


def patch(kind: SyncedKind, body: Object, subresource: str = "") -> Patch:
    return Patch(Side.SUPER, kind, "vc-a-shop", "web", "uid", body, subresource)


def action_of(action: Action) -> dict[str, Any]:
    """What is shown of one action."""
    found: Any = describe_plan(Plan(Half((action,))))["actions"]
    (one,) = found
    return dict(one)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (
            Create(Side.SUPER, POD, {"spec": {"containers": []}}),
            {"action": "create", "side": "super", "kind": "Pod"},
        ),
        (
            Delete(Side.TENANT, POD, "shop", "web", "uid", 0),
            {"action": "delete", "side": "tenant", "kind": "Pod"},
        ),
        (
            patch(POD, {"metadata": {"labels": {"a": None}}}),
            {
                "action": "patch",
                "side": "super",
                "kind": "Pod",
                "patch": {"metadata": {"labels": {"a": None}}},
            },
        ),
        (
            patch(POD, {"status": {}}, "status"),
            {
                "action": "patch",
                "side": "super",
                "kind": "Pod",
                "subresource": "status",
                "patch": {"status": {}},
            },
        ),
        (
            Bind("shop", "web", "uid", "worker-1"),
            {"action": "bind", "side": "tenant", "kind": "Pod", "node": "worker-1"},
        ),
        (
            IssueTokens("shop", "web", "uid", "robot", "web-token", ()),
            {"action": "issueTokens", "side": "tenant", "kind": "Pod", "serviceAccount": "robot"},
        ),
    ],
)
def test_actions_are_described(action: Action, expected: dict[str, Any]) -> None:
    assert describe_plan(Plan(Half((action,))))["actions"] == [expected]


@pytest.mark.parametrize("kind", [SECRET, CONFIG_MAP])
def test_values_of_secrets_are_never_shown(kind: SyncedKind) -> None:
    body = {"data": {"password": "c2VjcmV0", "tls.key": "a2V5", "old": None}, "type": "Opaque"}
    found = action_of(patch(kind, body))
    assert found == {
        "action": "patch",
        "side": "super",
        "kind": kind.kind,
        "paths": ["data.password", "data[tls.key]", "data.old", "type"],
    }


def test_large_patches_show_their_paths_within_bounds() -> None:
    body = {"metadata": {"annotations": {f"key-{number}": "x" * 100 for number in range(300)}}}
    found = action_of(patch(POD, body))
    assert len(found["paths"]) == 201
    assert found["paths"][0] == "metadata.annotations.key-0"
    assert found["paths"][-1] == "and 100 more"


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (NOTHING, {"actions": [], "refusals": [], "wait": None, "conflict": ""}),
        (
            Plan(Half(refusals=(Refusal("spec.hostNetwork", "must be false"),))),
            {
                "actions": [],
                "refusals": [{"path": "spec.hostNetwork", "message": "must be false"}],
                "wait": None,
                "conflict": "",
            },
        ),
        (
            Plan(Half(wait=Wait("SecretNotSynced", "secret key is not there"))),
            {
                "actions": [],
                "refusals": [],
                "wait": {"reason": "SecretNotSynced", "message": "secret key is not there"},
                "conflict": "",
            },
        ),
        (
            Plan(Half(conflict=Conflict("Pod vc-a-shop/web is not the tenant's"))),
            {
                "actions": [],
                "refusals": [],
                "wait": None,
                "conflict": "Pod vc-a-shop/web is not the tenant's",
            },
        ),
    ],
)
def test_what_ends_a_plan_is_described(plan: Plan, expected: dict[str, Any]) -> None:
    assert describe_plan(plan) == expected
