# SPDX-License-Identifier: Apache-2.0
"""Admission by certificate: rotation, SPIFFE, removal, and the effect of each on open streams."""

import datetime as dt
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devkit.pki import Authority, Leaf
from tests.cases.client import CaseClient
from tests.cases.daemon import VnAgentProcess
from tests.functional.vnagent.node import DEADLINE_S, NAME, SPDY, AgentNode, head, received
from tests.functional.vnagent.shop_and_bank import BANK, SHOP
from tests.waiting import wait_until

EXEC = "POST /exec/web/shop/app?command=cat&input=1&output=1"
BANK_EXEC = "POST /exec/web/bank/app?command=cat&input=1&output=1"
FOLLOW = "GET /containerLogs/web/shop/app?follow=true"
# The contract: "loses its live connections within 5 s".
CUT_S = 5.0


@pytest.fixture
def spiffe() -> Authority:
    """The super cluster's own authority."""
    return Authority.create("super")


@pytest.fixture
def node(tmp_path: Path, spiffe: Authority) -> Iterator[AgentNode]:
    ca_file = spiffe.write(tmp_path, "spiffe")
    settings = {"spiffe": {"caFile": str(ca_file), "trustDomain": "super.example"}}
    with AgentNode(tmp_path / "n", ["ten-a", "ten-b"], [SHOP, BANK], settings) as node:
        yield node


def status(node: AgentNode, key: str, line: str, *headers: str, leaf: Leaf | None = None) -> int | None:
    reply = node.ask(key, line, *headers, leaf=leaf)
    return None if reply is None else reply.status


def is_cut(client: CaseClient, since_s: float) -> bool:
    """Whether the agent has ended the connection within the contract's time."""
    client.receive_until_end(CUT_S - (time.monotonic() - since_s))
    return client.end is not None


def test_the_right_spiffe_name_is_the_tenant(node: AgentNode, spiffe: Authority) -> None:
    leaf = spiffe.issue("any", uris=["spiffe://super.example/tenant/ten-a/apiserver"])
    assert status(node, "ten-a", "GET /containerLogs/web/shop/app", leaf=leaf) == 200
    assert status(node, "ten-a", "GET /containerLogs/web/bank/app", leaf=leaf) == 404
    assert status(node, "ten-a", "GET /metrics/resource", leaf=leaf) == 200


def test_an_inexact_spiffe_name_is_unregistered(node: AgentNode, spiffe: Authority) -> None:
    leaf = spiffe.issue("ten-a", uris=["spiffe://super.example/tenant/ten-a/apiserver/more"])
    assert status(node, "ten-a", "GET /pods", leaf=leaf) == 403


def test_a_client_gets_no_session_to_resume(node: AgentNode) -> None:
    """A resumed session has no verified chain."""
    with (
        socket.create_connection(("127.0.0.1", node.daemon.port), DEADLINE_S) as raw,
        node.context("ten-a").wrap_socket(raw, server_hostname=NAME) as connection,
    ):
        connection.sendall(head("GET /healthz"))
        # TLS 1.3 sends tickets behind the handshake: they would be here with the reply.
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert connection.version() == "TLSv1.3"
        assert connection.session is not None
        assert not connection.session.has_ticket


def test_removing_a_tenant_cuts_its_connections_only(node: AgentNode) -> None:
    with (
        node.client("ten-a") as tunnel,
        node.client("ten-a") as follow,
        node.client("ten-a") as idle,
        node.client("ten-b") as other,
    ):
        tunnel.send(head(EXEC, *SPDY))
        follow.send(head(FOLLOW))
        idle.send(head("GET /healthz"))
        other.send(head(BANK_EXEC, *SPDY))
        assert received(tunnel, SHOP.marker.encode())
        assert received(follow, SHOP.marker.encode())
        assert received(idle, b"\r\n\r\nok")
        assert received(other, BANK.marker.encode())
        begin = time.monotonic()
        (node.tenants_directory / "ten-a.yaml").unlink()
        for client in (tunnel, follow, idle):
            assert is_cut(client, begin)
        streams = [e for e in node.kubelet.requests() if SHOP.namespace in e.path]
        wait_until(lambda: all(e.ended_s is not None for e in streams), within_s=CUT_S)
        other.send(b"goes on")
        assert received(other, b"goes on")
    with CaseClient(("127.0.0.1", node.daemon.port), node.context("ten-a")) as again:
        again.handshake()
        assert again.receive_until_end(DEADLINE_S)
        assert again.received == b""


def test_a_restored_tenant_is_admitted_again(node: AgentNode) -> None:
    node.daemon.after_reload((node.tenants_directory / "ten-a.yaml").unlink)
    node.daemon.after_reload(lambda: node.write_tenant("ten-a"))
    assert status(node, "ten-a", "GET /containerLogs/web/shop/app") == 200


# ---- the end of a certificate


def test_connections_and_streams_end_at_certificate_expiry(tmp_path: Path) -> None:
    """SPIFFE revokes only by short lifetimes. Connections under a certificate that is still valid continue,
    also of the same caller."""
    node = AgentNode(tmp_path / "n", ["ten-a", "ten-b"], [SHOP, BANK])
    node.daemon = VnAgentProcess(node.daemon.config, node.daemon.socket, is_clock_movable=True)
    with node:
        tenant = node.tenants["ten-a"]
        end = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=100)
        short = tenant.authority.issue("short", key=tenant.leaf.key, not_after=end)
        with (
            node.client("ten-a", short) as idle,
            node.client("ten-a", short) as tunnel,
            node.client("ten-a", short) as follow,
            node.client("ten-a") as lasting,
        ):
            idle.send(head("GET /healthz"))
            assert received(idle, b"ok")
            for client, line in ((tunnel, EXEC), (follow, FOLLOW), (lasting, EXEC)):
                client.send(head(line, *(SPDY if line is EXEC else ())))
                assert received(client, SHOP.marker.encode())
            node.daemon.advance(90)
            tunnel.send(b"still")
            assert received(tunnel, b"still")
            node.daemon.advance(12)
            began_s = time.monotonic()
            assert all(is_cut(client, began_s) for client in (idle, tunnel, follow))
            assert node.daemon.metric("vcnode_vnagent_connections_expired_total") == 3
            lasting.send(b"goes on")
            assert received(lasting, b"goes on")
            # OpenSSL has the kernel's clock, by which it is valid: the refusal is ours.
            assert status(node, "ten-a", "GET /healthz", leaf=short) == 403
            assert status(node, "ten-a", "GET /healthz") == 200
