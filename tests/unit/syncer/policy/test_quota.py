# SPDX-License-Identifier: Apache-2.0
"""The quota of a whole tenant: what containers must state, and the sum of what went down."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import limits, quota
from syncer.policy.quota import TenantUsage
from syncer.policy.sync_policy import SyncPolicy
from syncer.policy.usage import Usage
from tests.unit.syncer.policy.arbitrary_json import are_refusals, changed

ONE, MILLI = 10**9, 10**6

HARD = {"pods": 3 * ONE, "requests.cpu": 2_500 * MILLI, "services.nodeports": ONE, "count/secrets": 2 * ONE}


@dataclass(slots=True)
class Stored:
    """What the caches have."""

    stored_bytes: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, name: str) -> int:
        return self.counts.get(name, 0)


def ledger(stored: Stored | None = None) -> TenantUsage:
    return TenantUsage(HARD, stored or Stored())


def cpu(amount: int) -> Usage:
    return {"pods": ONE, "requests.cpu": amount}


STATED = SyncPolicy(quota=(("limits.memory", ONE), ("pods", ONE), ("requests.cpu", ONE)))
BARE: Object = {
    "spec": {
        "initContainers": [{"name": "a"}],
        "containers": [{"name": "b", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1"}}}],
    }
}


def test_a_limit_must_be_stated_by_each_container() -> None:
    assert quota.unstated(BARE, STATED) == (
        Refusal(
            "spec.initContainers[0].resources.limits.memory",
            "must be specified: SyncPolicy field spec.quota.hard[limits.memory] limits it",
        ),
        Refusal(
            "spec.initContainers[0].resources.requests.cpu",
            "must be specified: SyncPolicy field spec.quota.hard[requests.cpu] limits it",
        ),
    )
    assert quota.unstated(BARE, SyncPolicy(quota=(("pods", ONE),))) == ()


@pytest.mark.parametrize(
    ("name", "is_demanded"),
    [
        ("requests.cpu", True),
        ("requests.memory", True),
        ("requests.ephemeral-storage", True),
        ("limits.cpu", True),
        ("limits.memory", True),
        ("limits.ephemeral-storage", True),
        # Who states none gets none.
        ("requests.hugepages-2Mi", False),
        ("requests.example.com/gpu", False),
        ("count/pods", False),
    ],
)
def test_what_is_had_without_being_stated_is_demanded(name: str, is_demanded: bool) -> None:
    pod: Object = {"spec": {"containers": [{"name": "a"}]}}
    assert bool(quota.unstated(pod, SyncPolicy(quota=((name, ONE),)))) is is_demanded


def test_a_limit_may_be_stated_by_the_pod() -> None:
    own = {"requests": {"cpu": "1"}, "limits": {"memory": "1"}}
    assert quota.unstated({"spec": {**BARE["spec"], "resources": own}}, STATED) == ()


def test_a_request_may_be_stated_by_the_limit() -> None:
    pod: Object = {"spec": {"containers": [{"resources": {"limits": {"cpu": "1"}}}]}}
    assert quota.unstated(pod, SyncPolicy(quota=(("requests.cpu", ONE),))) == ()
    assert quota.unstated(pod, SyncPolicy(quota=(("requests.memory", ONE),))) != ()


def test_a_pods_resources_state_no_ephemeral_storage() -> None:
    pod: Object = {"spec": {"resources": {"requests": {"ephemeral-storage": "1"}}, "containers": [{}]}}
    assert quota.unstated(pod, SyncPolicy(quota=(("requests.ephemeral-storage", ONE),))) != ()


@given(changed(BARE))
def test_any_json_gives_refusals(value: Object) -> None:
    assert are_refusals(quota.unstated(value, STATED))


def test_what_exceeds_the_quota_is_refused() -> None:
    used = ledger()
    used.reserve("a", cpu(2 * ONE))
    assert used.excess("b", cpu(501 * MILLI)) == Refusal(
        "spec",
        "exceeds the tenant's quota: requests.cpu 501m more, used 2 of 2500m "
        "(SyncPolicy field spec.quota.hard[requests.cpu])",
    )
    assert used.total() == {"pods": ONE, "requests.cpu": 2 * ONE}
    assert used.excess("b", cpu(500 * MILLI)) is None


def test_counts_and_bytes_are_those_of_the_caches() -> None:
    used = TenantUsage(limits.DEFAULTS, Stored(127 << 20, {"count/namespaces": 199}))
    assert used.excess("a", {"count/namespaces": ONE, limits.STORED_BYTES: ONE << 20}) is None
    used.reserve("a", {"count/namespaces": ONE})
    assert used.excess("b", {"count/namespaces": ONE}) == Refusal(
        "spec",
        "exceeds the tenant's quota: count/namespaces 1 more, used 200 of 200 "
        "(SyncPolicy field spec.quota.hard[count/namespaces])",
    )
    refused = used.excess("b", {limits.STORED_BYTES: (ONE << 20) + ONE})
    assert refused is not None
    assert "vcnode.io/stored-bytes 1048577 more, used 133169152 of 134217728" in refused.message


def test_a_short_name_and_its_count_are_one_limit() -> None:
    found = limits.in_force((("count/secrets", 9 * ONE), ("pods", ONE), ("secrets", 3 * ONE)))
    assert found["count/secrets"] == 3 * ONE
    assert "secrets" not in found
    assert (found["pods"], found["count/pods"]) == (ONE, 10_000 * ONE)


def test_a_custom_resource_has_a_limit_without_a_name() -> None:
    assert limits.limit_of(limits.in_force(()), "count/widgets.example.com") == 2_000 * ONE
    own = limits.in_force((("count/widgets.example.com", 5 * ONE),))
    assert limits.limit_of(own, "count/widgets.example.com") == 5 * ONE
    assert limits.limit_of(own, "requests.cpu") is None


def test_what_is_judged_anew_does_not_count_twice() -> None:
    used = ledger()
    used.reserve("a", cpu(2_500 * MILLI))
    assert used.excess("a", cpu(2_500 * MILLI)) is None
    assert used.excess("a", cpu(2_501 * MILLI)) is not None
    assert used.release("a")
    assert not used.release("a")
    assert used.total() == {}


def test_what_is_there_counts_whatever_the_limits() -> None:
    """After a restart, or after a lower limit: what is above it may shrink, and nothing may be added."""
    used = ledger()
    used.count("a", cpu(9 * ONE))
    assert used.excess("a", used.difference("a", cpu(8 * ONE))) is None
    assert used.excess("b", cpu(MILLI)) is not None
    assert used.excess("c", {"pods": ONE}) is None
    assert used.count("a", cpu(ONE))
    assert not used.count("a", cpu(2 * ONE))


def test_removing_what_is_not_counted_changes_nothing() -> None:
    used = ledger()
    assert not used.remove("a")
    used.count("b", cpu(ONE))
    assert not used.remove("a")
    assert used.total() == {"pods": ONE, "requests.cpu": ONE}


_NAMES = st.sampled_from(["pods", "requests.cpu", "services.nodeports", "count/secrets"])
_USAGES = st.dictionaries(_NAMES, st.integers(0, 4 * ONE))
_STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.none() | _USAGES), max_size=20)


@given(_STEPS)
def test_what_is_allowed_is_within_the_limits(steps: list[tuple[str, Usage | None]]) -> None:
    """Whatever was reserved, shown by the caches or ended, in any order."""
    used, model = ledger(), dict[str, Usage]()
    for key, usage in steps:
        if usage is None:
            used.release(key)
            used.remove(key)
            model.pop(key, None)
        elif key not in model and used.excess(key, usage) is None:
            used.reserve(key, usage)
            if len(usage) % 2:
                used.release(key)
                used.count(key, usage)
            model[key] = usage
    total: dict[str, int] = {}
    for usage in model.values():
        for name, amount in usage.items():
            total[name] = total.get(name, 0) + amount
    assert used.total() == {name: amount for name, amount in total.items() if amount}
    assert all(total.get(name, 0) <= limit for name, limit in HARD.items())


@pytest.mark.parametrize("usage", [{}, {"services.nodeports": ONE}])
def test_usage_of_one_kind_leaves_the_others(usage: Usage) -> None:
    used = ledger()
    used.count("pod", cpu(9 * ONE))
    assert used.excess("service", usage) is None
