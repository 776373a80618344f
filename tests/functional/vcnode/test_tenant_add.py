# SPDX-License-Identifier: Apache-2.0
"""`vcnode tenant` and `vcnode status` beside a running vn-agent that reads the directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devkit.kubelet.server import FakeKubelet, FakePod, kubelet_context
from devkit.pki import Authority
from tenancy import keys
from tests.waiting import wait_until
from vcnode.__main__ import main
from vcnode_demo.daemon import VnAgent
from vcnode_demo.tenant_client import RefusedError, TenantClient

LOG = "/containerLogs/web/shop/app"
POD = FakePod(
    "acme-web",
    "shop",
    "s-1",
    annotations={keys.CLUSTER: "acme", keys.NAMESPACE: "web", keys.UID: "a-1"},
)


class Node:
    """A kubelet, a vn-agent with an empty directory of tenants, and the certificates of both."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tenants = directory / "tenants"
        self.tenants.mkdir()
        self.serving = Authority.create("serving")
        servers, clients = Authority.create("kubelet"), Authority.create("clients")
        kubelet_files = servers.issue("node-1", sans_ip=["127.0.0.1"]).write(directory, "kubelet")
        serving_files = self.serving.issue("node-1", sans_ip=["127.0.0.1"]).write(directory, "serving")
        client_files = clients.issue("agent").write(directory, "client")
        tls = kubelet_context(str(kubelet_files[0]), str(kubelet_files[1]), clients.cert_pem.decode())
        self.kubelet = FakeKubelet([POD], tls=tls)
        self.kubelet.start()
        self.agent = VnAgent(
            directory,
            {
                "nodeName": "node-1",
                "listen": {"address": "127.0.0.1", "port": 0},
                "serving": {"certificateFile": str(serving_files[0]), "keyFile": str(serving_files[1])},
                "kubelet": {
                    "port": self.kubelet.port,
                    "caFile": str(servers.write(directory, "kubelet-ca")),
                    "clientCertificateFile": str(client_files[0]),
                    "clientKeyFile": str(client_files[1]),
                },
                "tenants": {"directory": str(self.tenants)},
                "drain": {"seconds": 0},
            },
        )
        self.serving_ca = self.serving.write(directory, "serving-ca")

    def tool(self, *argv: object) -> int:
        return main([str(each) for each in argv])

    def log_of(self, caller: TenantClient) -> int | str:
        """The status of a log request, or the error of its connection."""
        try:
            return caller.get(LOG).status
        except RefusedError as error:
            return str(error)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    try:
        node.agent.start()
        yield node
    finally:
        node.agent.stop()
        node.kubelet.stop()


def test_tenant_is_added_rotated_and_removed(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    authority = Authority.create("kubernetes")
    ca = authority.write(node.directory, "acme-ca")
    old, new = authority.issue("old", usages=("client",)), authority.issue("new", usages=("client",))
    old_file, new_file = old.write(node.directory, "old")[0], new.write(node.directory, "new")[0]
    port = node.agent.port
    olds = TenantClient("old", port, node.serving_ca, old)
    news = TenantClient("new", port, node.serving_ca, new)
    add = ("tenant", "add", "acme", "--directory", node.tenants, "--ca", ca, "--client-cert")

    assert node.tool(*add, old_file) == 0
    wait_until(lambda: node.log_of(olds) == 200)
    assert node.log_of(news) == 403

    assert node.tool(*add, new_file) == 0
    wait_until(lambda: node.log_of(news) == 200)
    assert node.log_of(olds) == 200

    remove = ("tenant", "remove", "acme", "--directory", node.tenants)
    assert node.tool(*remove, "--client", old.spki_sha256) == 0
    wait_until(lambda: node.log_of(olds) == 403)
    assert node.log_of(news) == 200

    assert node.tool(*remove) == 0
    wait_until(lambda: isinstance(node.log_of(news), str))
    assert "removed" in capsys.readouterr().out


def test_status_names_bad_files_and_missing_daemons(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    (node.tenants / "bad.yaml").write_text("kind: Nonsense\n")
    wait_until(lambda: b"bad.yaml" in node.agent.status_body())
    gone = node.directory / "gone.sock"
    assert node.tool("status", "--socket", node.agent.socket, gone) == 3
    out = capsys.readouterr().out
    assert out.startswith("vn-agent on node-1: ready")
    assert "BAD TENANT      bad.yaml: " in out
    assert f"{gone}: NO ANSWER: No such file or directory" in out
    assert node.tool("status", "--socket", node.agent.socket) == 0


def test_status_names_a_killed_daemon(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.agent.kill()
    assert node.tool("status", "--socket", node.agent.socket) == 3
    assert "NO ANSWER: connection refused" in capsys.readouterr().out
