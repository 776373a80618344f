# SPDX-License-Identifier: Apache-2.0
"""The real kubelet has the properties that the fake kubelet and the page filters assume."""

from __future__ import annotations

import http.client
import json
import re

import pytest

from tests.k8s.ring import samples
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.facts import Fact, load_facts
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.tenants import RingTenant

_NAMES = [fact.name for fact in load_facts("any")]


@pytest.mark.parametrize("name", _NAMES)
def test_kubelet_answers_as_the_case_file(ring: Ring, acme: RingTenant, name: str) -> None:
    facts = {f.name: f for f in load_facts(acme.super_namespace("default"))}
    fact = facts[name]
    status, headers, body = _ask(ring, fact)
    assert status == fact.status
    for header, expected in fact.headers:
        assert [v for n, v in headers if n.lower() == header.lower()] == expected
    names = {n.lower() for n, _ in headers}
    assert not names & {n.lower() for n in fact.no_headers}
    if fact.body is not None:
        assert body == fact.body.encode()
    if fact.body_starts is not None:
        assert body.startswith(fact.body_starts.encode())


def test_followed_logs_come_as_they_are_written(ring: Ring, acme: RingTenant) -> None:
    namespace = acme.super_namespace("default")
    path = f"/containerLogs/{namespace}/only-acme/side?follow=true"
    with ring.kubelet().dial() as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: node\r\n\r\n".encode())
        received = bytearray()
        # The head, then one chunk a line; the stream stays open after the last line.
        while b"only beside\n" not in received:
            received += connection.recv(65536)
    assert re.fullmatch(
        rb"HTTP/1\.1 200 OK\r\nDate: [^\r]+\r\nTransfer-Encoding: chunked\r\n\r\n"
        rb"c\r\nonly beside\n\r\n",
        bytes(received),
    )


def test_an_upgrade_with_an_empty_body_is_accepted(ring: Ring, acme: RingTenant) -> None:
    namespace = acme.super_namespace("default")
    head = (
        f"POST /exec/{namespace}/web/main?command=true&output=1 HTTP/1.1\r\nHost: node\r\n"
        "Content-Length: 0\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
        "X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
    )
    with ring.kubelet().dial() as connection:
        connection.sendall(head.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 101 Switching Protocols\r\n")


def test_kubelet_refuses_an_unknown_client(ring: Ring) -> None:
    other_client = ring.tenants[0].client
    reply = ring.kubelet(other_client).request("GET", "/pods")
    assert (reply.status, reply.body) == (401, b"Unauthorized")


def test_pods_page_has_the_annotations_of_ownership(ring: Ring, acme: RingTenant) -> None:
    page = ring.kubelet().request("GET", "/pods").json()
    assert (page["kind"], page["apiVersion"], page["metadata"]) == ("PodList", "v1", {})
    by_name = {(i["metadata"]["namespace"], i["metadata"]["name"]): i for i in page["items"]}
    web = by_name[acme.super_namespace("default"), "web"]
    assert web["metadata"]["annotations"]["tenancy.x-k8s.io/cluster"] == acme.key
    assert web["metadata"]["annotations"]["tenancy.x-k8s.io/namespace"] == "default"
    assert [c["name"] for c in web["spec"]["containers"]] == ["main", "side", "mesh-proxy"]
    assert web["status"]["phase"] == "Running"
    # The items carry no kind of their own: decoders must not ask for one.
    assert "kind" not in web


def test_running_pods_page_is_minimal(ring: Ring, acme: RingTenant) -> None:
    page = ring.kubelet().request("GET", "/runningpods/").json()
    web = next(
        i
        for i in page["items"]
        if i["metadata"]["namespace"] == acme.super_namespace("default") and i["metadata"]["name"] == "web"
    )
    assert set(web) == {"metadata", "spec", "status"}
    assert set(web["metadata"]) == {"name", "namespace", "uid"}
    assert web["status"] == {}
    assert {c["name"] for c in web["spec"]["containers"]} == {"main", "side", "mesh-proxy"}
    assert all(set(c) == {"name", "image", "resources"} for c in web["spec"]["containers"])


@pytest.fixture(scope="module")
def pages(ring: Ring) -> dict[str, str]:
    """Every page, once the kubelet has measured all pods (its cadvisor works every 10 s or so)."""

    def measured() -> bool:
        text = ring.kubelet().request("GET", "/metrics/cadvisor").text
        rows = re.findall(r'^container_memory_rss\{.*namespace="(\S+)",pod="(\S+)"', text, re.M)
        return {("kube-system", "node-agent"), *_webs(ring)} <= set(rows)

    wait_for("cadvisor page has all pods", measured, timeout_s=60)
    kubelet = ring.kubelet()
    return {name: kubelet.request("GET", path).text for name, path in samples.page_paths().items()}


def test_summary_has_the_documented_keys(pages: dict[str, str]) -> None:
    page = json.loads(pages["stats-summary.json"])
    assert set(page) == {"node", "pods"}
    assert set(page["node"]) == {
        *("nodeName", "systemContainers", "startTime", "cpu", "memory", "io", "network"),
        *("fs", "runtime", "rlimit", "swap"),
    }
    web = next(p for p in page["pods"] if p["podRef"]["name"] == "web")
    assert set(web["podRef"]) == {"name", "namespace", "uid"}
    assert set(web) - {"network", "process_stats", "volume"} == {
        *("podRef", "startTime", "containers", "cpu", "memory", "io", "swap"),
        "ephemeral-storage",
    }


def test_resource_rows_have_only_these_labels(pages: dict[str, str]) -> None:
    rows = [r for r in pages["metrics-resource.txt"].splitlines() if not r.startswith("#")]
    shapes = {(name, labels) for name, labels, _ in map(_row, rows)}
    assert shapes == {
        ("node_cpu_usage_seconds_total", ()),
        ("node_memory_working_set_bytes", ()),
        ("node_swap_usage_bytes", ()),
        ("container_cpu_usage_seconds_total", ("container", "namespace", "pod")),
        ("container_memory_working_set_bytes", ("container", "namespace", "pod")),
        ("container_start_time_seconds", ("container", "namespace", "pod")),
        ("container_swap_limit_bytes", ("container", "namespace", "pod")),
        ("container_swap_usage_bytes", ("container", "namespace", "pod")),
        ("pod_cpu_usage_seconds_total", ("namespace", "pod")),
        ("pod_memory_working_set_bytes", ("namespace", "pod")),
        ("pod_swap_usage_bytes", ("namespace", "pod")),
        ("resource_scrape_error", ()),
    }
    # metrics-server drops a node whose rows have no time stamp; start times have none themselves.
    stamped = {name for name, _, has_time in map(_row, rows) if has_time}
    assert "node_cpu_usage_seconds_total" in stamped
    assert "node_memory_working_set_bytes" in stamped
    assert "container_start_time_seconds" not in stamped


def test_cadvisor_rows_name_containers_and_leak_ids(
    pages: dict[str, str], ring: Ring, acme: RingTenant
) -> None:
    text = pages["metrics-cadvisor.txt"]
    uid = ring.syncer.super_pod(acme, "default", "web")["metadata"]["uid"]
    pod_rows = [r for r in text.splitlines() if f"pod{uid}" in r]
    assert any('container="main"' in r and 'image="ring.test/busybox:1"' in r for r in pod_rows)
    # The pod's own row and its sandbox's have no container; network rows are the sandbox's.
    network = [r for r in pod_rows if r.startswith("container_network_receive_bytes_total")]
    assert len(network) == 1
    assert 'container=""' in network[0]
    assert 'interface="eth0"' in network[0]
    assert any(r.startswith("machine_memory_bytes{") for r in text.splitlines())


def test_probe_rows_have_the_pod_uid_in_the_counter_only(pages: dict[str, str]) -> None:
    rows = [r for r in pages["metrics-probes.txt"].splitlines() if not r.startswith("#")]
    shapes = {(name, labels) for name, labels, _ in map(_row, rows)}
    pod = ("container", "namespace", "pod")
    assert shapes == {
        ("prober_probe_total", (*pod, "pod_uid", "probe_type", "result")),
        ("prober_probe_duration_seconds_bucket", (*pod, "probe_type", "le")),
        ("prober_probe_duration_seconds_sum", (*pod, "probe_type")),
        ("prober_probe_duration_seconds_count", (*pod, "probe_type")),
        ("process_start_time_seconds", ()),
    }


def test_save_samples(pages: dict[str, str], ring: Ring, request: pytest.FixtureRequest) -> None:
    reduced = {name: samples.reduce_page(name, text, ring.directory.name) for name, text in pages.items()}
    if request.config.getoption("--k8s-save-samples", False):
        for name, text in reduced.items():
            (samples.SAMPLES / name).write_text(text)
    for name, text in reduced.items():
        assert ring.directory.name not in text
        assert _families(text) == _families((samples.SAMPLES / name).read_text()), (
            f"{name} has changed in kind: run again with --k8s-save-samples"
        )


def _webs(ring: Ring) -> set[tuple[str, str]]:
    return {(tenant.super_namespace("default"), "web") for tenant in ring.tenants}


def _families(text: str) -> set[str]:
    """The metric families of a page; nothing for a JSON page."""
    return set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))


def _row(line: str) -> tuple[str, tuple[str, ...], bool]:
    """Name, label names in order, and whether there is a time stamp. No label here has a blank."""
    head, *values = line.split(" ")
    name, _, labels = head.partition("{")
    return name, tuple(re.findall(r'(\w+)="', labels)), len(values) == 2


def _ask(ring: Ring, fact: Fact) -> tuple[int, list[tuple[str, str]], bytes]:
    """Send a fact's head as it stands, so that no library adds to it, and read the reply."""
    with ring.kubelet().dial() as connection:
        connection.sendall(fact.head())
        response = http.client.HTTPResponse(connection, method=fact.method)
        response.begin()
        is_stream = response.status == http.client.SWITCHING_PROTOCOLS
        return response.status, response.getheaders(), b"" if is_stream else response.read()
