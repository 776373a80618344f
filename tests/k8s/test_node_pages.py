# SPDX-License-Identifier: Apache-2.0
"""The node's pages through the tenant's apiserver: its own pods in them, and nothing else."""

from __future__ import annotations

import json
import re

import pytest

from tests.k8s.ring.cluster import NODE, Ring
from tests.k8s.ring.kubectl import KubectlResult
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.tenants import RingTenant
from vnagent.core.kubelet_request import PAGE_PATHS

_PAGE_PATHS = tuple(path.removeprefix("/") for path in PAGE_PATHS.values())

# Of the ring's pods, these are each tenant's.
_PODS = (
    {"web", "only-acme", "faller", "answerer", "waiting", "ended"},
    {"web"},
)


def _get(tenant: RingTenant, path: str) -> KubectlResult:
    return tenant.kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/{path}")


def _page(tenant: RingTenant, path: str) -> str:
    return _get(tenant, path).check().text


def _pod_rows(text: str, family: str) -> set[tuple[str, str, str]]:
    """Namespace, pod and container of every row of a family."""
    rows = set()
    for line in text.splitlines():
        if line.startswith(f"{family}{{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            rows.add((labels["namespace"], labels["pod"], labels.get("container", "")))
    return rows


@pytest.mark.parametrize("path", _PAGE_PATHS)
@pytest.mark.parametrize("index", [0, 1])
def test_no_page_has_a_word_of_others(served: Ring, index: int, path: str) -> None:
    tenant, other = served.tenants[index], served.tenants[1 - index]
    text = _page(tenant, path)
    pods = served.super_cluster.api.get("/api/v1/pods")["items"]
    foreign_words = {
        *(tenant.key, other.key, tenant.super_namespace(""), "kube-system", "node-agent"),
        *("mesh-proxy", "labnode", served.directory.name, "machine_", "10.70.0.1"),
        *(pod["metadata"]["uid"] for pod in pods),
        *(f'"{name}"' for name in _PODS[1 - index] - _PODS[index]),
    }
    if index == 0:
        foreign_words.add("acme-x")
    # The tenant's own objects may say where the node is, as its vNode does.
    text = text.replace(served.node.namespace.address, "")
    assert [word for word in sorted(foreign_words) if word in text] == []


@pytest.mark.parametrize("index", [0, 1])
def test_pods_are_the_tenants_own(served: Ring, index: int) -> None:
    tenant = served.tenants[index]
    page = json.loads(_page(tenant, "pods"))
    assert page["kind"] == "PodList"
    assert {p["metadata"]["name"] for p in page["items"]} == _PODS[index]
    own = tenant.api.get("/api/v1/namespaces/default/pods")["items"]
    uids = {p["metadata"]["name"]: p["metadata"]["uid"] for p in own}
    for pod in page["items"]:
        assert pod["metadata"]["namespace"] == "default"
        assert pod["metadata"]["uid"] == uids[pod["metadata"]["name"]]
    web = next(p for p in page["items"] if p["metadata"]["name"] == "web")
    assert [c["name"] for c in web["spec"]["containers"]] == ["main", "side"]
    assert {c["name"] for c in web["status"]["containerStatuses"]} == {"main", "side"}


def test_running_pods_are_the_tenants_own(served: Ring, acme: RingTenant) -> None:
    page = json.loads(_page(acme, "runningpods/"))
    names = {p["metadata"]["name"] for p in page["items"]}
    # The sandbox of a pod whose container waits runs already.
    assert names == _PODS[0] - {"ended"}
    web = next(p for p in page["items"] if p["metadata"]["name"] == "web")
    assert {c["name"] for c in web["spec"]["containers"]} == {"main", "side"}


def test_summary_has_own_pods_and_a_node(served: Ring, acme: RingTenant) -> None:
    def summary() -> bool:
        page = json.loads(_page(acme, "stats/summary"))
        assert page["node"]["nodeName"] == NODE
        # The whole node's memory is the neighbours' too: a tenant gets the sum of its own pods.
        assert "systemContainers" not in page["node"]
        by_name = {p["podRef"]["name"]: p for p in page["pods"]}
        assert set(by_name) <= _PODS[0]
        if "web" not in by_name:
            return False
        assert by_name["web"]["podRef"]["namespace"] == "default"
        assert {c["name"] for c in by_name["web"]["containers"]} <= {"main", "side"}
        return True

    wait_for("web in the summary", summary, timeout_s=30)


@pytest.mark.parametrize("index", [0, 1])
def test_resource_metrics_feed_a_metrics_server(served: Ring, index: int) -> None:
    tenant = served.tenants[index]

    def measured() -> bool:
        text = _page(tenant, "metrics/resource")
        rows = _pod_rows(text, "container_memory_working_set_bytes")
        assert {(namespace, pod) for namespace, pod, _ in rows} <= {("default", pod) for pod in _PODS[index]}
        if ("default", "web", "main") not in rows:
            return False
        assert ("default", "web", "mesh-proxy") not in rows
        # metrics-server drops a node without these two and their time stamps.
        for family in ("node_cpu_usage_seconds_total", "node_memory_working_set_bytes"):
            assert re.search(rf"^{family} [\d.e+]+ \d+$", text, re.MULTILINE), family
        return True

    wait_for("web is measured", measured, timeout_s=30)


def test_node_memory_is_not_the_machines(served: Ring, acme: RingTenant) -> None:
    pattern = re.compile(r"^node_memory_working_set_bytes ([\d.e+]+) ", re.MULTILINE)
    real = pattern.search(served.kubelet().request("GET", "/metrics/resource").text)
    shown = pattern.search(_page(acme, "metrics/resource"))
    assert real is not None
    assert shown is not None
    # Half a dozen shells against a machine that runs control planes.
    assert float(shown.group(1)) < float(real.group(1)) / 10


def test_cadvisor_rows_are_the_tenants_own(served: Ring, acme_x: RingTenant) -> None:
    def measured() -> bool:
        text = _page(acme_x, "metrics/cadvisor")
        rows = _pod_rows(text, "container_memory_working_set_bytes")
        assert {(namespace, pod) for namespace, pod, _ in rows} <= {("default", "web")}
        return ("default", "web", "main") in rows

    wait_for("web is measured", measured, timeout_s=60)


def test_probe_rows_are_the_tenants_own(served: Ring, acme_x: RingTenant) -> None:
    text = _page(acme_x, "metrics/probes")
    assert _pod_rows(text, "prober_probe_total") == {("default", "web", "main")}
    uid = acme_x.api.get("/api/v1/namespaces/default/pods/web")["metadata"]["uid"]
    assert f'pod_uid="{uid}"' in text


def test_health_is_the_agents_own(served: Ring, acme: RingTenant) -> None:
    assert _page(acme, "healthz") == "ok"


@pytest.mark.parametrize(
    "path",
    [
        *("logs/", "logs/node.log", "logs/pods/", "logs/?query=kubelet", "configz"),
        *("metrics", "metrics/slis", "debug/pprof/", "debug/flags/v", "spec/", "statusz"),
        *("stats/container", "flagz", "nothing", "", "run/default/web/main", "pods/../logs/"),
        *("checkpoint/default/web/main", "cri/exec/token"),
    ],
)
def test_everything_else_is_refused(served: Ring, acme: RingTenant, path: str) -> None:
    result = _get(acme, path)
    assert result.code == 1
    assert result.out == b""
    assert "Error from server" in result.error_text
    assert "tenant-1" not in result.error_text
    assert "vcnode:vn-agent" not in result.error_text
