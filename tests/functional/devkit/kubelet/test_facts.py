# SPDX-License-Identifier: Apache-2.0
"""The fake kubelet sends the recorded responses of a real one (tests/k8s/samples/replies.yaml)."""

import http.client
import socket
import ssl
from collections.abc import Iterator

import pytest

from devkit.kubelet.pods import FakePodState
from devkit.kubelet.server import FakeKubelet, FakePod, kubelet_context
from devkit.pki import Authority
from tests.k8s.ring.facts import Fact, load_facts

NAMESPACE = "tenant-1-70b001-acme-default"
PODS = (
    FakePod(
        NAMESPACE,
        "web",
        "u-1",
        containers=("main", "side"),
        init=("setup",),
        injected=("mesh-proxy",),
        is_quiet=True,
    ),
    FakePod(NAMESPACE, "faller", "u-2", containers=("main",)),
    FakePod(NAMESPACE, "ended", "u-3", containers=("main",), state=FakePodState.ENDED, is_quiet=True),
    FakePod(NAMESPACE, "waiting", "u-4", containers=("main",), state=FakePodState.WAITING),
)


@pytest.fixture(scope="module")
def dialled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeKubelet, ssl.SSLContext]]:
    """A kubelet of the recorded version with those pods, and TLS of an authorized agent."""
    directory = tmp_path_factory.mktemp("kubelet")
    servers, clients = Authority.create("servers"), Authority.create("clients")
    cert, key = servers.issue("worker-1", sans_dns=["worker-1"]).write(directory, "kubelet")
    tls = kubelet_context(str(cert), str(key), clients.cert_pem.decode())
    kubelet = FakeKubelet(PODS, tls=tls, node_name="worker-1", speaks_websocket_v5=False)
    for number in range(1, 21):
        kubelet.append_log(NAMESPACE, "web", "main", f"acme line {number}")
    kubelet.append_log(NAMESPACE, "web", "setup", "acme set up")
    kubelet.append_log(NAMESPACE, "ended", "main", "all done")
    kubelet.set_previous_log(NAMESPACE, "faller", "main", "first run")
    kubelet.start()
    context = ssl.create_default_context(cadata=servers.cert_pem.decode())
    context.load_cert_chain(*clients.issue("vcnode:vn-agent:worker-1").write(directory, "agent"))
    yield kubelet, context
    kubelet.stop()


@pytest.mark.parametrize("fact", load_facts(NAMESPACE), ids=lambda fact: str(fact.name))
def test_the_fake_replies_as_the_real_kubelet(
    dialled: tuple[FakeKubelet, ssl.SSLContext], fact: Fact
) -> None:
    kubelet, context = dialled
    with (
        socket.create_connection(("127.0.0.1", kubelet.port), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname="worker-1") as connection,
    ):
        connection.sendall(fact.head())
        response = http.client.HTTPResponse(connection, method=fact.method)
        response.begin()
        is_stream = response.status == http.client.SWITCHING_PROTOCOLS
        body = b"" if is_stream else response.read()
        headers = response.getheaders()
        response.close()
    assert response.status == fact.status
    for header, expected in fact.headers:
        assert [v for n, v in headers if n.lower() == header.lower()] == expected
    assert not {n.lower() for n, _ in headers} & {n.lower() for n in fact.no_headers}
    if fact.body is not None:
        assert body == fact.body.encode()
    if fact.body_starts is not None:
        assert body.startswith(fact.body_starts.encode())
