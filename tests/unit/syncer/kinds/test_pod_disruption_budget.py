# SPDX-License-Identifier: Apache-2.0
"""PodDisruptionBudgets."""

from typing import Any

import pytest

from devkit.syncer.fake_view import FakeView
from syncer.core.objects import Object
from syncer.core.plan import Change, Delete
from syncer.kinds.pod_disruption_budget import SYNC
from syncer.policy.sync_policy import DisruptionBudgetLimits, SyncPolicy
from tests.unit.syncer.kinds.objects import brief, created, patched, plan, super_object, tenant_object

SELECTOR = {"matchLabels": {"app.kubernetes.io/name": "web"}}
SUPER_SELECTOR = {"matchLabels": {"tenant-label.vcnode.io/app.kubernetes.io__name": "web"}}
OBSERVED = {"observedGeneration": 3, "desiredHealthy": 2, "disruptionsAllowed": 1}


def own(status: Object | None = None, **spec: Any) -> Object:
    body = {"selector": SELECTOR, **spec}
    return tenant_object("PodDisruptionBudget", meta={"generation": 3}, spec=body, status=status or {})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minAvailable": 1}, {"minAvailable": 1}),
        ({"minAvailable": "50%"}, {"minAvailable": 2}),
        ({"maxUnavailable": 1}, {"minAvailable": 2}),
        (
            {"maxUnavailable": 0, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
            {"minAvailable": 2, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
        ),
    ],
)
def test_it_goes_down_as_a_number_of_pods(spec: Object, expected: Object) -> None:
    body = created(plan(SYNC, own(OBSERVED, **spec), None))
    assert body["spec"] == {"selector": SUPER_SELECTOR, **expected}


@pytest.mark.parametrize("status", [{}, {**OBSERVED, "observedGeneration": 2}])
def test_a_share_waits_for_the_tenants_controller(status: Object) -> None:
    assert brief(plan(SYNC, own(status, maxUnavailable=1), None)) == ["wait BudgetNotObserved"]
    assert brief(plan(SYNC, own(status, minAvailable=1), None)) == ["create in super a"]


def test_it_follows_the_number_of_replicas() -> None:
    there = super_object("PodDisruptionBudget", spec={"selector": SUPER_SELECTOR, "minAvailable": 2})
    more = own({**OBSERVED, "desiredHealthy": 5}, maxUnavailable=1)
    assert patched(plan(SYNC, more, there)) == {"spec": {"minAvailable": 5}}


def test_the_tenants_controller_alone_writes_its_status() -> None:
    there = super_object(
        "PodDisruptionBudget",
        spec={"selector": SUPER_SELECTOR, "minAvailable": 2},
        status={"disruptionsAllowed": 0},
    )
    assert brief(plan(SYNC, own(OBSERVED, maxUnavailable=1), there)) == []


def _view(seconds: float, most_s: int = 3600) -> FakeView:
    limits = DisruptionBudgetLimits(max_drain_seconds=most_s)
    return FakeView(policy=SyncPolicy(pod_disruption_budgets=limits), drained={"ns": seconds})


def test_no_budget_keeps_a_node_from_being_drained_for_ever() -> None:
    there = super_object("PodDisruptionBudget", spec={"selector": SUPER_SELECTOR, "minAvailable": 2})
    tenant = own(OBSERVED, maxUnavailable=0)
    assert brief(plan(SYNC, tenant, there, _view(3600))) == []
    result = plan(SYNC, tenant, there, _view(3601))
    assert brief(result) == ["delete in super s-1"]
    assert result.down.changes == (
        Change(
            "spec",
            "stays in this cluster for now: a node that runs pods of namespace ns has been cordoned for more "
            "than 3600 s (SyncPolicy field spec.podDisruptionBudgets.maxDrainSeconds)",
        ),
    )
    assert brief(plan(SYNC, tenant, None, _view(3601))) == []
    assert brief(plan(SYNC, tenant, None, _view(0))) == ["create in super a"]


def test_budgets_stay_in_the_tenant_by_policy() -> None:
    there = super_object("PodDisruptionBudget", spec={"selector": SUPER_SELECTOR, "minAvailable": 2})
    assert brief(plan(SYNC, own(OBSERVED, minAvailable=1), there, _view(0, 0))) == ["delete in super s-1"]
    assert brief(plan(SYNC, own(OBSERVED, minAvailable=1), None, _view(0, 0))) == []


@pytest.mark.parametrize(
    ("seconds", "most_s", "goes"), [(3600, 3600, False), (3601, 3600, True), (0, 0, True)]
)
def test_no_held_or_unreadable_budget_holds_up_a_drain(seconds: float, most_s: int, *, goes: bool) -> None:
    """A deletion that follows from an absence may be held."""
    there = super_object("PodDisruptionBudget", spec={"selector": SUPER_SELECTOR, "minAvailable": 2})
    view = _view(seconds, most_s)
    result = plan(SYNC, None, there, view)
    assert [isinstance(each, Delete) and each.is_refused for each in result.actions] == [goes]
    assert result.changes == ()
    assert len(SYNC.plan_unreadable(("ns", "a"), there, view)) == goes
