# SPDX-License-Identifier: Apache-2.0
"""Which series vc-operator has, and from when on."""

import msgspec
import pytest

from tenant_operator.metrics import MAX_REASONS, OperatorMetrics, readiness_counts
from tenant_operator.model.virtual_cluster import Condition, VirtualCluster, VirtualClusterStatus
from tests.unit.tenant_operator.core.worlds import virtual_cluster


def cluster(status: str = "", reason: str = "") -> VirtualCluster:
    conditions = [Condition("Ready", status, reason)] if status else []
    conditions.append(Condition("", "True", "OutOfMemory"))
    found = msgspec.convert(virtual_cluster(), VirtualCluster)
    return msgspec.structs.replace(found, status=VirtualClusterStatus(conditions=conditions))


def test_they_are_counted_by_readiness_and_reason() -> None:
    clusters = [
        cluster("True", "TenantReady"),
        cluster("False", "NotSynced"),
        cluster("False", "NotSynced"),
        cluster(),
    ]
    assert readiness_counts(clusters) == {
        ("True", "TenantReady"): 1.0,
        ("False", "NotSynced"): 2.0,
        ("Unknown", "NotReconciled"): 1.0,
    }


def test_the_words_of_others_are_bounded() -> None:
    clusters = [cluster("False", f"Reason{number}") for number in range(MAX_REASONS + 60)]
    clusters += [cluster("True", "TenantReady")] * 2
    found = readiness_counts(clusters)
    assert len(found) == MAX_REASONS + 1
    assert sum(found.values()) == MAX_REASONS + 62
    assert (found["False", "Other"], found["True", "TenantReady"]) == (61.0, 2.0)


@pytest.mark.asyncio
async def test_a_scrape_reads_what_is_known_then() -> None:
    metrics, clusters = OperatorMetrics(), [cluster("True", "TenantReady")]
    leads = False
    metrics.watch(lambda: clusters, lambda: leads)
    found = {each.name: dict(each.series) for each in metrics.registry.snapshot()}
    assert found["vcnode_tenantoperator_virtual_clusters"] == {("True", "TenantReady"): 1.0}
    assert found["vcnode_tenantoperator_leaders"] == {(): 0.0}
    clusters, leads = [], True
    found = {each.name: dict(each.series) for each in metrics.registry.snapshot()}
    assert found["vcnode_tenantoperator_virtual_clusters"] == {}
    assert found["vcnode_tenantoperator_leaders"] == {(): 1.0}
