# SPDX-License-Identifier: Apache-2.0
"""A vNode's processor time never falls, whatever becomes of pods, of the clock and of the pages' order."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy.ownership import Owned, OwnerIndex
from vnagent.pages.node_cpu import (
    CLOCK_SET_BACK_MS,
    MAX_ENDED_PODS,
    CpuReading,
    CpuSample,
    NodeCpu,
    PodKey,
    dump,
    load,
)

S = 1_000  # a second, in ms
WEB, DB, BANK = ("ten-a-web", "shop"), ("ten-a-back", "db"), ("ten-b-web", "bank")


def owned(key: PodKey, uid: str = "s-1") -> Owned:
    tenant = key[0][:5]
    return Owned(tenant, key[0][6:], key[1], f"t-{uid}", key[0], key[1], uid, frozenset())


INDEX = OwnerIndex([owned(WEB), owned(DB), owned(BANK)])


def reading(at_ms: int, **ns: int) -> CpuReading:
    keys = {"web": WEB, "db": DB, "bank": BANK}
    return CpuReading({keys[name]: CpuSample(each, at_ms) for name, each in ns.items()}, at_ms + 1)


def totals(*readings: CpuReading, tenant: str = "ten-a") -> list[CpuSample | None]:
    node_cpu, found = NodeCpu(), []
    for each in readings:
        node_cpu.take(each, INDEX)
        found.append(node_cpu.total(tenant))
    return found


def test_a_total_is_of_the_tenants_pods_alone() -> None:
    assert totals(reading(S, web=5, db=7, bank=100)) == [CpuSample(12, S)]
    assert totals(reading(S, web=5, db=7, bank=100), tenant="ten-b") == [CpuSample(100, S)]
    assert totals(reading(S, web=5, db=7, bank=100), tenant="ten-c") == [None]


def test_an_ended_pod_keeps_its_share() -> None:
    assert totals(reading(S, web=5, db=7), reading(2 * S, db=8), reading(3 * S)) == [
        CpuSample(12, S),
        CpuSample(13, 2 * S),
        # Without a pod the time is the node's.
        CpuSample(13, 3 * S + 1),
    ]


def test_a_pod_that_returns_goes_on() -> None:
    """The kubelet could not measure it for a while."""
    found = totals(reading(S, web=5, db=7), reading(2 * S, db=7), reading(3 * S, web=6, db=7))
    assert found == [CpuSample(12, S), CpuSample(12, 2 * S), CpuSample(13, 3 * S)]


def test_a_later_pod_of_the_name_begins_at_zero() -> None:
    found = totals(reading(S, web=50), reading(2 * S, web=1), reading(3 * S, web=4))
    assert found == [CpuSample(50, S), CpuSample(51, 2 * S), CpuSample(54, 3 * S)]


def test_an_older_page_that_comes_later_changes_nothing() -> None:
    found = totals(reading(3 * S, web=50), reading(2 * S, web=40), reading(4 * S, web=51))
    assert found == [CpuSample(50, 3 * S), CpuSample(50, 3 * S), CpuSample(51, 4 * S)]


def test_a_clock_that_is_set_back_is_followed() -> None:
    late = CLOCK_SET_BACK_MS + 10 * S
    found = totals(reading(late, web=50), reading(10 * S, web=51), reading(11 * S, web=53))
    assert found == [CpuSample(50, late), CpuSample(51, 10 * S), CpuSample(53, 11 * S)]


def test_a_page_without_pods_ends_none() -> None:
    """The kubelet cannot read its runtime. A node has more pods than are listed of the ended ones."""
    keys = [("ten-a-web", f"p-{number}") for number in range(4 * MAX_ENDED_PODS)]
    index = OwnerIndex([owned(key, f"s-{number}") for number, key in enumerate(keys)])
    node_cpu = NodeCpu()
    for second, count in enumerate((len(keys), 2 * MAX_ENDED_PODS, 1, len(keys), 0, len(keys)), start=1):
        at_ms = second * S
        node_cpu.take(CpuReading({key: CpuSample(10, at_ms) for key in keys[:count]}, at_ms), index)
        assert node_cpu.total("ten-a") == CpuSample(10 * len(keys), at_ms)


def test_two_reads_of_one_time_are_one() -> None:
    """/stats/summary has whole seconds, and has two forms that are read apart."""
    assert totals(reading(S, web=1_000_500), reading(S, web=1_000_000)) == [CpuSample(1_000_500, S)] * 2


def test_a_pod_outside_the_index_is_not_taken() -> None:
    node_cpu = NodeCpu()
    node_cpu.take(reading(S, web=5), OwnerIndex([owned(BANK)]))
    assert node_cpu.tenants == {}


def test_a_begin_and_an_end_are_reported() -> None:
    node_cpu = NodeCpu()
    steps = [reading(S, web=1), reading(2 * S, web=2), reading(3 * S, web=3, db=1), reading(4 * S, db=2)]
    assert [node_cpu.take(each, INDEX) for each in steps] == [True, False, True, True]


def test_ended_pods_are_bounded_and_none_is_forgotten() -> None:
    node_cpu = NodeCpu()
    for number in range(10 * MAX_ENDED_PODS):
        key = ("ten-a-web", f"job-{number}")
        taken = CpuReading({key: CpuSample(10, number)}, number)
        node_cpu.take(taken, OwnerIndex([owned(key)]))
        assert node_cpu.total("ten-a") == CpuSample(10 * (number + 1), number)
        assert len(node_cpu.tenants["ten-a"].pods) <= MAX_ENDED_PODS + 1


def test_a_removed_tenants_total_is_forgotten() -> None:
    node_cpu = NodeCpu()
    node_cpu.take(reading(S, web=5, bank=7), INDEX)
    node_cpu.keep_only({"ten-b", "ten-c"})
    assert set(node_cpu.tenants) == {"ten-b"}


def test_totals_go_on_after_a_restart() -> None:
    node_cpu = NodeCpu()
    node_cpu.take(reading(S, web=5, db=7, bank=100), INDEX)
    node_cpu.take(reading(2 * S, db=2), INDEX)
    restored = load(dump({"resource": node_cpu, "summary": NodeCpu()}))
    assert {page: each.tenants for page, each in restored.items()} == {
        "resource": node_cpu.tenants,
        "summary": {},
    }
    restored["resource"].take(reading(3 * S, web=6, db=3), INDEX)
    assert restored["resource"].total("ten-a") == CpuSample(6 + 7 + 3, 3 * S)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"[]",
        b'{"resource":{"ten-a":{"endedNs":-1,"atMs":0,"pods":[]}}}',
        b'{"resource":{"ten-a":{"endedNs":1.5,"atMs":0,"pods":[]}}}',
        b'{"resource":{"ten-a":{"endedNs":1,"atMs":0,"pods":[["ns","name",1,2]]}}}',
        b'{"resource":{"ten-a":{"endedNs":1,"atMs":0}}}',
    ],
)
def test_damaged_totals_are_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|Expected|truncated|required"):
        load(damaged)


@dataclass
class NodeModel:
    """A model of a node: each pod's true processor time, and the sum over all pods that a page has shown."""

    pods: dict[PodKey, int] = field(default_factory=dict)
    uids: dict[PodKey, int] = field(default_factory=dict)
    shown: dict[tuple[PodKey, int], int] = field(default_factory=dict)

    def page(self, at_ms: int) -> CpuReading:
        for key, ns in self.pods.items():
            self.shown[key, self.uids[key]] = ns
        return CpuReading({key: CpuSample(ns, at_ms) for key, ns in self.pods.items()}, at_ms)

    def total(self, tenant: str) -> int:
        return sum(ns for (key, _), ns in self.shown.items() if key[0].startswith(tenant))


_EVENT = st.tuples(
    st.sampled_from(["begin", "end", "work", "page", "page", "old page", "restart"]),
    st.sampled_from([WEB, DB, BANK]),
    st.integers(1, 10**12),
)


@settings(max_examples=300)
@given(st.lists(_EVENT, max_size=40))
def test_totals_are_the_true_ones_and_never_fall(events: list[tuple[str, PodKey, int]]) -> None:
    """A pod's successor that has used less than its predecessor when a page first shows it."""
    node, node_cpu, at_ms = NodeModel(), NodeCpu(), S
    pages: list[CpuReading] = []
    before = {"ten-a": 0, "ten-b": 0}
    for kind, key, ns in events:
        at_ms += S
        if kind == "begin" and key not in node.pods:
            node.pods[key], node.uids[key] = 0, at_ms
        elif kind == "end":
            node.pods.pop(key, None)
        elif kind == "work" and key in node.pods:
            node.pods[key] += ns
        elif kind == "restart":
            node_cpu = load(dump({"page": node_cpu}))["page"]
        elif kind == "old page" and pages:
            node_cpu.take(pages[ns % len(pages)], INDEX)
        elif kind == "page":
            pages.append(node.page(at_ms))
            node_cpu.take(pages[-1], INDEX)
        for tenant, was in before.items():
            total = node_cpu.total(tenant)
            is_now = 0 if total is None else total.ns
            # A successor that has used more than its predecessor looks like it.
            assert was <= is_now <= node.total(tenant)
            before[tenant] = is_now
