# SPDX-License-Identifier: Apache-2.0
"""What scrapers believe of a vNode: counters that outlive pods and vn-agent, and pages with gzip."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases.replies import ReceivedReply
from tests.functional.vnagent.node import DEADLINE_S, AgentNode, tenant_pod
from tests.waiting import wait_until

SHOP = tenant_pod("ten-a", "web", "shop")
JOB = tenant_pod("ten-a", "web", "job")
BANK = tenant_pod("ten-b", "web", "bank")
# As the fake kubelet says of each pod, and of the node.
POD_SECONDS, NODE_SECONDS = 10.5, 987654.0
SETTINGS = {"pages": {"maxAgeSeconds": 0}}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AgentNode]:
    with AgentNode(tmp_path / "n", ("ten-a", "ten-b"), (SHOP, JOB, BANK), SETTINGS) as running:
        yield running


def node_seconds(node: AgentNode, key: str) -> float:
    reply = node.ask(key, "GET /metrics/resource")
    assert reply is not None
    assert reply.status == 200
    rows = (line.split() for line in reply.body.decode().splitlines())
    return next(float(row[1]) for row in rows if row[0] == "node_cpu_usage_seconds_total")


def test_processor_time_outlives_a_pod_and_a_restart(node: AgentNode) -> None:
    assert node_seconds(node, "ten-a") == 2 * POD_SECONDS
    node.set_pods(SHOP, BANK)
    assert node_seconds(node, "ten-a") == 2 * POD_SECONDS
    node.daemon.stop()
    node.daemon.start()
    assert node_seconds(node, "ten-a") == 2 * POD_SECONDS
    assert node_seconds(node, "ten-b") == POD_SECONDS


def test_processor_time_outlives_a_killed_agent(node: AgentNode) -> None:
    assert node_seconds(node, "ten-a") == 2 * POD_SECONDS
    saved = node.directory / "state" / "node-cpu.json"
    wait_until(lambda: saved.exists() and b'"job"' in saved.read_bytes(), within_s=DEADLINE_S)
    node.daemon.kill()
    node.kubelet.pods = (SHOP, BANK)
    node.daemon.start()
    assert node_seconds(node, "ten-a") == 2 * POD_SECONDS


def test_damaged_totals_start_again(node: AgentNode) -> None:
    assert node_seconds(node, "ten-a") == 2 * POD_SECONDS
    node.set_pods(SHOP, BANK)
    node.daemon.stop()
    saved = node.directory / "state" / "node-cpu.json"
    saved.write_bytes(saved.read_bytes().replace(b'"endedNs":0', b'"endedNs":-1'))
    node.daemon.start()
    assert node_seconds(node, "ten-a") == POD_SECONDS


def test_a_vnode_has_the_nodes_figures_where_configured(tmp_path: Path) -> None:
    settings = {"pages": {"nodeFigures": "node"}}
    with AgentNode(tmp_path / "n", ("ten-a",), (SHOP, BANK), settings) as node:
        assert node_seconds(node, "ten-a") == NODE_SECONDS


PAGES = ["/metrics/cadvisor", "/metrics/resource", "/pods", "/stats/summary"]


def asked(node: AgentNode, line: str, *headers: str) -> ReceivedReply:
    reply = node.ask("ten-a", line, *headers)
    assert reply is not None
    assert (reply.status, reply.values("vary")) == (200, ["Accept-Encoding"])
    return reply


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_compressed_on_request(node: AgentNode, path: str) -> None:
    node.set_pods(*(tenant_pod("ten-a", "web", f"p-{number}") for number in range(50)), BANK)
    plain = asked(node, f"GET {path}")
    packed = asked(node, f"GET {path}", "Accept-Encoding: deflate, gzip;q=0.5")
    head = asked(node, f"HEAD {path}", "Accept-Encoding: gzip")
    refused = asked(node, f"GET {path}", "Accept-Encoding: gzip;q=0, *")
    assert [each.values("content-encoding") for each in (plain, packed, head, refused)] == [
        [],
        ["gzip"],
        ["gzip"],
        [],
    ]
    assert gzip.decompress(packed.body) == plain.body == refused.body
    assert head.values("content-length") == packed.values("content-length") == [str(len(packed.body))]
    assert len(packed.body) < len(plain.body) / 4
