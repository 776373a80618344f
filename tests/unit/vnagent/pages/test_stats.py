# SPDX-License-Identifier: Apache-2.0
import json
from typing import Any

import pytest

from devkit.kubelet.pods import FakePod, summary
from tenancy.ownership import Owned, OwnerIndex
from tests.rebuilt_pages import tenants_page
from vnagent.pages.page import PageError, View
from vnagent.pages.stats import SUMMARY, SUMMARY_ONLY_CPU_AND_MEMORY

EARLY, LATE = "2026-01-02T04:05:06Z", "2026-01-02T04:05:09Z"
STARTED = "2026-01-02T03:04:05Z"
BOOTED = "2025-12-24T00:00:00Z"

INDEX = OwnerIndex(
    [
        Owned("ten-a", "web", "shop", "a-1", "ten-a-web", "shop", "s-1001", frozenset({"app"})),
        Owned("ten-a", "back", "db", "a-2", "ten-a-back", "db", "s-1002", frozenset({"app"})),
        Owned("ten-b", "web", "bank", "b-1", "ten-b-web", "bank", "s-2001", frozenset({"app"})),
    ]
)


def cpu(cores: int, total: int, time: str = EARLY) -> dict[str, Any]:
    return {"time": time, "usageNanoCores": cores, "usageCoreNanoSeconds": total}


def memory(size: int, time: str = EARLY) -> dict[str, Any]:
    return {"time": time, "usageBytes": size + 2, "workingSetBytes": size, "rssBytes": size - 2}


SHARED = {"availableBytes": 9999, "capacityBytes": 99999, "inodesFree": 999, "inodes": 9999}
USED = {"time": EARLY, "usedBytes": 5, "inodesUsed": 2}
PSI = {
    "full": {"total": 1, "avg10": 0.5, "avg60": 0, "avg300": 0},
    "some": {"total": 2, "avg10": 0, "avg60": 0, "avg300": 0},
}
NETWORK = {"time": EARLY, "name": "eth0", "rxBytes": 1, "rxErrors": 2, "txBytes": 3, "txErrors": 4}
ETH0 = {"name": "eth0", "rxBytes": 1, "rxErrors": 2, "txBytes": 3, "txErrors": 4}

SHOP: dict[str, Any] = {
    "podRef": {"name": "shop", "namespace": "ten-a-web", "uid": "s-1001"},
    "startTime": STARTED,
    "containers": [
        {
            "name": name,
            "startTime": STARTED,
            "cpu": cpu(10, 100) | {"psi": PSI},
            "memory": memory(1000) | {"availableBytes": 7, "pageFaults": 8, "majorPageFaults": 9},
            "io": {"time": EARLY, "psi": PSI},
            "accelerators": [{"make": "host"}],
            "rootfs": USED | SHARED,
            "logs": USED | SHARED,
            "userDefinedMetrics": [{"name": "host"}],
            "swap": {"time": EARLY, "swapAvailableBytes": 1, "swapUsageBytes": 0},
            "futureField": "future",
        }
        for name in ("app", "mesh-proxy")
    ],
    "cpu": cpu(30, 300),
    "memory": memory(3000),
    "io": {"time": EARLY},
    "network": NETWORK | {"interfaces": [ETH0]},
    "volume": [
        {**USED, **SHARED, "name": "data", "pvcRef": {"name": "data-0", "namespace": "ten-a-web"}},
        {**USED, **SHARED, "name": "scratch"},
        {**USED, **SHARED, "name": "odd", "pvcRef": {"name": "data-0", "namespace": "ten-b-web"}},
    ],
    "ephemeral-storage": USED | SHARED,
    "process_stats": {"process_count": 3, "future": 1},
    "swap": {"time": EARLY, "swapUsageBytes": 0},
    "futureField": {"x": "future"},
}
DB: dict[str, Any] = {
    "podRef": {"name": "db", "namespace": "ten-a-back", "uid": "s-1002"},
    "startTime": LATE,
    "containers": [{"name": "app", "startTime": LATE}],
    "cpu": cpu(5, 50, LATE),
    "memory": memory(500, LATE),
}
BANK = DB | {"podRef": {"name": "bank", "namespace": "ten-b-web", "uid": "s-2001"}}
# A pod that has only begun has neither.
WITHOUT_STATS = {"podRef": BANK["podRef"], "startTime": None, "containers": None}
NODE: dict[str, Any] = {
    "nodeName": "node-1",
    "systemContainers": [{"name": "kubelet", "startTime": BOOTED, "cpu": cpu(1, 1)}],
    "startTime": BOOTED,
    "cpu": cpu(987654, 987654321),
    "memory": memory(4096000) | {"availableBytes": 123456},
    "network": NETWORK | {"interfaces": [ETH0]},
    "fs": USED | SHARED,
    "runtime": {"imageFs": USED | SHARED},
    "rlimit": {"time": EARLY, "maxpid": 4194304, "curproc": 1234},
    "swap": {"time": EARLY, "swapUsageBytes": 77},
}


def page(*pods: dict[str, Any], node: dict[str, Any] = NODE) -> bytes:
    return json.dumps({"node": node, "pods": list(pods)}).encode()


def test_the_tenants_pods_and_their_sum() -> None:
    assert json.loads(tenants_page(SUMMARY, page(SHOP, BANK, DB), INDEX, "ten-a")) == {
        "node": {
            "nodeName": "node-1",
            "startTime": STARTED,
            "cpu": cpu(35, 350, LATE),
            "memory": {"time": LATE, "usageBytes": 3504, "workingSetBytes": 3500, "rssBytes": 3496},
            "swap": {"time": EARLY, "swapUsageBytes": 0},
        },
        "pods": [
            {
                "podRef": {"name": "shop", "namespace": "web", "uid": "a-1"},
                "startTime": STARTED,
                "containers": [
                    {
                        "name": "app",
                        "startTime": STARTED,
                        "cpu": cpu(10, 100) | {"psi": PSI},
                        "memory": memory(1000) | {"availableBytes": 7, "pageFaults": 8, "majorPageFaults": 9},
                        "io": {"time": EARLY, "psi": PSI},
                        "rootfs": USED,
                        "logs": USED,
                        "swap": {"time": EARLY, "swapAvailableBytes": 1, "swapUsageBytes": 0},
                    }
                ],
                "cpu": cpu(30, 300),
                "memory": memory(3000),
                "io": {"time": EARLY},
                "network": NETWORK | {"interfaces": [ETH0]},
                "volume": [
                    {**USED, **SHARED, "name": "data", "pvcRef": {"name": "data-0", "namespace": "web"}},
                    {**USED, "name": "scratch"},
                    {**USED, "name": "odd"},
                ],
                "ephemeral-storage": USED,
                "process_stats": {"process_count": 3},
                "swap": {"time": EARLY, "swapUsageBytes": 0},
            },
            {
                "podRef": {"name": "db", "namespace": "back", "uid": "a-2"},
                "startTime": LATE,
                "containers": [{"name": "app", "startTime": LATE}],
                "cpu": cpu(5, 50, LATE),
                "memory": memory(500, LATE),
            },
        ],
    }


def test_cpu_and_memory_only() -> None:
    assert json.loads(tenants_page(SUMMARY_ONLY_CPU_AND_MEMORY, page(SHOP, BANK), INDEX, "ten-a")) == {
        "node": {
            "nodeName": "node-1",
            "startTime": STARTED,
            "cpu": cpu(30, 300),
            "memory": {"time": EARLY, "usageBytes": 3002, "workingSetBytes": 3000, "rssBytes": 2998},
            "swap": {"time": EARLY, "swapUsageBytes": 0},
        },
        "pods": [
            {
                "podRef": {"name": "shop", "namespace": "web", "uid": "a-1"},
                "startTime": STARTED,
                "containers": [
                    {
                        "name": "app",
                        "startTime": STARTED,
                        "cpu": cpu(10, 100) | {"psi": PSI},
                        "memory": memory(1000) | {"availableBytes": 7, "pageFaults": 8, "majorPageFaults": 9},
                        "swap": {"time": EARLY, "swapAvailableBytes": 1, "swapUsageBytes": 0},
                    }
                ],
                "cpu": cpu(30, 300),
                "memory": memory(3000),
                "swap": {"time": EARLY, "swapUsageBytes": 0},
            }
        ],
    }


NOTHING = {
    "node": {
        "nodeName": "node-1",
        "startTime": BOOTED,
        "cpu": cpu(0, 0),
        "memory": {"time": EARLY, "usageBytes": 0, "workingSetBytes": 0, "rssBytes": 0},
        "swap": {"time": EARLY, "swapUsageBytes": 0},
    },
    "pods": [],
}


def test_a_tenant_without_pods_has_an_idle_node() -> None:
    assert json.loads(tenants_page(SUMMARY, page(SHOP, DB, BANK), INDEX, "ten-c")) == NOTHING
    assert json.loads(tenants_page(SUMMARY_ONLY_CPU_AND_MEMORY, page(SHOP), INDEX, "ten-b")) == NOTHING


def test_a_pod_and_a_node_without_stats() -> None:
    rebuilt = json.loads(
        tenants_page(SUMMARY, page(WITHOUT_STATS, node={"nodeName": "node-1"}), INDEX, "ten-b")
    )
    assert rebuilt == {
        "node": {
            "nodeName": "node-1",
            "cpu": {"usageNanoCores": 0, "usageCoreNanoSeconds": 0},
            "memory": {"usageBytes": 0, "workingSetBytes": 0, "rssBytes": 0},
        },
        "pods": [{"podRef": {"name": "bank", "namespace": "web", "uid": "b-1"}, "containers": []}],
    }


@pytest.mark.parametrize(
    ("was", "is_now"),
    [(b"s-1001", b"s-7777"), (b'"ten-a-web"', b'"ten-b-web"'), (b'"name": "shop"', b'"name": "bank"')],
)
def test_namespace_name_and_uid_must_match(was: bytes, is_now: bytes) -> None:
    changed = page(SHOP, node={"nodeName": "n"}).replace(was, is_now)
    assert json.loads(tenants_page(SUMMARY, changed, INDEX, "ten-a"))["pods"] == []
    assert json.loads(tenants_page(SUMMARY, changed, INDEX, "ten-b"))["pods"] == []


def test_a_duplicate_namespace_has_one_value() -> None:
    twice = page(SHOP).replace(
        b'"namespace": "ten-a-web", "uid"', b'"namespace": "ten-a-web", "namespace": "ten-b-web", "uid"'
    )
    assert json.loads(tenants_page(SUMMARY, twice, INDEX, "ten-a")) == NOTHING
    other = page(SHOP).replace(
        b'"namespace": "ten-a-web", "uid"', b'"namespace": "ten-b-web", "namespace": "ten-a-web", "uid"'
    )
    assert b"ten-b" not in tenants_page(SUMMARY, other, INDEX, "ten-a")


def test_a_fake_kubelets_page() -> None:
    """Values that the fake plants for the host or another pod are left out."""
    shop = FakePod("ten-a-web", "shop", "s-1001", injected=("mesh-proxy",))
    bank = FakePod("ten-b-web", "bank", "s-2001")
    raw = json.dumps(summary([bank, shop], "node-1")).encode()
    text = tenants_page(SUMMARY, raw, INDEX, "ten-a").decode()
    assert "shop" in text
    for word in ("bank", "ten-", "s-1001", "s-2001", "mesh-proxy", "systemContainers", "rlimit", "marker"):
        assert word not in text


GOOD = page(SHOP, BANK)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"{}",
        b"[]",
        b'{"pods":[]}',
        GOOD[:-1],
        GOOD + b"]",
        GOOD.replace(b'"usedBytes": 5', b'"usedBytes": "5"'),
        GOOD.replace(b'"uid": "s-1001"', b'"uid": null'),
        b'{"node":{"nodeName":"n"},"pods":' + b"[" * 100_000,
    ],
)
def test_another_page_is_an_error(bad: bytes) -> None:
    with pytest.raises(PageError):
        tenants_page(SUMMARY, bad, INDEX, "ten-a")


HUGE = (1 << 64) - 1


def test_a_sum_is_a_number_that_a_client_can_read() -> None:
    """The API's numbers are uint64, which Go's decoder holds a whole summary to."""
    huge = SHOP | {
        "cpu": cpu(HUGE, HUGE),
        "memory": {"time": EARLY, "usageBytes": HUGE, "workingSetBytes": HUGE, "rssBytes": HUGE},
        "swap": {"time": EARLY, "swapUsageBytes": HUGE},
    }
    node = json.loads(tenants_page(SUMMARY, page(huge, DB | {"swap": SHOP["swap"]}), INDEX, "ten-a"))["node"]
    assert node["cpu"]["usageNanoCores"] == HUGE
    assert node["memory"] == {
        "time": LATE,
        **dict.fromkeys(("usageBytes", "workingSetBytes", "rssBytes"), HUGE),
    }
    assert node["swap"] == {"time": EARLY, "swapUsageBytes": HUGE}


def test_the_nodes_own_figures_have_pressure_and_swap() -> None:
    own = NODE | {
        "cpu": NODE["cpu"] | {"psi": PSI},
        "memory": NODE["memory"] | {"psi": PSI},
        "io": {"time": EARLY, "psi": PSI},
    }
    shown = json.loads(
        SUMMARY.render(SUMMARY.parse(page(node=own)), View(INDEX, "ten-a", has_node_figures=True))
    )
    kept = ("nodeName", "startTime", "cpu", "memory", "io", "swap")
    assert shown["node"] == {name: own[name] for name in kept}


def test_a_node_without_swap_has_none() -> None:
    node = {name: value for name, value in NODE.items() if name != "swap"}
    assert "swap" not in json.loads(tenants_page(SUMMARY, page(DB, node=node), INDEX, "ten-a"))["node"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_a_container_and_its_predecessor_the_newest_is_shown(order: tuple[int, int]) -> None:
    containers = [
        {"name": "app", "startTime": EARLY, "cpu": cpu(1, 900)},
        {"name": "app", "startTime": LATE, "cpu": cpu(2, 5)},
    ]
    shop = SHOP | {"containers": [containers[number] for number in order]}
    (pod,) = json.loads(tenants_page(SUMMARY, page(shop), INDEX, "ten-a"))["pods"]
    assert pod["containers"] == [containers[1]]
