# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from msgspec.structs import replace

from daemonkit.kube.resources import PODS
from syncer.core.objects import SyncedKind
from syncer.core.plan import Create, Delete, Half, IssueTokens, Patch, Plan, Refusal, Side, Wait
from syncer.core.unknown import SUPER_UNREADABLE, UNREADABLE, Unknown, hold, if_known

KIND = SyncedKind(PODS, "Pod")
MAKE = Create(Side.SUPER, KIND, {})
CHANGE = Patch(Side.SUPER, KIND, "red-web", "a", "s", {"spec": {}})
GOES = Delete(Side.SUPER, KIND, "red-web", "a", "s")
REFUSED = replace(GOES, is_refused=True)
SHOW = Half((Patch(Side.TENANT, KIND, "web", "a", "u", {"status": {}}, "status"),))
MAP = Unknown(Side.TENANT, "ConfigMap", "web", "c", "an object of more than 20000 values")
WAIT = Wait(UNREADABLE, "ConfigMap web/c is there and cannot be read: an object of more than 20000 values")


@pytest.mark.parametrize(
    ("holds_changes", "action", "has_tenant", "is_kept"),
    [
        (True, MAKE, True, False),
        (True, CHANGE, True, False),
        (True, GOES, True, True),
        (True, GOES, False, False),
        (True, REFUSED, False, True),
        (False, MAKE, True, False),
        (False, CHANGE, True, True),
        (False, REFUSED, True, True),
    ],
)
def test_what_is_carried_out_whatever_is_unknown(
    action: Any, *, holds_changes: bool, has_tenant: bool, is_kept: bool
) -> None:
    plan = Plan(Half((action,)), SHOW)
    assert hold(plan, (), has_tenant=has_tenant, holds_changes=holds_changes) == plan
    found = hold(plan, {MAP}, has_tenant=has_tenant, holds_changes=holds_changes)
    assert found == (plan if is_kept else Plan(Half(wait=WAIT), SHOW))


def _held(plan: Plan, *more: Unknown) -> Plan:
    return hold(plan, {MAP, *more}, has_tenant=True, holds_changes=True)


def test_tokens_are_not_issued_for_what_waits() -> None:
    tokens = IssueTokens("web", "a", "u", "default", "a-token", ())
    assert _held(Plan(Half((MAKE, tokens)))).down == Half(wait=WAIT)


def test_a_wait_says_what_is_the_matter() -> None:
    """The plan took the object for absent."""
    plan = Plan(Half(wait=Wait("FailedCreate", 'Error creating: Secret "s" not found')))
    assert _held(plan).wait == WAIT


def test_what_is_refused_or_has_nothing_to_do_stays_so() -> None:
    refused = Plan(Half(refusals=(Refusal("spec.hostNetwork", "is not allowed"),)), SHOW)
    for plan in (refused, Plan(up=SHOW), Plan()):
        assert _held(plan) == plan


def test_one_of_the_super_cluster_and_many() -> None:
    found = _held(Plan(Half((MAKE,))), Unknown(Side.SUPER, "RuntimeClass", "", "kata", "of no shape")).wait
    expected = "RuntimeClass kata cannot be read in the super cluster, nor can 1 more: of no shape"
    assert found == Wait(SUPER_UNREADABLE, expected)


def test_what_is_unknown_counts_as_absent_for_who_says_so() -> None:
    assert if_known(MAP) is None
    assert if_known(None) is None
    assert if_known("web") == "web"
