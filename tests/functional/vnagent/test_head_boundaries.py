# SPDX-License-Identifier: Apache-2.0
"""Bytes that arrive together with a head: none is lost in a buffer, none is sent too early."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devkit.kubelet.replies import Exchange, FakeReply, ReplyEnd, Tunnel, switching
from tests.cases.client import PeerEnd
from tests.cases.replies import parse_reply
from tests.functional.vnagent.node import DEADLINE_S, SPDY, AgentNode, head, received, reply_of
from tests.functional.vnagent.shop_and_bank import SHOP
from tests.waiting import wait_until

LOGS = "GET /containerLogs/web/shop/app"
EXEC = "POST /exec/web/shop/app?command=cat&output=1"


@pytest.fixture(scope="module")
def running_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentNode]:
    with AgentNode(tmp_path_factory.mktemp("node") / "n", ["ten-a"], [SHOP]) as node:
        yield node


@pytest.fixture
def node(running_node: AgentNode) -> Iterator[AgentNode]:
    yield running_node
    running_node.kubelet.script = None


def test_pipelined_requests_get_responses_in_order(node: AgentNode) -> None:
    with node.client("ten-a") as client:
        client.send(
            head("GET /healthz") + head(LOGS) + head("GET /nothing") + head(LOGS) + head("HEAD /healthz")
        )
        wait_until(
            lambda: client.received.count(b"HTTP/1.1 ") == 5 or not client.receive(0.1), within_s=DEADLINE_S
        )
        statuses, data = [], bytes(client.received)
        for method in ("GET", "GET", "GET", "GET", "HEAD"):
            reply = parse_reply(data, method)
            assert reply is not None
            assert reply.is_complete
            statuses.append((reply.status, reply.body[:8]))
            data = data[reply.length_bytes :]
    log = b"ten-a-we"
    assert statuses == [(200, b"ok"), (200, log), (404, b"vcnode: "), (200, log), (200, b"")]
    assert data == b""


def test_a_request_in_single_bytes(node: AgentNode) -> None:
    with node.client("ten-a") as client:
        for byte in head(LOGS):
            client.send(bytes([byte]))
        reply = reply_of(client)
    assert reply is not None
    assert (reply.status, SHOP.marker.encode() in reply.body) == (200, True)


def test_early_stream_data_waits_for_the_101(node: AgentNode) -> None:
    """RFC 9931: a client may be optimistic; its data is relayed once the kubelet has switched."""
    node.kubelet.script = lambda exchange: (
        FakeReply(101, switching(exchange, Tunnel.ECHO).headers, tunnel=Tunnel.ECHO, delay_s=0.5)
        if exchange.is_upgrade
        else None
    )
    early = bytes(range(256)) * 100
    with node.client("ten-a") as client:
        client.send(head(EXEC, *SPDY) + early)
        assert received(client, early)
        exchange = node.kubelet.requests("/exec")[-1]
        assert bytes(exchange.after.head) == early
        client.send(b"more")
        assert received(client, b"more")


def test_early_stream_data_is_dropped_with_a_failed_upgrade(node: AgentNode) -> None:
    """CVE-2018-1002105: it would be the next request on a privileged connection."""
    node.kubelet.script = lambda exchange: (
        FakeReply(403, (), b"Forbidden", delay_s=0.2) if exchange.is_upgrade else None
    )
    before = len(node.kubelet.exchanges)
    with node.client("ten-a") as client:
        client.send(head(EXEC, *SPDY) + head("GET /pods"))
        reply = reply_of(client)
        assert reply is not None
        assert reply.status == 502
        assert client.receive_until_end(DEADLINE_S)
        assert client.end is PeerEnd.CLOSE_NOTIFY
        assert bytes(client.received).count(b"HTTP/1.1") == 1
    seen = [each for each in node.kubelet.exchanges[before:] if each.path != "/pods"]
    assert [each.path for each in seen] == ["/exec/ten-a-web/shop/app"]
    assert seen[0].after.count == 0


def test_stream_data_behind_the_101_is_relayed(node: AgentNode) -> None:
    """The kubelet's first output may be in one record with its head."""

    def script(exchange: Exchange) -> FakeReply | None:
        if not exchange.is_upgrade:
            return None
        fields = "".join(f"{n}: {v}\r\n" for n, v in switching(exchange, Tunnel.SINK).headers)
        raw = f"HTTP/1.1 101 Switching Protocols\r\n{fields}\r\nfirst output".encode()
        return FakeReply(raw=raw, ending=ReplyEnd.SILENT)

    node.kubelet.script = script
    with node.client("ten-a") as client:
        client.send(head(EXEC, *SPDY))
        assert received(client, b"\r\n\r\nfirst output")


def test_output_and_end_behind_the_101_are_relayed(node: AgentNode) -> None:
    output = bytes(range(256)) * 4000
    node.kubelet.script = lambda exchange: (
        FakeReply(101, tunnel=Tunnel.SINK, first_bytes=output, ending=ReplyEnd.CLOSE)
        if exchange.is_upgrade
        else None
    )
    with node.client("ten-a") as client:
        client.send(head(EXEC, *SPDY))
        assert client.receive_until_end(DEADLINE_S)
        assert client.end is PeerEnd.CLOSE_NOTIFY
        assert bytes(client.received).endswith(b"\r\n\r\n" + output)


@pytest.mark.parametrize("is_chunked", [True, False])
def test_a_log_and_the_next_request_behind_it(node: AgentNode, is_chunked: bool) -> None:
    """The end of a body is found exactly, wherever the records are cut."""
    body = bytes(range(256)) * 3000
    node.kubelet.script = lambda exchange: (
        FakeReply(body=body, is_chunked=is_chunked) if exchange.path.startswith("/containerLogs") else None
    )
    with node.client("ten-a") as client:
        for _ in range(5):
            client.received.clear()
            client.send(head(LOGS) + head("GET /healthz"))
            assert received(client, b"\r\n\r\nok")
            reply = parse_reply(bytes(client.received), "GET")
            assert reply is not None
            assert reply.body == body
            assert bytes(client.received[reply.length_bytes :]).startswith(b"HTTP/1.1 200 OK\r\n")
    # All of them on one connection to the kubelet, or on a second one when the list of pods was just
    # being read on the first.
    numbers = {each.connection for each in node.kubelet.requests("/containerLogs")[-5:]}
    assert len(numbers) <= 2


def test_a_log_until_the_kubelets_close(node: AgentNode) -> None:
    body = bytes(range(256)) * 3000
    raw = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + body
    node.kubelet.script = lambda exchange: (
        FakeReply(raw=raw, ending=ReplyEnd.CLOSE) if exchange.path.startswith("/containerLogs") else None
    )
    with node.client("ten-a") as client:
        client.send(head(LOGS) + head("GET /healthz"))
        assert received(client, b"\r\n\r\nok")
        reply = parse_reply(bytes(client.received), "GET")
        assert reply is not None
        assert reply.body == body


def test_surplus_behind_a_body_drops_the_connection(node: AgentNode) -> None:
    """It would be the next tenant's."""
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    node.kubelet.script = lambda exchange: (
        FakeReply(raw=raw) if exchange.path.startswith("/containerLogs") else None
    )
    with node.client("ten-a") as client:
        for _ in range(3):
            client.received.clear()
            client.send(head(LOGS))
            reply = reply_of(client)
            assert reply is not None
            assert (reply.status, reply.body) == (200, b"ok")
            assert len(client.received) == reply.length_bytes


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ncut\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ncut\r\n0\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ncut\r\nzz\r\n",
    ],
)
def test_a_truncated_log_cuts_the_connection(node: AgentNode, raw: bytes) -> None:
    node.kubelet.script = lambda exchange: (
        FakeReply(raw=raw, ending=ReplyEnd.CLOSE) if exchange.path.startswith("/containerLogs") else None
    )
    with node.client("ten-a") as client:
        client.send(head(LOGS))
        assert client.receive_until_end(DEADLINE_S)
        reply = parse_reply(bytes(client.received), "GET")
        assert reply is None or reply.status == 502 or not reply.is_complete


# ---- what a connection remembers


_TARGETS = st.one_of(
    st.sampled_from(
        [
            *("", "?", "?follow=false", "?tailLines=0", "?tail=all", "?tail=3", "?tailLines=1&tail=1"),
            *(
                "?timestamps=yes",
                "?limitBytes=0",
                "?x=y",
                "?tailLines=1;a",
                "?tailLines=%31",
                "?tailLines=%3",
            ),
            *("?tailLines=1&tailLines=1", '?stream="', "?#", "#", "%20", "/", "?sinceTime=now", "?&"),
            *("?stream=All&timestamps=1", "?previous=true", "?sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z"),
        ]
    ),
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=8),
)
_EXTRA = st.sampled_from(
    [(), (), ("Content-Length: 0",), ("Content-Length: 1",), ("Upgrade: x",), ("Expect: x",), SPDY]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["GET", "GET", "GET", "HEAD", "POST"]), _TARGETS, _EXTRA)
def test_the_log_route_cache_changes_no_response(
    node: AgentNode, method: str, target: str, extra: tuple[str, ...]
) -> None:
    """The same request on a connection that has read this log before, and on a new one: the same bytes
    to the client but for date and number, the same request to the kubelet."""
    request = head(f"{method} /containerLogs/web/shop/app{target}", *extra)
    found = []
    for is_warm in (False, True):
        with node.client("ten-a") as client:
            if is_warm:
                for _ in range(2):
                    client.received.clear()
                    client.send(head(LOGS))
                    assert reply_of(client) is not None
                client.received.clear()
            before = len(node.kubelet.requests("/containerLogs"))
            client.send(request)
            reply = reply_of(client, method)
            forwarded = [each.head for each in node.kubelet.requests("/containerLogs")[before:]]
        assert reply is not None
        kept = [each for each in reply.headers if each[0] not in {"Date", "X-Request-Id"}]
        found.append((reply.status, kept, reply.body, forwarded))
    assert found[0] == found[1]
