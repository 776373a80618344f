# SPDX-License-Identifier: Apache-2.0
"""When a status is written."""

from __future__ import annotations

import pytest

from tenant_operator.core.conditions import ConditionType, holds
from tenant_operator.core.observed import Failed
from tenant_operator.core.status import status_after, status_patch, with_failure
from tenant_operator.model.objects import Object, Ref
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster

SECRET = Ref("Secret", "tenants", "x")


def second_patch(first: str, second: str) -> Object | None:
    """What is written after a step failed with the one text, and then with the other."""
    world = FakeWorld(virtual_cluster())
    world.run()
    made = world.plan()

    def patch(text: str) -> Object | None:
        observed = world.observed()
        after = status_after(observed, made, (Failed(SECRET, "InternalError", text, 3),))
        return status_patch(observed.virtual_cluster, after)

    written = patch(first)
    assert written is not None
    world.cluster["status"] |= written["status"]
    return patch(second)


@pytest.mark.parametrize("values", [("1", "2"), ("9", "10"), ("640Mi", "1Gi"), ("40001", "8")])
@pytest.mark.parametrize(
    "text",
    [
        "read tcp 10.0.0.1:{}->10.0.0.2:9443: connection reset by peer",
        "exceeded quota: team, requested: limits.memory=640Mi, used: limits.memory={}, limited: pods=4",
    ],
)
def test_number_that_changes_at_each_try_is_not_written(text: str, values: tuple[str, str]) -> None:
    assert second_patch(*map(text.format, values)) is None


@pytest.mark.parametrize("text", ['pods "etcd-{}" is forbidden', "{} refuses", "{}"])
def test_other_failure_is_written(text: str) -> None:
    patch = second_patch(text.format(1), text.format(2))
    assert patch is not None
    assert patch["status"]["message"] == f"Secret tenants/x: {text.format(2)}"


@pytest.mark.parametrize("phase", ["", "Pending", "Running", "Updating", "Terminating"])
@pytest.mark.parametrize("tries", range(1, 6))
def test_step_that_fails_takes_nothing_from_a_tenant_at_first(phase: str, tries: int) -> None:
    findings = tuple(holds(each, "R") for each in ConditionType)
    failed = Failed(SECRET, "TooManyRequests", "later", tries)
    found = {
        each.type: (each.status, each.reason, each.message)
        for each in with_failure(findings, (failed,), is_served=phase in ("Running", "Updating"))
    }
    shown = "UpToDate" if phase in ("Running", "Updating") and tries < 3 else "Ready"
    expected = {each.type: (each.status, each.reason, each.message) for each in findings}
    assert found == expected | {shown: ("False", "TooManyRequests", "Secret tenants/x: later")}


@pytest.mark.parametrize(("tries", "ready"), [(1, "True"), (2, "True"), (3, "False")])
def test_ready_of_a_served_tenant_after_failures(tries: int, ready: str) -> None:
    world = FakeWorld(virtual_cluster())
    world.run()
    observed = world.observed()
    after = status_after(observed, world.plan(), (Failed(SECRET, "Conflict", "x", tries),))
    assert {each.type: each.status for each in after.conditions}["Ready"] == ready
