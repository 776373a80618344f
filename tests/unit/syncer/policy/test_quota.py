# SPDX-License-Identifier: Apache-2.0
"""The quota of a whole tenant: its ResourceQuotas, and the sum of what went down."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devkit.syncer.fake_view import TENANT
from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import quota
from syncer.policy.quota import TenantUsage
from syncer.policy.sync_policy import DEFAULT, SyncPolicy
from syncer.policy.usage import Usage
from tests.unit.syncer.policy.arbitrary_json import are_refusals, changed

ONE, MILLI = 10**9, 10**6

POLICY = SyncPolicy(quota=(("pods", 3 * ONE), ("requests.cpu", 2_500 * MILLI), ("services", ONE)))


def cpu(amount: int) -> Usage:
    return {"pods": ONE, "requests.cpu": amount}


def test_no_limits_make_no_quota() -> None:
    assert quota.resource_quota(DEFAULT, "vcs-7aad2b-tenant-00-shop", TENANT) is None
    assert quota.resource_quota(SyncPolicy(quota=(("secrets", ONE),)), "a", TENANT) is None


def test_each_super_namespace_has_the_limits_of_the_tenant() -> None:
    assert quota.resource_quota(POLICY, "vcs-7aad2b-tenant-00-shop", TENANT) == {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": "vcnode-tenant-quota",
            "namespace": "vcs-7aad2b-tenant-00-shop",
            "labels": {"tenancy.x-k8s.io/vcname": "tenant-00", "tenancy.x-k8s.io/vcnamespace": "vcs"},
            "annotations": {
                "tenancy.x-k8s.io/cluster": "vcs-7aad2b-tenant-00",
                "tenancy.x-k8s.io/vcname": "tenant-00",
                "tenancy.x-k8s.io/vcnamespace": "vcs",
            },
        },
        "spec": {"hard": {"pods": "3", "requests.cpu": "2500m"}},
    }


STATED = SyncPolicy(quota=(("limits.memory", ONE), ("pods", ONE), ("requests.cpu", ONE)))
BARE: Object = {
    "spec": {
        "initContainers": [{"name": "a"}],
        "containers": [{"name": "b", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1"}}}],
    }
}


def test_a_limit_must_be_stated_by_each_container() -> None:
    assert quota.refusals(BARE, STATED) == (
        Refusal(
            "spec.initContainers[0].resources.limits.memory",
            "is not set: SyncPolicy field spec.quota.hard[limits.memory] does not allow it",
        ),
        Refusal(
            "spec.initContainers[0].resources.requests.cpu",
            "is not set: SyncPolicy field spec.quota.hard[requests.cpu] does not allow it",
        ),
    )
    assert quota.refusals(BARE, SyncPolicy(quota=(("pods", ONE),))) == ()


def test_a_limit_may_be_stated_by_the_pod() -> None:
    own = {"requests": {"cpu": "1"}, "limits": {"memory": "1"}}
    assert quota.refusals({"spec": {**BARE["spec"], "resources": own}}, STATED) == ()


@given(changed(BARE))
def test_any_json_gives_refusals(value: Object) -> None:
    assert are_refusals(quota.refusals(value, STATED))


def test_what_exceeds_the_quota_is_refused_and_not_counted() -> None:
    used = TenantUsage()
    assert used.try_add("a", cpu(2 * ONE), POLICY) is None
    assert used.try_add("b", cpu(501 * MILLI), POLICY) == Refusal(
        "spec",
        "exceeds the tenant's quota: requests.cpu 501m more, used 2 of 2500m "
        "(SyncPolicy field spec.quota.hard[requests.cpu])",
    )
    assert used.total() == {"pods": ONE, "requests.cpu": 2 * ONE}
    assert used.try_add("b", cpu(500 * MILLI), POLICY) is None
    used.remove("a")
    assert used.total() == {"pods": ONE, "requests.cpu": 500 * MILLI}


def test_an_object_that_is_counted_takes_its_new_usage() -> None:
    used = TenantUsage()
    assert used.try_add("a", cpu(2 * ONE), POLICY) is None
    assert used.try_add("a", cpu(2_500 * MILLI), POLICY) is None
    refused = used.try_add("a", cpu(3 * ONE), POLICY)
    assert refused is not None
    assert "requests.cpu 500m more, used 2500m of 2500m" in refused.message
    assert used.try_add("a", {}, POLICY) is None
    assert used.total() == {}


def test_what_is_there_counts_whatever_the_limits() -> None:
    """After a restart, or after a lower limit: what is above it may shrink, and nothing may be added."""
    used = TenantUsage()
    used.count("a", cpu(9 * ONE))
    assert used.try_add("a", cpu(8 * ONE), POLICY) is None
    assert used.try_add("b", cpu(MILLI), POLICY) is not None
    assert used.try_add("c", {"pods": ONE}, POLICY) is None
    assert used.try_add("d", cpu(ONE), DEFAULT) is None


def test_removing_what_is_not_counted_changes_nothing() -> None:
    used = TenantUsage()
    used.remove("a")
    used.count("b", cpu(ONE))
    used.remove("a")
    assert used.total() == {"pods": ONE, "requests.cpu": ONE}


_NAMES = st.sampled_from(["pods", "requests.cpu", "services", "configmaps"])
_USAGES = st.dictionaries(_NAMES, st.integers(0, 4 * ONE))
_STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.none() | _USAGES), max_size=20)


@given(_STEPS)
def test_total_is_the_sum_and_within_the_limits(steps: list[tuple[str, Usage | None]]) -> None:
    used, model = TenantUsage(), dict[str, Usage]()
    for key, usage in steps:
        if usage is None:
            used.remove(key)
            model.pop(key, None)
        elif used.try_add(key, usage, POLICY) is None:
            model[key] = usage
    total: dict[str, int] = {}
    for usage in model.values():
        for name, amount in usage.items():
            total[name] = total.get(name, 0) + amount
    assert used.total() == {name: amount for name, amount in total.items() if amount}
    assert all(total.get(name, 0) <= limit for name, limit in POLICY.quota)


def test_usage_of_nothing_is_not_counted() -> None:
    used = TenantUsage()
    used.count("a", {"pods": 0})
    used.count("b", {"pods": 0})
    used.remove("a")
    used.remove("b")
    assert used.total() == {}


@pytest.mark.parametrize("usage", [{}, {"services": ONE}])
def test_usage_of_one_kind_leaves_the_others(usage: Usage) -> None:
    used = TenantUsage()
    used.count("pod", cpu(9 * ONE))
    assert used.try_add("service", usage, POLICY) is None
