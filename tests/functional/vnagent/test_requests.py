# SPDX-License-Identifier: Apache-2.0
"""Single requests beside those of the case files: HEAD, odd Connection lines, leaving early, control
characters, pages for many tenants, limits."""

import dataclasses
import email.utils
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devkit.kubelet.pods import names_pods
from devkit.kubelet.replies import Exchange, FakeReply, ReplyEnd, Tunnel, switching
from tests.cases.client import CaseClient
from tests.cases.replies import parse_reply
from tests.functional.vnagent.node import (
    DEADLINE_S,
    NAME,
    SPDY,
    AgentNode,
    head,
    reply_of,
    tenant_pod,
)
from tests.functional.vnagent.shop_and_bank import BANK, SHOP, status_of
from tests.functional.vnagent.tls_peer import TlsPeer
from tests.waiting import wait_until
from vnagent.core.kubelet_request import PAGE_PATHS

VAULT = tenant_pod("ten-a-b", "c", "vault")
EXEC = "POST /exec/web/shop/app?command=cat&input=1&output=1"


def start_node(directory: Path, **settings: Any) -> AgentNode:
    node = AgentNode(directory / "n", ["ten-a", "ten-b", "ten-a-b"], [SHOP, BANK, VAULT], settings)
    pods = directory / "pods.json"
    node.write_pod_file(pods)
    # Pods from a file, so that the kubelet sees what clients cause and nothing else.
    node.settings["pods"] = {"source": "file", "file": str(pods)}
    node.start()
    return node


@pytest.fixture(scope="module")
def running_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentNode]:
    # One test here sends 200 000 requests.
    node = start_node(tmp_path_factory.mktemp("node"), limits={"requestsPerSecondPerTenant": 0})
    yield node
    node.stop()


@pytest.fixture
def node(running_node: AgentNode) -> Iterator[AgentNode]:
    running_node.kubelet.exchanges.clear()
    yield running_node
    running_node.kubelet.script = None


# ---- Date


def test_the_date_field_is_the_responses_time(tmp_path: Path) -> None:
    """Also for the first log after an idle time: an older date would leak when others made their requests."""
    node = start_node(tmp_path)
    try:
        for _ in range(2):
            begin = int(time.time())
            reply = node.logs("ten-a", "web", "shop")
            assert reply is not None
            (date,) = reply.values("Date")
            assert begin <= email.utils.parsedate_to_datetime(date).timestamp() <= time.time()
            wait_until(lambda: int(time.time()) > begin, within_s=DEADLINE_S)  # noqa: B023 - used at once
    finally:
        node.stop()


# ---- HEAD


@pytest.mark.parametrize("path", ["/healthz", *PAGE_PATHS.values()])
def test_head_is_get_without_the_body(node: AgentNode, path: str) -> None:
    with node.client("ten-a") as client:
        client.send(head(f"HEAD {path}") + head("GET /healthz"))
        first = reply_of(client, "HEAD")
        assert first is not None
        assert (first.status, first.body) == (200, b"")
        # What follows the head is the next reply: nothing of a body has been sent.
        deadline = time.monotonic() + DEADLINE_S
        second = None
        while second is None or not second.is_complete:
            assert time.monotonic() < deadline, bytes(client.received)
            client.receive(0.05)
            second = parse_reply(bytes(client.received[first.length_bytes :]), "GET")
        assert (second.status, second.body) == (200, b"ok")
    got = node.ask("ten-a", f"GET {path}")
    assert got is not None
    assert got.values("Content-Type") == first.values("Content-Type")


def test_a_refusal_after_a_head_request_has_a_body(node: AgentNode) -> None:
    """An unreadable head counts as a request other than HEAD: its response has the announced bytes."""
    with node.client("ten-a") as client:
        client.send(head("HEAD /healthz") + b"\0")
        assert client.receive_until_end(DEADLINE_S)
    first, second, body = client.received.split(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200 ")
    assert second.startswith(b"HTTP/1.1 400 ")
    assert f"Content-Length: {len(body)}\r\n".encode() in second
    assert b"malformed-head" in body


@pytest.mark.parametrize("path", ["/containerLogs/web/shop/app", "/containerLogs/web/bank/app"])
def test_head_of_a_log_is_refused(node: AgentNode, path: str) -> None:
    reply = node.ask("ten-a", f"HEAD {path}")
    assert reply is not None
    assert (reply.status, reply.values("Allow")) == (405, ["GET"])
    assert node.kubelet.exchanges == []


def test_head_of_an_unknown_path_is_refused_without_body(node: AgentNode) -> None:
    with node.client("ten-a") as client:
        client.send(head("HEAD /logs/", "Connection: close"))
        assert client.receive_until_end(DEADLINE_S)
        assert client.received.endswith(b"\r\n\r\n")
        assert client.received.startswith(b"HTTP/1.1 403 ")


# ---- upgrades


WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Protocol: v5.channel.k8s.io",
)
FORBIDDEN = b"Forbidden (user=system:vn-agent:node-1, verb=get, resource=nodes, subresource(s)=[proxy])"


@pytest.mark.parametrize(
    ("kubelet_reply", "status", "message"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", 403, "none of the WebSocket subprotocols"),
        (b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n", 403, "none of the WebSocket subprotocols"),
        (
            b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b"
            % (len(FORBIDDEN), FORBIDDEN),
            502,
            "refused the node agent",
        ),
    ],
    ids=["bare", "as by the kubelet", "rights"],
)
def test_a_refused_subprotocol_is_no_authorization_failure(
    node: AgentNode, kubelet_reply: bytes, status: int, message: str
) -> None:
    """A kubelet without v5 refuses it with an empty 403. A 403 for our credential has a text."""
    node.kubelet.script = lambda _: FakeReply(raw=kubelet_reply, ending=ReplyEnd.CLOSE)
    reply = node.ask("ten-a", "GET /exec/web/shop/app?command=id&output=1", *WEBSOCKET)
    assert reply is not None
    assert reply.status == status
    assert message in json.loads(reply.body)["message"]
    assert b"vn-agent" not in reply.body


def test_injected_containers_are_not_the_tenants(tmp_path: Path) -> None:
    """Without any setting: who executes in the sidecar has its certificate."""
    pod = tenant_pod("ten-a", "web", "sided")
    sided = dataclasses.replace(pod, injected=("vcnode-guest-agent",))
    with AgentNode(tmp_path / "n", ["ten-a"], [sided], {"injectedContainers": ["mesh"]}) as node:
        for line, headers in (
            ("POST /exec/web/sided/vcnode-guest-agent?command=id&output=1", SPDY),
            ("GET /containerLogs/web/sided/vcnode-guest-agent", ()),
        ):
            reply = node.ask("ten-a", line, *headers)
            assert reply is not None
            assert reply.status == 404
        assert status_of(node.logs("ten-a", "web", "sided")) == 200
        page = node.ask("ten-a", "GET /pods")
        assert page is not None
        assert b"vcnode-guest-agent" not in page.body


@pytest.mark.parametrize("how", ["close", "reset", "finish"])
def test_a_client_that_leaves_before_the_101(node: AgentNode, how: str) -> None:
    def late(exchange: Exchange) -> FakeReply | None:
        plain = switching(exchange, Tunnel.ECHO)
        return FakeReply(101, plain.headers, tunnel=Tunnel.ECHO, delay_s=20) if exchange.is_upgrade else None

    node.kubelet.script = late
    with node.client("ten-a") as client:
        client.send(head(EXEC, *SPDY) + b"early")
        wait_until(lambda: len(node.kubelet.exchanges) == 1, within_s=DEADLINE_S)
        left_s = time.monotonic()
        getattr(client, how)()
        exchange = node.kubelet.exchanges[0]
        wait_until(lambda: exchange.ended_s is not None, within_s=DEADLINE_S)
    assert exchange.ended_s is not None
    assert exchange.ended_s - left_s < 1.0
    assert exchange.after.count == 0
    wait_until(lambda: node.daemon.metric("vcnode_vnagent_tunnels") == 0, within_s=DEADLINE_S)


# ---- what is written down


CONTROLS = "".join(chr(code) for code in (*range(1, 9), 11, 12, *range(14, 32), 127))


def test_control_characters_reach_no_log(node: AgentNode) -> None:
    audit = node.directory / "audit.jsonl"
    for raw in (
        head("GET /containerLogs/web/shop/app", "User-Agent: a\x1b[31mred\x07", "X-A: \x7f\x80\xff"),
        head("GET /containerLogs/web/shop/app", "X-\x1b: a"),
        head("GET /containerLogs/web/sh%1b%5b31mop/app"),
        head("GET /containerLogs/web/sh\x1b[31mop/app"),
        head("GET /containerLogs/web/shop/app?tailLines=%0d%0a%1b"),
        head(f"GET /{CONTROLS}"),
        head("GET /exec/web/shop/app?command=%1b%0a&output=1", *SPDY),
        head("G\x1bT /pods"),
        b"\x00\x01\x02\x03\x1b\x1b\x1b\r\n\r\n",
    ):
        before = audit.stat().st_size if audit.exists() else 0
        with node.client("ten-a") as client:
            client.send(raw)
            assert reply_of(client) is not None
        wait_until(lambda before=before: audit.stat().st_size > before, within_s=DEADLINE_S)  # type: ignore[misc] # a default binds the loop's variable
    for file in (audit, node.daemon.log):
        for line in file.read_bytes().splitlines():
            assert not [byte for byte in line if byte < 32 or byte == 127], line
            for value in json.loads(line).values():
                assert not [c for c in str(value) if ord(c) < 32 or ord(c) == 127], line


# ---- pages that are shared


def test_a_tenants_rendered_page_reaches_no_other(tmp_path: Path) -> None:
    node = start_node(tmp_path, pages={"maxAgeSeconds": 60})
    try:
        for _ in range(2):
            for path in PAGE_PATHS.values():
                for key, own in (("ten-a", SHOP), ("ten-b", BANK), ("ten-a-b", VAULT)):
                    reply = node.ask(key, f"GET {path}")
                    assert reply is not None
                    assert reply.status == 200
                    text = reply.body.decode()
                    assert own.name in text or not names_pods(path), (path, key)
                    for pod in (SHOP, BANK, VAULT):
                        assert pod.marker not in text
                        assert pod.uid not in text
                        assert pod is own or pod.name not in text
        for path in PAGE_PATHS.values():
            # They did share one read, or this test would not prove anything about shared pages.
            assert len([e for e in node.kubelet.exchanges if e.path == path]) == 1, path
    finally:
        node.stop()


# ---- limits


def open_tunnel(node: AgentNode, key: str, client: CaseClient) -> int | None:
    namespace, name = ("web", "shop") if key == "ten-a" else ("web", "bank")
    client.send(head(f"POST /exec/{namespace}/{name}/app?command=cat&input=1&output=1", *SPDY))
    reply = reply_of(client)
    return None if reply is None else reply.status


def test_a_tenants_tunnels_are_limited_and_released(tmp_path: Path) -> None:
    node = start_node(tmp_path, limits={"tunnelsPerTenant": 2})
    try:
        with node.client("ten-a") as one, node.client("ten-a") as three, node.client("ten-b") as other:
            with node.client("ten-a") as two:
                assert open_tunnel(node, "ten-a", one) == 101
                assert open_tunnel(node, "ten-a", two) == 101
                assert open_tunnel(node, "ten-a", three) == 429
                assert open_tunnel(node, "ten-b", other) == 101
                logs = node.logs("ten-a", "web", "shop")
                assert logs is not None
                assert logs.status == 200  # a log that ends is not a tunnel

            def is_free() -> bool:
                with node.client("ten-a") as again:
                    return open_tunnel(node, "ten-a", again) == 101

            wait_until(is_free, within_s=DEADLINE_S)
    finally:
        node.stop()


def test_a_tenants_connections_are_limited(tmp_path: Path) -> None:
    node = start_node(tmp_path, limits={"connectionsPerTenant": 3})
    clients: list[CaseClient] = []
    try:
        statuses = []
        for _ in range(5):
            client = CaseClient(("127.0.0.1", node.daemon.port), node.context("ten-a"))
            clients.append(client)
            client.handshake()
            client.send(head("GET /healthz"))
            reply = reply_of(client)
            statuses.append(None if reply is None else reply.status)
        assert statuses == [200, 200, 200, 429, 429]
        other = node.logs("ten-b", "web", "bank")
        assert other is not None
        assert other.status == 200
    finally:
        for client in clients:
            client.close()
        node.stop()


def test_a_tenants_requests_per_second_are_limited(tmp_path: Path) -> None:
    node = start_node(tmp_path, limits={"requestsPerSecondPerTenant": 5})
    try:
        begin = time.monotonic()
        statuses = []
        with node.client("ten-a") as client:
            for _ in range(40):
                used = len(client.received)
                client.send(head("GET /containerLogs/web/shop/app"))
                reply = None
                while reply is None or not reply.is_complete:
                    assert client.receive(DEADLINE_S)
                    reply = parse_reply(bytes(client.received[used:]), "GET")
                statuses.append(reply.status)
        took_s = time.monotonic() - begin
        assert set(statuses) == {200, 429}
        assert statuses.count(200) <= 5 * (took_s + 2)
        other = node.logs("ten-b", "web", "bank")
        assert other is not None
        assert other.status == 200

        def is_served_again() -> bool:
            reply = node.logs("ten-a", "web", "shop")
            return reply is not None and reply.status == 200

        wait_until(is_served_again, within_s=DEADLINE_S)
    finally:
        node.stop()


@pytest.mark.parametrize("path", ["/healthz", "/containerLogs/web/shop/app"])
def test_a_client_that_does_not_read_is_paused(node: AgentNode, path: str) -> None:
    """Unread responses must not pile up in the agent. Once read, none is missing."""
    count = 200_000 if path == "/healthz" else 1_000
    if path != "/healthz":
        node.kubelet.script = lambda _: FakeReply(body=b"x" * 100_000)
    with socket.create_connection(("127.0.0.1", node.daemon.port)) as sock:
        for size in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, size, 65536)
        sock.setblocking(False)
        far = TlsPeer(sock, node.context("ten-a"), is_server=False, name=NAME)
        far.handshake()

        def is_handshake_done() -> bool:
            far.push()
            far.pull()
            return far.is_handshake_done

        wait_until(is_handshake_done, within_s=DEADLINE_S)
        before = memory_kib(node)
        far.write(head(f"GET {path}") * count)
        quiet_since, left = time.monotonic(), far.unsent_bytes
        while time.monotonic() - quiet_since < 1.0:
            far.push()
            if far.unsent_bytes != left:
                quiet_since, left = time.monotonic(), far.unsent_bytes
            time.sleep(0.001)  # pace: nothing reports that the agent pauses a client
        assert memory_kib(node) - before < 16 << 10
        other = node.logs("ten-b", "web", "bank")
        assert other is not None
        answered_count, kept = 0, bytearray()

        def receive_reply() -> bool:
            nonlocal answered_count
            far.push()
            far.pull()
            kept.extend(far.received)
            far.received.clear()
            whole = kept.rfind(b"HTTP/1.1 200 OK")
            if whole > 0:
                answered_count += kept.count(b"HTTP/1.1 200 OK", 0, whole)
                del kept[:whole]
            return answered_count == count - 1 or far.end is not None

        wait_until(
            receive_reply,
            within_s=4 * DEADLINE_S,
            poll_s=0.0,
            context=lambda: f"{answered_count} of {count - 1} replies, end {far.end}",
        )
        assert (answered_count, far.end) == (count - 1, None)


def memory_kib(node: AgentNode) -> int:
    """The agent's resident memory."""
    lines = Path(f"/proc/{node.daemon.pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
