# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from typing import Any

import pytest

from daemonkit.kube.resources import PODS
from syncer.core.objects import SyncedKind
from syncer.core.plan import Create, Delete, Half, IssueTokens, Patch, Plan, Refusal, Side, Wait
from syncer.core.unknown import SUPER_UNREADABLE, UNREADABLE, hold

KIND = SyncedKind(PODS, "Pod")
MAKE = Create(Side.SUPER, KIND, {})
CHANGE = Patch(Side.SUPER, KIND, "red-web", "a", "s", {"spec": {}})
GOES = Delete(Side.SUPER, KIND, "red-web", "a", "s")
REFUSED = replace(GOES, is_refused=True)
SHOW = Half((Patch(Side.TENANT, KIND, "web", "a", "u", {"status": {}}, "status"),))
MAP = {(Side.TENANT, "ConfigMap", "web", "c"): "an object of more than 20000 values"}
WAIT = Wait(UNREADABLE, "ConfigMap web/c is there and cannot be read: an object of more than 20000 values")


@pytest.mark.parametrize(
    ("kind", "action", "has_tenant", "is_kept"),
    [
        ("Pod", MAKE, True, False),
        ("Pod", CHANGE, True, False),
        ("Pod", GOES, True, True),
        ("Secret", GOES, False, False),
        ("Secret", REFUSED, False, True),
        ("Endpoints", MAKE, True, False),
        ("Endpoints", CHANGE, True, True),
        ("EndpointSlice", REFUSED, True, True),
    ],
)
def test_what_is_carried_out_whatever_is_unknown(
    kind: str, action: Any, *, has_tenant: bool, is_kept: bool
) -> None:
    plan = Plan(Half((action,)), SHOW)
    assert hold(plan, {}, kind, has_tenant=has_tenant) == plan
    found = hold(plan, MAP, kind, has_tenant=has_tenant)
    assert found == (plan if is_kept else Plan(Half(wait=WAIT), SHOW))


def test_tokens_are_not_issued_for_what_waits() -> None:
    tokens = IssueTokens("web", "a", "u", "default", "a-token", ())
    assert hold(Plan(Half((MAKE, tokens))), MAP, "Pod", has_tenant=True).down == Half(wait=WAIT)


def test_a_wait_says_what_is_the_matter() -> None:
    """The plan took the object for absent."""
    plan = Plan(Half(wait=Wait("FailedCreate", 'Error creating: Secret "s" not found')))
    assert hold(plan, MAP, "Pod", has_tenant=True).wait == WAIT


def test_what_is_refused_or_has_nothing_to_do_stays_so() -> None:
    refused = Plan(Half(refusals=(Refusal("spec.hostNetwork", "is not allowed"),)), SHOW)
    for plan in (refused, Plan(up=SHOW), Plan()):
        assert hold(plan, MAP, "Pod", has_tenant=True) == plan


def test_one_of_the_super_cluster_and_many() -> None:
    unknown = MAP | {(Side.SUPER, "RuntimeClass", "", "kata"): "of no shape"}
    found = hold(Plan(Half((MAKE,))), unknown, "Pod", has_tenant=True).wait
    expected = "RuntimeClass kata cannot be read in the super cluster, nor can 1 more: of no shape"
    assert found == Wait(SUPER_UNREADABLE, expected)
