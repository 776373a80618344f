# SPDX-License-Identifier: Apache-2.0
"""What vn-agent asks of a real super API server on a node that hides its kubelet, with the shipped rights.

The facts that devkit/kubelet/pod_proxy.py repeats.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace

import pytest

from devkit.pki import Leaf
from tenancy.ownership import Owned
from tests.k8s.ring import shipped
from tests.k8s.ring.api import TlsEndpoint
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.tenants import RingTenant
from vnagent.core.apiserver_request import ApiserverRequests
from vnagent.core.kubelet_facts import configured_of, gates_of, version_of
from vnagent.core.requests import ContainerLogs, Endpoint, Protocol, Stream, Upgrade
from vnagent.upstream.page_fetch import unchunk

_KEY = base64.b64encode(bytes(16)).decode()


@pytest.fixture(scope="module")
def user(ring: Ring) -> Iterator[Leaf]:
    files = ("options/vn-agent-apiserver.yaml", "options/vn-agent-apiserver-pages.yaml")
    api = ring.super_cluster.api
    shipped.apply_rights(api, ring.node.name, *files)
    yield shipped.issue_user(ring.super_cluster, "vn-agent", ring.node.name)
    # Rights of a group that other modules expect without them.
    for name in ("vcnode:vn-agent-apiserver", f"vcnode:vn-agent-apiserver-pages:{ring.node.name}"):
        for kind in ("clusterrolebindings", "clusterroles"):
            api.delete(f"/apis/rbac.authorization.k8s.io/v1/{kind}/{name}")


@pytest.fixture(scope="module")
def server(ring: Ring, user: Leaf) -> TlsEndpoint:
    return replace(ring.super_cluster.api.endpoint, leaf=user)


def _requests(ring: Ring) -> ApiserverRequests:
    return ApiserverRequests("super", "", ring.node.name, None)


def _pod(tenant: RingTenant) -> Owned:
    namespace = tenant.super_namespace("default")
    return Owned(tenant.key, "default", "web", "any", namespace, "web", "any", frozenset({"main"}))


def _stream(endpoint: Endpoint, options: tuple[tuple[str, str], ...], upgrade: Upgrade) -> Stream:
    container = None if endpoint is Endpoint.PORT_FORWARD else "main"
    return Stream(endpoint, "default", "web", None, container, options, upgrade)


def _websocket(*protocols: str) -> Upgrade:
    return Upgrade(Protocol.WEBSOCKET, protocols, _KEY)


def test_a_log_of_each_parameter(served: Ring, server: TlsEndpoint, acme: RingTenant) -> None:
    options = (("tailLines", "1"), ("timestamps", "true"), ("limitBytes", "4096"), ("sinceSeconds", "86400"))
    request = ContainerLogs("default", "web", "main", options, is_follow=False)
    reply = server.exchange(_requests(served).logs(request, _pod(acme)))
    assert reply.startswith(b"HTTP/1.1 200 OK\r\n"), reply


@pytest.mark.parametrize(
    ("protocols", "expected"),
    [
        (("v5.channel.k8s.io",), b"Sec-Websocket-Protocol: v5.channel.k8s.io"),
        (("v4.channel.k8s.io",), b"Sec-Websocket-Protocol: v4.channel.k8s.io"),
    ],
)
def test_exec_by_websocket(
    served: Ring, server: TlsEndpoint, acme: RingTenant, protocols: tuple[str, ...], expected: bytes
) -> None:
    """Version 5 ends at the API server, which goes on by SPDY; version 4 passes it."""
    options = (("command", "echo"), ("command", "inside"), ("output", "1"))
    sent = _requests(served).stream(_stream(Endpoint.EXEC, options, _websocket(*protocols)), _pod(acme))
    with server.dial() as connection:
        connection.sendall(sent)
        received = b""
        while b"inside\n" not in received:
            chunk = connection.recv(65536)
            assert chunk, received
            received += chunk
    head = received.partition(b"\r\n\r\n")[0]
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert expected.lower() in head.lower()


@pytest.mark.parametrize("endpoint", [Endpoint.EXEC, Endpoint.PORT_FORWARD])
def test_streams_by_spdy(served: Ring, server: TlsEndpoint, acme: RingTenant, endpoint: Endpoint) -> None:
    is_exec = endpoint is Endpoint.EXEC
    protocol = "v4.channel.k8s.io" if is_exec else "portforward.k8s.io"
    options = (("command", "cat"), ("input", "1"), ("output", "1")) if is_exec else ()
    upgrade = Upgrade(Protocol.SPDY, (protocol,), None)
    sent = _requests(served).stream(_stream(endpoint, options, upgrade), _pod(acme))
    with server.dial() as connection:
        connection.sendall(sent)
        received = connection.recv(65536)
    assert received.startswith(b"HTTP/1.1 101 Switching Protocols\r\n"), received
    assert f"x-stream-protocol-version: {protocol}".encode() in received.lower()


@pytest.mark.parametrize("path", ["/pods", "/stats/summary", "/metrics/resource"])
def test_pages_by_the_nodes_proxy(served: Ring, server: TlsEndpoint, path: str) -> None:
    reply = server.exchange(_requests(served).page(path))
    assert reply.startswith(b"HTTP/1.1 200 OK\r\n"), reply[:500]


def test_a_real_kubelet_reports_itself(served: Ring, server: TlsEndpoint) -> None:
    """What vn-agent reads for its /status, in the pages of a kubelet of 1.34."""

    def page(path: str) -> bytes:
        head, _, body = server.exchange(_requests(served).page(path)).partition(b"\r\n\r\n")
        return unchunk(body) if b"chunked" in head else body

    metrics = page("/metrics")
    assert (version_of(metrics) or "").startswith("v1.34.")
    assert gates_of(metrics)["KubeletFineGrainedAuthz"] is True
    assert configured_of(page("/configz")) == (True, 0)


def test_refusals_are_a_status(served: Ring, server: TlsEndpoint, acme: RingTenant) -> None:
    request = ContainerLogs("default", "web", "other", (), is_follow=False)
    reply = server.exchange(_requests(served).logs(request, _pod(acme)))
    assert reply.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b'"message":"container other is not valid for pod web"' in reply
    missing = replace(_pod(acme), super_name="none")
    reply = server.exchange(_requests(served).logs(request, missing))
    assert reply.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert b'"message":"pods \\"none\\" not found"' in reply


def test_the_proxy_of_another_node_is_denied(server: TlsEndpoint) -> None:
    reply = server.exchange(ApiserverRequests("super", "", "worker-2", None).page("/pods"))
    assert reply.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert b'"kind":"Status"' in reply
