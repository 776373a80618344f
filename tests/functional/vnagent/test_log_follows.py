# SPDX-License-Identifier: Apache-2.0
"""The limit of a tenant's followed logs: refused, released in every way a log can end, kept over a reload."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devkit.kubelet.replies import Exchange, FakeReply, ReplyEnd
from tests.cases.client import CaseClient
from tests.functional.vnagent.node import DEADLINE_S, AgentNode, head, received, reply_of
from tests.functional.vnagent.shop_and_bank import BANK, FOLLOW, SHOP, status_of
from tests.waiting import wait_until
from vnagent.downstream.client_connection import MAX_EARLY_BYTES

BANK_FOLLOW = "GET /containerLogs/web/bank/app?follow=true"
LIMITED = 'vcnode_vnagent_limited_requests_total{reason="too-many-log-follows",tenant="ten-a"}'
LIMIT = 2


def node_with_limit(directory: Path, limit: int) -> AgentNode:
    return AgentNode(
        directory / "n", ["ten-a", "ten-b"], [SHOP, BANK], {"limits": {"logFollowsPerTenant": limit}}
    )


@pytest.fixture(scope="module")
def running_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentNode]:
    with node_with_limit(tmp_path_factory.mktemp("node"), LIMIT) as node:
        yield node


@pytest.fixture
def node(running_node: AgentNode) -> Iterator[AgentNode]:
    yield running_node
    running_node.kubelet.script = None
    wait_until(lambda: follows(running_node) == 0, within_s=DEADLINE_S)


def follows(node: AgentNode) -> float:
    return node.daemon.metric("vcnode_vnagent_log_follows")


def follow(client: CaseClient, line: str = FOLLOW, marker: str = SHOP.marker) -> bool:
    """Whether the log is served."""
    client.send(head(line))
    return received(client, marker.encode())


def test_followed_logs_of_a_tenant_are_limited(node: AgentNode) -> None:
    """Others, and logs that end, are served; the refusal reports what to do, and its connection goes on."""
    before = node.daemon.samples().get(LIMITED, 0.0)
    with node.client("ten-a") as one, node.client("ten-a") as two, node.client("ten-a") as three:
        assert follow(one)
        assert follow(two)
        three.send(head(FOLLOW))
        refused = reply_of(three)
        assert refused is not None
        assert (refused.status, refused.values("Retry-After"), refused.body) == (
            429,
            ["10"],
            b"vcnode: too many followed logs of this tenant on this node; end some, or read the logs without "
            b"following\n",
        )
        three.received.clear()
        three.send(head("GET /containerLogs/web/shop/app"))
        assert received(three, SHOP.marker.encode())
        with node.client("ten-b") as other:
            assert follow(other, BANK_FOLLOW, BANK.marker)
        assert node.daemon.samples()[LIMITED] == before + 1
    lines = (node.directory / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    refusals = [line for line in map(json.loads, lines) if line["status"] == 429]
    assert (refusals[-1]["tenant"], refusals[-1]["reason"]) == ("ten-a", "too-many-log-follows")


def test_a_repeated_request_is_limited_too(node: AgentNode) -> None:
    """A connection's route cache serves a log without another decision."""
    with node.client("ten-a") as first, node.client("ten-a") as one, node.client("ten-a") as two:
        node.kubelet.script = lambda _: FakeReply(body=SHOP.marker.encode())
        first.send(head(FOLLOW))
        assert status_of(reply_of(first)) == 200
        node.kubelet.script = None
        assert follow(one)
        assert follow(two)
        first.received.clear()
        first.send(head(FOLLOW))
        assert status_of(reply_of(first)) == 429


def _close(node: AgentNode, client: CaseClient) -> None:
    client.close()


def _reset(node: AgentNode, client: CaseClient) -> None:
    client.reset()


def _flood(node: AgentNode, client: CaseClient) -> None:
    """More data ahead of an answer than any client sends: the connection is cut."""
    client.send(b"x" * (2 * MAX_EARLY_BYTES))


def _remove_tenant(node: AgentNode, client: CaseClient) -> None:
    node.daemon.after_reload((node.tenants_directory / "ten-a.yaml").unlink)
    node.daemon.after_reload(lambda: node.write_tenant("ten-a"))


def _remove_kubelet_connection(node: AgentNode, client: CaseClient) -> None:
    node.kubelet.drop_connections()


@pytest.mark.parametrize("end", [_close, _reset, _flood, _remove_tenant, _remove_kubelet_connection])
def test_a_followed_log_is_released(node: AgentNode, end: Callable[[AgentNode, CaseClient], None]) -> None:
    with node.client("ten-a") as client:
        assert follow(client)
        assert follows(node) == 1
        end(node, client)
        wait_until(lambda: follows(node) == 0, within_s=DEADLINE_S)


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (FakeReply(body=b"all of it\n"), 200),
        (FakeReply(body=b"all of it\n", is_chunked=True), 200),
        (FakeReply(body=b""), 200),
        (FakeReply(404, (), b"container not found"), 404),
        (FakeReply(429, (), b"busy"), 429),
        (FakeReply(204), 502),
        (FakeReply(headers=(("Content-Encoding", "gzip"),), body=b"x"), 502),
        (FakeReply(raw=b"no HTTP\r\n\r\n"), 502),
        (FakeReply(raw=b"", ending=ReplyEnd.RESET), 502),
    ],
)
def test_a_followed_log_is_released_by_its_reply(node: AgentNode, reply: FakeReply, status: int) -> None:
    node.kubelet.script = lambda exchange: reply if "containerLogs" in exchange.path else None
    for _ in range(LIMIT + 1):
        assert status_of(node.ask("ten-a", FOLLOW)) == status
    wait_until(lambda: follows(node) == 0, within_s=DEADLINE_S)


@pytest.mark.parametrize("ending", [ReplyEnd.ABORT, ReplyEnd.RESET])
def test_a_followed_log_that_breaks_off_is_released(node: AgentNode, ending: ReplyEnd) -> None:
    reply = FakeReply(body=b"x" * 100, body_bytes=50, ending=ending)
    node.kubelet.script = lambda exchange: reply if "containerLogs" in exchange.path else None
    for _ in range(LIMIT + 1):
        assert node.ask("ten-a", FOLLOW) is None
    wait_until(lambda: follows(node) == 0, within_s=DEADLINE_S)


def test_a_follow_left_before_its_answer_is_released(node: AgentNode) -> None:
    def silent(exchange: Exchange) -> FakeReply | None:
        is_log = "containerLogs" in exchange.path
        return FakeReply(raw=b"", ending=ReplyEnd.SILENT) if is_log else None

    node.kubelet.script = silent
    with node.client("ten-a") as client:
        client.send(head(FOLLOW))
        wait_until(lambda: follows(node) == 1, within_s=DEADLINE_S)
    wait_until(lambda: follows(node) == 0, within_s=DEADLINE_S)


def test_the_limit_of_followed_logs_survives_a_reload(node: AgentNode) -> None:
    """What is open counts on, though the tenant's file has changed."""
    tenant = node.tenants["ten-a"]
    more = tenant.authority.issue("another-apiserver")
    with node.client("ten-a") as one, node.client("ten-a") as two:
        assert follow(one)
        assert follow(two)
        node.daemon.after_reload(lambda: node.write_tenant("ten-a", tenant.leaf, more))
        assert follows(node) == LIMIT
        assert status_of(node.ask("ten-a", FOLLOW)) == 429


def test_a_limit_of_zero_follows_is_none(tmp_path: Path) -> None:
    count = 70  # above the default
    with node_with_limit(tmp_path, 0) as node:
        clients = []
        try:
            for _ in range(count):
                client = CaseClient(("127.0.0.1", node.daemon.port), node.context("ten-a"))
                clients.append(client)
                client.handshake()
                assert follow(client)
            assert follows(node) == count
        finally:
            for client in clients:
                client.close()
