# SPDX-License-Identifier: Apache-2.0
"""Which changes of a status are worth a line, from the first plan of a tenant to its end."""

import pytest

from tenancy import keys
from tenant_operator.core.status import status_after
from tenant_operator.core.transitions import Transition, deleted, transitions
from tenant_operator.model.virtual_cluster import Condition, VirtualClusterStatus
from tests.unit.tenant_operator.core.worlds import NOW, FakeWorld, virtual_cluster


class ReportedWorld(FakeWorld):
    """Keeps what is reported while it runs."""

    def reported(self, most: int = 60) -> list[tuple[str, str]]:
        found: list[Transition] = []
        for _ in range(most):
            observed, made = self.observed(), self.plan()
            for step in made.steps:
                self.carry_out(step)
            found += deleted(made)
            if made.findings:
                found += transitions(observed.virtual_cluster.status, status_after(observed, made, ()))
            if not self.finish(made) and not made.steps:
                return [(each.message.removeprefix("VirtualCluster "), _facts(each)) for each in found]
        raise AssertionError(f"not settled: {self.plan()}")


def _facts(each: Transition) -> str:
    facts = [f"{key}={value}" for key, value in each.facts.items()]
    return " ".join([*facts, *(["first"] if each.is_first else [])])


def test_a_tenant_from_its_creation_to_its_end() -> None:
    world = ReportedWorld(virtual_cluster())
    assert world.reported() == [("became ready", "reason=TenantReady first")]
    assert world.reported() == []
    annotations = world.cluster["metadata"].setdefault("annotations", {})
    annotations[keys.SLEEP_REQUESTED_AT] = "2027-01-15T08:00:00Z"
    world.now_s = NOW + 60
    assert world.reported() == [("was put to sleep", "by=request")]
    annotations[keys.WAKE_REQUESTED_AT] = "2027-01-15T08:00:30Z"
    world.now_s += 60
    assert world.reported() == [
        ("was woken", "detail=woken by request"),
        ("became ready", "reason=TenantReady"),
    ]
    world.cluster["metadata"]["deletionTimestamp"] = "2027-01-15T08:03:00Z"
    assert world.reported() == [
        ("is being deleted", ""),
        ("was deleted", "detail=nothing is left of VirtualCluster tenants/acme"),
    ]


def status(ready: str, reason: str, since: str = "2", version: str = "") -> VirtualClusterStatus:
    conditions = [Condition("Ready", ready, reason, "m", since), Condition("Sleeping", "False", "", "", "2")]
    return VirtualClusterStatus(phase="Running", conditions=conditions, cluster_version=version)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (status("True", "A"), status("True", "B"), []),
        (
            status("True", "A"),
            status("False", "NodesRefuse"),
            [("is not ready any more", "reason=NodesRefuse detail=m")],
        ),
        (status("True", "A"), status("Unknown", "B"), [("is not ready any more", "reason=B detail=m")]),
        (status("False", "A"), status("False", "B"), []),
        (status("False", "A"), status("True", "B"), [("became ready", "reason=B first")]),
        (status("False", "A", "3"), status("True", "B"), [("became ready", "reason=B")]),
        (status("False", "A"), status("False", "A", version="v1"), []),
        (
            status("True", "A", version="v1"),
            status("True", "A", version="v2"),
            [("was upgraded", "from=v1 to=v2 kubernetes_version=")],
        ),
    ],
)
def test_what_changed(
    before: VirtualClusterStatus, after: VirtualClusterStatus, found: list[tuple[str, str]]
) -> None:
    made = transitions(before, after)
    assert [(each.message.removeprefix("VirtualCluster "), _facts(each)) for each in made] == found
