# SPDX-License-Identifier: Apache-2.0
"""The daemon's memory at each limit of the configuration, with clients that do not read.

The bounds are those of `vnagent/README.md`, *Memory*.
"""

import contextlib
import dataclasses
import datetime as dt
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from jwt.utils import base64url_encode

from devkit.kubelet.pods import FakePod, pod_list
from devkit.kubelet.replies import Exchange, FakeReply, ReplyEnd, Tunnel, switching
from devkit.pki import common_name
from tests.cases.client import CaseClient, SendFailed
from tests.functional.scraped_node import free_ports
from tests.functional.vnagent.attacks import chain_bytes, client_context
from tests.functional.vnagent.node import (
    DEADLINE_S,
    NAME,
    SPDY,
    AgentNode,
    NodeTenant,
    head,
    received,
    tenant_pod,
)
from tests.functional.vnagent.shop_and_bank import BANK, SHOP, status_of
from tests.functional.vnagent.token_node import TENANTS, TokenNode, request
from tests.waiting import holds_within, wait_until
from vnagent.config import MAX_TOKEN_LISTENERS
from vnagent.core.jwks import MAX_KEYS, MAX_RSA_BITS
from vnagent.dispatch import MAX_LOOKUPS
from vnagent.downstream.admission import MAX_TENANT_HANDSHAKE_BYTES, MAX_UNCOUNTED
from vnagent.downstream.token_port import MAX_HEAD_BYTES, MAX_VERIFIED

MIB = 1 << 20
# The formula's figures.
BASE_BYTES = 64 * MIB
CONNECTION_BYTES = 40 << 10
TUNNEL_BYTES = 40 << 10
PAGE_FACTOR = 12  # of the kubelet's largest page
BUFFERED_FACTOR = 2  # vn-agent keeps a piece whole until half of it is sent
LIST_BYTES = 64 * MIB  # the kubelet's /pods, however large
CHAINS_BYTES = 220 * MIB  # of a tenant whose certificates are made for it
TOKEN_BYTES = 16 * MIB  # with ports for tokens

# The kernel's memory of a connection whose client does not read: tcp_wmem, and the client's buffer.
KERNEL_BYTES = 4 * MIB + (64 << 10)
READERS = 200
UNREAD = b"x" * (4 * MIB)
BUFFERED = 8 * MIB
EXEC = "POST /exec/web/shop/app?command=cat&output=1"


def bound_bytes(
    *,
    connections: int = 0,
    tunnels: int = 0,
    buffered_tenants: int = 0,
    page_bytes: int = 0,
    chain_tenants: int = 0,
) -> float:
    return (
        BASE_BYTES
        + CONNECTION_BYTES * connections
        + TUNNEL_BYTES * tunnels
        + BUFFERED_FACTOR * BUFFERED * buffered_tenants
        + PAGE_FACTOR * page_bytes
        + CHAINS_BYTES * chain_tenants
    )


@contextlib.contextmanager
def running(directory: Path, *pods: FakePod, max_age_s: int = 2, **limits: int) -> Iterator[AgentNode]:
    settings: dict[str, Any] = {
        "limits": {"bufferedBytesPerTenant": BUFFERED} | limits,
    }
    node = AgentNode(directory / "n", ["ten-a", "ten-b"], [SHOP, BANK, *pods], settings)
    pod_file = directory / "pods.json"
    node.write_pod_file(pod_file)
    node.settings["pods"] = {"source": "file", "file": str(pod_file)}
    with node:
        yield node


@contextlib.contextmanager
def readers(node: AgentNode, count: int, request: bytes, key: str = "ten-a") -> Iterator[list[CaseClient]]:
    """Connections that read only when a test does; their kernel buffers are small.

    Each sends its request at once: vn-agent waits for a head for 9 s after the handshake, and as long as
    others are opened, this is no time for one.
    """
    clients = []
    try:
        for _ in range(count):
            address = ("127.0.0.1", node.daemon.port)
            client = CaseClient(address, node.context(key), sni=NAME, receive_buffer_bytes=4096)
            clients.append(client)
            client.handshake()
            client.send(request)
        yield clients
    finally:
        for client in clients:
            client.reset()


def statuses(node: AgentNode, endpoint: str) -> dict[str, int]:
    """How many of ten-a's requests got which status."""
    found = {}
    for name, value in node.daemon.samples().items():
        is_of_requests = name.startswith("vcnode_vnagent_requests_total{")
        if is_of_requests and f'endpoint="{endpoint}",tenant="ten-a"' in name:
            found[name.partition('code="')[2][:3]] = int(value)
    return found


def peak_bytes(node: AgentNode) -> int:
    """The most memory that the daemon ever had resident."""
    text = Path(f"/proc/{node.daemon.pid}/status").read_text(encoding="ascii")
    return 1024 * next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM:"))


def settled_peak_bytes(node: AgentNode) -> int:
    """As `peak_bytes`, once the daemon is idle, as its clients do not read."""

    def is_idle() -> bool:
        before = processor_ticks(node)
        holds_within(lambda: False, 0.5)
        return processor_ticks(node) - before <= 5  # of 50

    wait_until(is_idle, within_s=4 * DEADLINE_S)
    return peak_bytes(node)


def processor_ticks(node: AgentNode) -> int:
    fields = Path(f"/proc/{node.daemon.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_memory_of_connections(tmp_path: Path) -> None:
    limit = 300
    line = head("GET /healthz")
    with running(tmp_path, connectionsPerTenant=limit) as node, readers(node, limit, line) as clients:
        for client in clients:
            assert received(client, b"\r\n\r\nok")
        with readers(node, 1, line) as (late,):
            assert received(late, b"HTTP/1.1 429 ")
        assert node.daemon.metric("vcnode_vnagent_connections") == limit
        assert settled_peak_bytes(node) <= bound_bytes(connections=limit)


def test_memory_of_large_chains(tmp_path: Path) -> None:
    """A leaf of 10 KB, all empty names. OpenSSL keeps the parsed certificate while its connection lives."""
    with running(tmp_path) as node, contextlib.ExitStack() as stack:
        tenant = node.tenants["ten-a"]
        leaf = leaf_of_names(tenant)
        context = client_context(node.serving, leaf, tenant.leaf)
        most = MAX_TENANT_HANDSHAKE_BYTES // chain_bytes(leaf)

        def open_client() -> CaseClient:
            client = CaseClient(("127.0.0.1", node.daemon.port), context, sni=NAME)
            stack.callback(client.reset)
            client.handshake()
            client.send(head("GET /healthz"))
            return client

        taken = 0
        while taken <= most and received(open_client(), b" 200 OK\r\n", 2.0):
            taken += 1
        assert 300 < taken < most
        assert received(open_client(), b" 429 ")
        assert settled_peak_bytes(node) <= bound_bytes(connections=taken, chain_tenants=1)


def leaf_of_names(tenant: NodeTenant) -> bytes:
    """PEM of a certificate for the tenant's registered key."""
    now, issuer = dt.datetime.now(dt.UTC), tenant.authority
    # Empty ones, of two bytes each: nothing else in a certificate takes as much memory for a byte.
    names = b"\x82\x00" * 5_000
    value = b"\x30\x82" + len(names).to_bytes(2) + names
    extension = x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), value)
    return (
        x509.CertificateBuilder()
        .subject_name(common_name("client"))
        .issuer_name(issuer.certificate.subject)
        .public_key(tenant.leaf.key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(extension, critical=False)
        .sign(issuer.key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )


def test_memory_of_tunnels(tmp_path: Path) -> None:
    limit = 300
    line = head(EXEC, *SPDY)
    with running(tmp_path, tunnelsPerTenant=limit) as node, readers(node, limit, line) as clients:
        for client in clients:
            assert received(client, SHOP.marker.encode())
        assert node.daemon.metric("vcnode_vnagent_tunnels") == limit
        assert settled_peak_bytes(node) <= bound_bytes(tunnels=limit)


def test_memory_of_followed_logs(tmp_path: Path) -> None:
    limit = 300
    line = head("GET /containerLogs/web/shop/app?follow=true")
    with running(tmp_path, logFollowsPerTenant=limit) as node, readers(node, limit, line) as clients:
        for client in clients:
            assert received(client, SHOP.marker.encode())
        with readers(node, 1, line) as (late,):
            assert received(late, b"HTTP/1.1 429 ")
        assert node.daemon.metric("vcnode_vnagent_log_follows") == limit
        assert settled_peak_bytes(node) <= bound_bytes(connections=2 * limit)


def test_memory_of_incomplete_heads(tmp_path: Path) -> None:
    """Heads of 180 KiB whose ends do not come. Above the limit they are answered 429."""
    part = head("GET /containerLogs/web/shop/app?x=")[:-4] + b"\r\nX: " + b"x" * (60 << 10)
    part += b"\r\nY: " + part[-(60 << 10) :] + b"\r\nZ: " + part[-(60 << 10) :]
    with running(tmp_path) as node, readers(node, READERS, part):
        wait_until(lambda: statuses(node, "malformed").get("429", 0) > 0, within_s=4 * DEADLINE_S)
        most = settled_peak_bytes(node)
        assert most <= bound_bytes(connections=READERS, buffered_tenants=1)
        assert status_of(node.ask("ten-b", "GET /healthz")) == 200


def test_memory_of_lookups(tmp_path: Path) -> None:
    """All lookups of a tenant wait for a kubelet that does not answer; more are answered 429."""
    with AgentNode(tmp_path / "n", ["ten-a", "ten-b"], [SHOP, BANK]) as node:
        node.kubelet.script = lambda exchange: FakeReply(raw=b"", ending=ReplyEnd.SILENT)
        with readers(node, MAX_LOOKUPS + 1, head("GET /containerLogs/web/missing/app")):
            wait_until(lambda: statuses(node, "containerLogs").get("429", 0) == 1, within_s=DEADLINE_S)
            assert peak_bytes(node) <= bound_bytes(connections=MAX_LOOKUPS + 8)


def test_memory_of_unread_tunnels(tmp_path: Path) -> None:
    def flood(exchange: Exchange) -> FakeReply | None:
        plain = switching(exchange, Tunnel.SINK)
        return FakeReply(101, plain.headers, tunnel=Tunnel.SINK, first_bytes=UNREAD)

    with running(tmp_path) as node:
        node.kubelet.script = flood
        with readers(node, READERS, head(EXEC, *SPDY)):
            wait_until(
                lambda: node.daemon.metric("vcnode_vnagent_tunnels") == READERS, within_s=4 * DEADLINE_S
            )
            assert settled_peak_bytes(node) <= bound_bytes(tunnels=READERS, buffered_tenants=1)
            assert status_of(node.ask("ten-b", "GET /healthz")) == 200


def test_memory_of_unread_logs(tmp_path: Path) -> None:
    with running(tmp_path) as node:
        node.kubelet.script = lambda _: FakeReply(body=UNREAD)
        with readers(node, READERS, head("GET /containerLogs/web/shop/app")):
            # Of a log, the client's connection and the kubelet's.
            assert settled_peak_bytes(node) <= bound_bytes(connections=2 * READERS, buffered_tenants=1)
            assert sum(statuses(node, "containerLogs").values()) > 0
            node.kubelet.script = None
            assert status_of(node.logs("ten-b", "web", "bank")) == 200


def test_memory_of_unread_pages(tmp_path: Path) -> None:
    """Each of 200 readers has its own page, larger than the kernel's buffers. Pages were once charged when
    sent, after all of them were rendered."""
    containers = tuple(f"{number:02}-{'c' * 60}" for number in range(24))
    many = [
        dataclasses.replace(tenant_pod("ten-a", "web", f"p{number}"), containers=containers)
        for number in range(600)
    ]
    with running(tmp_path, *many) as node:
        page = node.ask("ten-a", "GET /pods")
        assert page is not None
        page_bytes = len(page.body)
        assert page_bytes > KERNEL_BYTES + MIB
        with readers(node, READERS, head("GET /pods")):
            # Each gets a response: 429 if it waits too long for the tenant's other requests.
            wait_until(lambda: sum(statuses(node, "pods").values()) > READERS, within_s=4 * DEADLINE_S)
            most = settled_peak_bytes(node)
            counts = statuses(node, "pods")
        assert most <= bound_bytes(connections=READERS, buffered_tenants=1, page_bytes=page_bytes)
        assert sum(counts.values()) == READERS + 1
        # The daemon keeps all bytes beyond the kernels' buffers: the limit, and one page more.
        unread = (counts["200"] - 1) * (page_bytes - KERNEL_BYTES)
        assert 0 < unread <= BUFFERED + page_bytes

        def is_served_again() -> bool:
            reply = node.ask("ten-a", "GET /pods")
            return reply is not None and reply.status == 200

        wait_until(is_served_again, within_s=DEADLINE_S)
    lines = (node.directory / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    assert sum(json.loads(line)["endpoint"] == "pods" for line in lines) >= READERS + 2


def test_memory_of_unread_responses(tmp_path: Path) -> None:
    """Pipelined, at the default rate and without one: who does not read is not listened to."""
    many = head("GET /healthz") * 1000
    with running(tmp_path, requestsPerSecondPerTenant=0) as node, readers(node, READERS, many):
        most = settled_peak_bytes(node)
        # In the kernel and in the agent, what a connection may send ahead: 64 KiB.
        assert most <= bound_bytes(connections=READERS, buffered_tenants=1) + READERS * (64 << 10)
        assert node.daemon.metric("vcnode_vnagent_audit_lines_lost_total") == 0


def test_memory_of_queued_requests(tmp_path: Path) -> None:
    many = head("GET /healthz") * 1000
    with running(tmp_path, requestsPerSecondPerTenant=10) as node, readers(node, READERS, many):
        wait_until(lambda: statuses(node, "healthz").get("200", 0) >= 20, within_s=DEADLINE_S)
        most = peak_bytes(node)
        assert most <= bound_bytes(connections=READERS) + READERS * (64 << 10)
        assert status_of(node.ask("ten-b", "GET /healthz")) == 200


def test_memory_of_large_pods(tmp_path: Path) -> None:
    """50 pods as large as etcd takes them, in the kubelet's list: a neighbour's new pod is found, and its
    page is served."""
    with AgentNode(tmp_path / "n", ["ten-a", "ten-b"], [SHOP, BANK]) as node:
        assert status_of(node.logs("ten-b", "web", "bank")) == 200
        large = [
            dataclasses.replace(
                tenant_pod("ten-a", "web", f"p{number}"),
                labels={"bulk": "x" * 1_400_000},
            )
            for number in range(50)
        ]
        vault = tenant_pod("ten-b", "web", "vault")
        page = json.dumps(pod_list([*large, BANK, vault])).encode()

        def with_large_pods(exchange: Exchange) -> FakeReply | None:
            return FakeReply(200, (), page) if exchange.path == "/pods" else None

        node.kubelet.pods = (BANK, vault)
        node.kubelet.script = with_large_pods
        wait_until(lambda: status_of(node.logs("ten-b", "web", "vault")) == 200, within_s=4 * DEADLINE_S)
        reply = node.ask("ten-b", "GET /pods")
        assert reply is not None
        names = [each["metadata"]["name"] for each in json.loads(reply.body)["items"]]
        assert (reply.status, names) == (200, ["bank", "vault"])
        unreadable = node.logs("ten-a", "web", "p7")
        assert unreadable is not None
        assert (unreadable.status, b"too large" in unreadable.body) == (500, True)
        assert peak_bytes(node) <= bound_bytes(connections=8) + LIST_BYTES


def test_memory_of_token_listeners(tmp_path: Path) -> None:
    """All ports have as many keys as a set may have. Two have all tokens that they remember, and connections
    at their tenants' limit. As many clients as are kept without a token send heads that do not end."""
    connections = 2 * MAX_VERIFIED
    tokens = TokenNode(tmp_path, limits={"connectionsPerTenant": connections})
    keys = large_keys()
    more = tmp_path / "more.jwks"
    more.write_text(json.dumps({"keys": keys}), encoding="utf-8")
    ports = set(free_ports(MAX_TOKEN_LISTENERS)).difference(tokens.ports.values())
    tokens.node.settings["tokenListeners"] += [
        tokens.listener("ten-a", tenant=f"more-{port}", port=port, jwksFile=str(more))
        for port in sorted(ports)[: MAX_TOKEN_LISTENERS - len(TENANTS)]
    ]
    with tokens, contextlib.ExitStack() as stack:
        for key in TENANTS:
            all_keys = tokens.issuers[key].jwks(*keys[1:])
            tokens.node.daemon.after_reload(functools.partial(tokens.write_jwks, key, all_keys))
        found = tokens.node.daemon.status()["tokenListeners"]
        assert [each["keys"] for each in found] == [MAX_KEYS] * MAX_TOKEN_LISTENERS
        for key in TENANTS:
            open_verified(stack, tokens, key, connections)
        count = len(TENANTS) * connections + MAX_UNCOUNTED
        before = handshakes(tokens.node)
        without_token = [
            stack.enter_context(tokens.client(TENANTS[number % 2], source_of(number)))
            for number in range(MAX_UNCOUNTED)
        ]
        # What comes with a handshake counts as its bytes, and few large ones are kept. Connections are not
        # counted: where 256 handshakes take longer than 9 s, the first of them have ended.
        wait_until(lambda: handshakes(tokens.node) == before + MAX_UNCOUNTED, within_s=4 * DEADLINE_S)
        for client in without_token:
            with contextlib.suppress(SendFailed):
                client.send(head("GET /pods", "X: " + "x" * (MAX_HEAD_BYTES - 100))[:-4])
        most = settled_peak_bytes(tokens.node)
    assert most <= bound_bytes(connections=count) + TOKEN_BYTES
    with running(tmp_path / "without") as node:
        without = settled_peak_bytes(node)
    assert most - without <= TOKEN_BYTES + CONNECTION_BYTES * count


def handshakes(node: AgentNode) -> float:
    """How many handshakes of clients are done."""
    samples = node.daemon.samples().items()
    return sum(value for name, value in samples if name.startswith("vcnode_vnagent_handshakes_total"))


def large_keys() -> list[dict[str, str]]:
    """As many public keys of RSA as a set may have, of the largest size. Nothing is signed by them."""
    found = []
    for number in range(MAX_KEYS):
        modulus = (3 << (MAX_RSA_BITS - 2)) + 2 * number + 1
        text = base64url_encode(modulus.to_bytes(MAX_RSA_BITS // 8)).decode()
        found.append({"kty": "RSA", "kid": f"large-{number}", "n": text, "e": "AQAB"})
    return found


def source_of(number: int) -> str:
    """An address of loopback. One address may show few new tokens at once."""
    return f"127.0.1.{number % 32 + 1}"


def open_verified(stack: contextlib.ExitStack, tokens: TokenNode, key: str, count: int) -> None:
    """Connections that have shown a valid token, with as many tokens as a port remembers."""
    issued = [tokens.issuers[key].token(jti=f"{number}") for number in range(MAX_VERIFIED)]

    def is_served(number: int) -> bool:
        client = stack.enter_context(tokens.client(key, source_of(number)))
        reply = request(client, "GET /healthz", issued[number % MAX_VERIFIED])
        assert status_of(reply) in (200, 429)  # 429: too many new tokens
        return status_of(reply) == 200

    for number in range(count):
        wait_until(functools.partial(is_served, number), within_s=DEADLINE_S)
