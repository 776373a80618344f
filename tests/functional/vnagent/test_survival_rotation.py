# SPDX-License-Identifier: Apache-2.0
"""New certificates of the agent, the kubelet and a tenant: open streams go on, or are cut."""

import time

from devkit.pki import Authority
from tests.cases.client import CaseClient
from tests.functional.vnagent.node import NAME, SPDY, AgentNode, head, received
from tests.functional.vnagent.shop_and_bank import (
    BANK,
    CUT_WITHIN_S,
    EXEC,
    FOLLOW,
    SHOP,
    echoes,
    many,
    serves,
    status_of,
)


def test_the_serving_certificate_is_replaced_under_streams(node: AgentNode) -> None:
    with (
        many(node, "ten-a", FOLLOW, SHOP.marker, count=3) as follows,
        many(node, "ten-a", EXEC, SHOP.marker, *SPDY, count=3) as tunnels,
    ):
        before = node.context("ten-a")
        node.serving = Authority.create("agent-serving")
        node.daemon.after_reload(node.write_serving)
        # Who trusts the new authority alone gets in, who trusts the old one alone does not.
        node.forget_contexts()
        assert serves(node)
        with CaseClient(("127.0.0.1", node.daemon.port), before, sni=NAME) as client:
            assert not client.handshake()
        node.kubelet.append_log(SHOP.namespace, SHOP.name, "app", "a line after the rotation")
        for client in follows:
            assert received(client, b"a line after the rotation")
        for client in tunnels:
            assert echoes(client, b"echo after the rotation")


def test_the_kubelet_client_certificate_is_replaced(node: AgentNode) -> None:
    with many(node, "ten-a", EXEC, SHOP.marker, *SPDY, count=2) as tunnels:
        node.daemon.after_reload(node.write_agent_certificate)
        for client in tunnels:
            assert echoes(client, b"still there")
    # The kubelet switches to another client authority, and refuses the old certificate.
    node.agent_clients = Authority.create("agent-clients")
    node.kubelet.restart(tls=node.kubelet_tls())
    assert status_of(node.logs("ten-a", "web", "shop")) == 502
    node.daemon.after_reload(node.write_agent_certificate)
    assert serves(node)


def test_the_kubelets_serving_certificate_is_replaced(node: AgentNode) -> None:
    node.kubelet.restart(tls=node.kubelet_tls())  # the same authority: nothing to do
    assert serves(node)
    node.kubelet_authority = Authority.create("kubelet-serving")
    node.kubelet.restart(tls=node.kubelet_tls())
    reply = node.logs("ten-a", "web", "shop")
    assert reply is not None
    assert reply.status == 502
    assert b"cannot verify the kubelet" in reply.body
    node.daemon.after_reload(node.write_kubelet_authority)
    assert serves(node)


def test_a_tenants_leaf_is_replaced_with_an_overlap(node: AgentNode) -> None:
    tenant = node.tenants["ten-a"]
    new = tenant.authority.issue("kube-apiserver-kubelet-client")
    assert status_of(node.ask("ten-a", "GET /healthz", leaf=new)) == 403
    node.daemon.after_reload(lambda: node.write_tenant("ten-a", tenant.leaf, new))
    for leaf in (tenant.leaf, new):
        assert status_of(node.ask("ten-a", "GET /healthz", leaf=leaf)) == 200
    with (
        many(node, "ten-a", EXEC, SHOP.marker, *SPDY, count=2) as tunnels,
        many(node, "ten-a", FOLLOW, SHOP.marker, count=2) as follows,
        many(node, "ten-b", EXEC.replace("shop", "bank"), BANK.marker, *SPDY, count=1) as others,
        node.client("ten-a", new) as newer,
    ):
        newer.send(head(EXEC, *SPDY))
        assert received(newer, SHOP.marker.encode())
        began = time.monotonic()
        node.write_tenant("ten-a", new)
        for client in (*tunnels, *follows):
            assert client.receive_until_end(CUT_WITHIN_S)
        assert time.monotonic() - began < CUT_WITHIN_S
        for client in (*others, newer):
            assert echoes(client, b"still there")
    assert status_of(node.ask("ten-a", "GET /healthz")) == 403
