# SPDX-License-Identifier: Apache-2.0
"""Streams resume a verified session of the kubelet's (docs/decisions/0023): with the kubelet that has it, and
with the certificates that it began with, not otherwise."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from daemonkit.testing.pki import Authority
from tests.cases.daemon import wait_for
from tests.functional.vnagent.node import DEADLINE_S, NAME, SPDY, Node, head, reply_of
from tests.functional.vnagent.shop_and_bank import EXEC, SHOP, echoes, many, serves


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "n", ["ten-a"], [SHOP]) as running:
        yield running


def handshakes(node: Node, kind: str) -> float:
    return node.daemon.samples()[f'vcnode_kubelet_handshakes_total{{kind="{kind}"}}']


def resumes(node: Node) -> bool:
    """Whether the spare connection that is dialled behind each stream comes to resume."""

    def has_resumed() -> bool:
        before = handshakes(node, "resumed")
        return serves(node) and wait_for(lambda: handshakes(node, "resumed") > before, 1.0)

    return wait_for(has_resumed, DEADLINE_S)


def test_streams_resume_and_the_kubelet_knows_who_comes(node: Node) -> None:
    assert resumes(node)
    verified = handshakes(node, "full")
    with many(node, "ten-a", EXEC, SHOP.marker, *SPDY, count=5) as tunnels:
        for client in tunnels:
            assert echoes(client, b"by a resumed session")
    assert handshakes(node, "full") == verified
    assert {exchange.peer for exchange in node.kubelet.exchanges} == {f"vcnode:vn-agent:{NAME}"}


def test_a_kubelet_that_was_restarted_is_verified_anew(node: Node) -> None:
    assert resumes(node)
    verified = handshakes(node, "full")
    node.kubelet.restart(tls=node.kubelet_tls())
    assert serves(node)
    assert handshakes(node, "full") > verified


def test_another_kubelet_at_the_same_address_is_not_trusted(node: Node) -> None:
    """It has no key of the session's, and its certificate is by an authority that is not configured."""
    assert resumes(node)
    node.kubelet_authority = Authority.create("kubelet-serving")
    node.kubelet.restart(tls=node.kubelet_tls())
    with node.client("ten-a") as client:
        client.send(head(EXEC, *SPDY))
        reply = reply_of(client, "POST")
    assert reply is not None
    assert (reply.status, b"cannot verify the kubelet" in reply.body) == (502, True)
    node.daemon.after_reload(node.write_kubelet_authority)
    assert resumes(node)


def test_new_certificates_of_the_agents_are_shown_to_the_kubelet(node: Node) -> None:
    assert resumes(node)
    verified = handshakes(node, "full")
    node.daemon.after_reload(node.write_agent_certificate)
    assert serves(node)
    assert handshakes(node, "full") > verified
    assert resumes(node)
