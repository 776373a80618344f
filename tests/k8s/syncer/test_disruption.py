# SPDX-License-Identifier: Apache-2.0
"""Pods that go by force, from either side: the tenant's controllers replace them."""

from __future__ import annotations

import json

import pytest

from tests.k8s.ring.api import JsonObject
from tests.k8s.syncer.aging import AGING_POD
from tests.k8s.syncer.shops import Shop, deployment, object_of, pod, pod_spec

pytestmark = pytest.mark.timeout(300)


def _drain(node: str) -> tuple[str, ...]:
    """The arguments of kubectl; the pod that is to get old stays."""
    return (
        *("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force"),
        f"--pod-selector=app!={AGING_POD}",
    )


def _evict(shop: Shop, name: str) -> int:
    body = object_of("policy/v1", "Eviction", name)
    kubectl = shop.kubectl
    path = f"/api/v1/namespaces/{shop.namespace}/pods/{name}/eviction"
    return kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body).encode()).code


def test_tenant_evicts_a_pod(shop: Shop) -> None:
    shop.apply(deployment("web", pod_spec()))
    (before,) = shop.wait_running("app=web")
    name = before["metadata"]["name"]
    assert _evict(shop, name) == 0
    shop.wait_gone("pods", name)
    (after,) = shop.wait_running("app=web")
    assert after["metadata"]["name"] != name


def test_budget_of_the_tenant_denies_an_eviction(shop: Shop) -> None:
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    shop.apply(
        object_of("policy/v1", "PodDisruptionBudget", "web", spec=budget), deployment("web", pod_spec())
    )
    (web,) = shop.wait_running("app=web")
    shop.wait(
        "the budget has counted it",
        lambda: shop.get("poddisruptionbudgets", "web")["status"].get("currentHealthy") == 1,
    )
    assert _evict(shop, web["metadata"]["name"]) != 0
    assert shop.get("pods", web["metadata"]["name"])["metadata"]["uid"] == web["metadata"]["uid"]


def test_super_node_is_drained(shops: tuple[Shop, Shop]) -> None:
    for shop in shops:
        shop.apply(deployment("web", pod_spec(), replicas=2))
    for shop in shops:
        shop.wait_running("app=web", 2)
    shop = shops[0]
    node = shop.items("pods", "app=web")[0]["spec"]["nodeName"]
    host = shop.ring.super_kubectl
    try:
        host(*_drain(node), "--timeout=60s", timeout_s=90).check()
        shop.wait("its vNode is cordoned or gone", lambda: _is_cordoned(shop, node))
        for each in shops:
            pods = each.wait_running("app=web", 2)
            assert node not in {p["spec"]["nodeName"] for p in pods}
    finally:
        host("uncordon", node).check()


def test_budget_of_the_tenant_holds_up_a_drain(shop: Shop) -> None:
    """Its share goes down as a number: super pods have no controller that the super cluster could ask."""
    budget = {"maxUnavailable": "0%", "selector": {"matchLabels": {"app": "web"}}}
    shop.apply(
        object_of("policy/v1", "PodDisruptionBudget", "web", spec=budget),
        deployment("web", pod_spec(), replicas=2),
    )
    pods = shop.wait_running("app=web", 2)
    node = pods[0]["spec"]["nodeName"]
    shop.wait("it counts both below", lambda: _allowed(shop) == (2, 0))
    host = shop.ring.super_kubectl
    try:
        held = host(*_drain(node), "--timeout=6s", timeout_s=60)
        assert held.code != 0
        assert "disruption budget" in held.text + held.error_text
        assert {p["metadata"]["uid"] for p in shop.items("pods")} == {p["metadata"]["uid"] for p in pods}
        shop.api.patch(shop.path("poddisruptionbudgets", "web"), {"spec": {"maxUnavailable": 1}})
        host(*_drain(node), "--timeout=60s", timeout_s=90).check()
        moved = shop.wait_running("app=web", 2)
        assert node not in {p["spec"]["nodeName"] for p in moved}
    finally:
        host("uncordon", node).check()


def test_super_pod_is_deleted_in_the_super_cluster(shop: Shop) -> None:
    """The pod's life is over: its tenant object goes too, and the controller makes another."""
    shop.apply(deployment("web", pod_spec()))
    (before,) = shop.wait_running("app=web")
    name = before["metadata"]["name"]
    shop.super_api.delete(f"/api/v1/namespaces/{shop.super_namespace}/pods/{name}", grace_s=1)
    shop.wait("it is gone above", lambda: shop.find("pods", name) is None)
    shop.wait_running("app=web")


def test_grace_period_is_the_tenants(shop: Shop) -> None:
    """The container gets its signal, its time, and the tenant's pod stays until it has ended."""
    script = "trap 'echo asked; sleep 3; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    spec = pod_spec(script) | {"terminationGracePeriodSeconds": 30}
    shop.apply(pod("web", spec, labels={"app": "web"}))
    shop.wait_running("app=web")
    follow = shop.kubectl.start("logs", "-f", "web")
    shop.kubectl("delete", "pod", "web", "--wait=false").check()
    assert shop.find("pods", "web") is not None
    shop.wait_gone("pods", "web")
    out, _ = follow.communicate(timeout=20)
    assert out == b"up\nasked\n"


def test_forced_deletion(shop: Shop) -> None:
    spec = pod_spec("trap '' TERM", "while :; do sleep 1; done") | {"terminationGracePeriodSeconds": 300}
    shop.apply(pod("web", spec, labels={"app": "web"}))
    shop.wait_running("app=web")
    shop.kubectl("delete", "pod", "web", "--grace-period=0", "--force").check()
    shop.wait_gone("pods", "web")


def _is_cordoned(shop: Shop, node: str) -> bool:
    reply = shop.api.endpoint.request("GET", f"/api/v1/nodes/{node}")
    if reply.status == 404:
        return True
    found: JsonObject = reply.json()
    taints = {taint["key"] for taint in found["spec"].get("taints", [])}
    return bool(found["spec"].get("unschedulable")) and "node.kubernetes.io/unschedulable" in taints


def _allowed(shop: Shop) -> tuple[int, int] | None:
    """How many pods the budget below counts as healthy, and how many may go."""
    found = shop.in_super("poddisruptionbudgets", "web")
    status = {} if found is None else found.get("status", {})
    return (status["currentHealthy"], status["disruptionsAllowed"]) if "currentHealthy" in status else None
