# SPDX-License-Identifier: Apache-2.0
"""What a tenant costs the super cluster while all is well."""

from __future__ import annotations

import collections

from tenant_operator.core.probes import NodesProbe, ServedProbe, SyncerProbe, TenantProbe
from tenant_operator.core.steps import Apply, IssueLeaf, OperatorStep
from tests.unit.tenant_operator.core.worlds import NOW, FakeWorld, virtual_cluster

HOURS = 48


def requests_of(each: OperatorStep | TenantProbe) -> int:
    """To the super cluster's API server. The only tenant pays the list of nodes alone."""
    match each:
        case SyncerProbe() | ServedProbe() | Apply():
            return 1
        case NodesProbe():
            return 2
        case IssueLeaf():
            return 2
    raise AssertionError(each)


def test_at_most_two_requests_an_hour() -> None:
    world = FakeWorld(virtual_cluster())
    world.run()
    counts: collections.Counter[str] = collections.Counter()
    while world.now_s < NOW + HOURS * 3600:
        made = world.plan()
        assert made.check_again_s is not None
        for each in (*made.steps, *made.probes):
            counts[type(each).__name__] += requests_of(each)
        for step in made.steps:
            world.carry_out(step)
        status = world.cluster["status"]
        world.finish(made)
        counts["status"] += world.cluster["status"] != status
        counts["plans"] += 1
        world.now_s += made.check_again_s
    plans = counts.pop("plans")
    assert sum(counts.values()) <= 2 * HOURS, counts
    assert plans <= 2 * HOURS, plans
    assert counts["NodesProbe"] >= HOURS
    assert counts["SyncerProbe"] >= HOURS / 8
    assert counts["ServedProbe"] >= HOURS // 24 - 1
