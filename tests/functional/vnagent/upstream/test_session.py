# SPDX-License-Identifier: Apache-2.0
"""Streams resume a verified session of the kubelet (docs/decisions/0023), with the same kubelet and the same
certificates only."""

import asyncio
import datetime as dt
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devkit.kubelet.server import FakeKubelet, kubelet_context
from devkit.pki import Authority
from tests.functional.vnagent.connection_links import FailureRecorder, until
from tests.functional.vnagent.node import DEADLINE_S, NAME, SPDY, AgentNode, head, received, reply_of
from tests.functional.vnagent.shop_and_bank import EXEC, SHOP, echoes, many, serves
from tests.functional.vnagent.upstream.resumption_proxy import ProxyEnding, ResumptionProxy
from tests.waiting import holds_within, wait_until
from vnagent.core.head import ResponseHead
from vnagent.transport.poller import SocketPoller
from vnagent.transport.tls_connection import TlsConnection
from vnagent.upstream.pool import UpstreamAddress, UpstreamConnection, UpstreamPool


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AgentNode]:
    with AgentNode(tmp_path / "n", ["ten-a"], [SHOP]) as running:
        yield running


def handshakes(node: AgentNode, kind: str) -> float:
    return node.daemon.samples()[f'vcnode_vnagent_kubelet_handshakes_total{{kind="{kind}"}}']


def resumes(node: AgentNode) -> bool:
    """Whether the spare connection behind each stream resumes the session."""

    def has_resumed() -> bool:
        before = handshakes(node, "resumed")
        return serves(node) and holds_within(lambda: handshakes(node, "resumed") > before, 1.0)

    return holds_within(has_resumed, DEADLINE_S)


def test_resumed_streams_keep_the_client_certificate(node: AgentNode) -> None:
    assert resumes(node)
    verified = handshakes(node, "full")
    with many(node, "ten-a", EXEC, SHOP.marker, *SPDY, count=5) as tunnels:
        for client in tunnels:
            assert echoes(client, b"by a resumed session")
    assert handshakes(node, "full") == verified
    assert {exchange.peer for exchange in node.kubelet.exchanges} == {f"vcnode:vn-agent:{NAME}"}


def test_a_restarted_kubelet_is_verified_again(node: AgentNode) -> None:
    assert resumes(node)
    verified = handshakes(node, "full")
    node.kubelet.restart(tls=node.kubelet_tls())
    assert serves(node)
    assert handshakes(node, "full") > verified


def test_another_kubelet_at_the_address_is_untrusted(node: AgentNode) -> None:
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


def test_new_client_certificates_are_sent_to_the_kubelet(node: AgentNode) -> None:
    assert resumes(node)
    verified = handshakes(node, "full")
    node.daemon.after_reload(node.write_agent_certificate)
    assert serves(node)
    assert handshakes(node, "full") > verified
    assert resumes(node)


@contextmanager
def behind(proxy: ResumptionProxy, directory: Path) -> Iterator[AgentNode]:
    """A node whose agent dials the front for the kubelet, for requests of tenants alone, and has kept a
    session."""
    pods = directory / "pods.json"
    node = AgentNode(directory / "n", ["ten-a"], [SHOP], {"pods": {"source": "file", "file": str(pods)}})
    node.write_pod_file(pods)
    proxy.kubelet, node.proxy_port = node.kubelet, proxy.port
    with node:
        assert is_served(node)
        yield node


def is_served(node: AgentNode) -> bool:
    """Whether an exec begins within kubectl's timeout."""
    with node.client("ten-a") as client:
        client.send(head(EXEC, *SPDY))
        return received(client, SHOP.marker.encode())


def test_failed_resumptions_fail_no_stream(tmp_path: Path) -> None:
    """Nothing of the request has left then: it is dialled again, without the session."""
    with ResumptionProxy(ProxyEnding.RESET) as proxy, behind(proxy, tmp_path) as node:
        # Also the connection that is dialled ahead, which would be dialled again in any case. It may be on
        # its way still.
        def are_all_gone() -> bool:
            node.kubelet.drop_connections()
            return node.daemon.metric("vcnode_vnagent_kubelet_connections") == 0

        wait_until(are_all_gone, within_s=DEADLINE_S)
        assert proxy.offered == 0
        assert is_served(node)
        assert proxy.offered > 0


@pytest.mark.parametrize("ending", [ProxyEnding.SILENCE, ProxyEnding.CLOSED])
def test_a_session_that_breaks_connections_is_dropped(tmp_path: Path, ending: ProxyEnding) -> None:
    with ResumptionProxy(ending) as proxy, behind(proxy, tmp_path) as node:
        # A stream may fail that the kubelet might have seen; then all are served for a while.
        wait_until(lambda: not is_served(node) or proxy.offered > 0, within_s=DEADLINE_S)
        wait_until(lambda: all(is_served(node) for _ in range(5)), within_s=3 * DEADLINE_S)


class Taker(FailureRecorder):
    """A response handler that takes its connection over."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: UpstreamConnection | None = None
        self.transport: TlsConnection | None = None

    def on_response(self, head: ResponseHead) -> None:
        assert (head.status, self.connection is None) == (101, False)
        if self.connection is not None:
            self.transport, _ = self.connection.take_transport()

    def has_taken(self) -> bool:
        assert self.failures == []
        return self.transport is not None


def test_a_session_ends_at_the_kubelets_expiry(tmp_path: Path) -> None:
    expires_at = (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=300)).replace(microsecond=0)
    authority = Authority.create("ca")
    server = authority.issue(NAME, sans_dns=[NAME], usages=("server",), not_after=expires_at)
    certificate, key = server.write(tmp_path, "kubelet")
    tls = kubelet_context(str(certificate), str(key), authority.cert_pem.decode())
    context = ssl.create_default_context(cadata=authority.cert_pem.decode())
    authority.issue("agent", usages=("client",)).load_into(context)
    kubelet = FakeKubelet([SHOP], tls=tls)

    async def main() -> None:
        poller = SocketPoller(asyncio.get_running_loop())
        poller.start()
        pool = UpstreamPool(poller, UpstreamAddress("127.0.0.1", kubelet.port, NAME), context)

        def offers_a_session() -> bool:
            connection = pool.acquire(Taker(), b"", timeout_s=None, is_upgrade=False)
            return connection.offered_session is not None

        assert not offers_a_session()
        stream = Taker()
        path = f"/exec/{SHOP.namespace}/{SHOP.name}/app?command=cat&output=1"
        request = head(f"POST {path}", *SPDY)
        stream.connection = pool.acquire(stream, request, timeout_s=None, is_upgrade=True)
        await until(stream.has_taken)
        poller.now += expires_at.timestamp() - time.time() - 5
        assert offers_a_session()
        poller.now += 10
        assert not offers_a_session()
        poller.stop()

    kubelet.start()
    try:
        asyncio.run(main())
    finally:
        kubelet.stop()
