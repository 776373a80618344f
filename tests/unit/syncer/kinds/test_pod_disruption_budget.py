# SPDX-License-Identifier: Apache-2.0
"""PodDisruptionBudgets."""

from typing import Any

import pytest

from syncer.core.objects import Object
from syncer.kinds.pod_disruption_budget import SYNC
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
