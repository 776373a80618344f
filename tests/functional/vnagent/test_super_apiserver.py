# SPDX-License-Identifier: Apache-2.0
"""vn-agent on a node that hides its kubelet: the super API server is the server upstream."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from devkit.files import replace_file
from devkit.kubelet.pod_proxy import FakePodProxy, pod_proxy_context
from devkit.kubelet.pods import FakePod, FakePodState
from devkit.kubelet.replies import Exchange, FakeReply, text
from devkit.pki import Authority
from tests.cases.agent_files import configuration, tenant_document
from tests.functional.vnagent.node import DEADLINE_S, NAME, SPDY, AgentNode, head, received, reply_of
from tests.functional.vnagent.shop_and_bank import BANK, SHOP
from tests.waiting import wait_until

WEBSOCKET = (
    *("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    *("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol: v5.channel.k8s.io"),
)
PODS = f"/api/v1/namespaces/{SHOP.namespace}/pods/shop"
OF_SUPER_CLUSTER = (SHOP.namespace, SHOP.uid, "kube-apiserver", "vcnode:vn-agent")


class HiddenKubelet(AgentNode):
    """A node whose kubelet only the super API server reaches."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, ["ten-a", "ten-b"], [SHOP, BANK])
        self.name = ""
        self.pods: dict[str, Any] = {"source": "kubelet", "intervalSeconds": 0.2}
        self.users: dict[str, Any] = {
            "client-certificate": "agent.crt",
            "client-key": "agent.key",
        }

    def new_kubelet(self, pods: Iterable[FakePod]) -> FakePodProxy:
        self.server = FakePodProxy(pods, tls=self.server_tls())
        return self.server

    def server_tls(self, authority: Authority | None = None) -> Any:
        leaf = (authority or self.kubelet_authority).issue(
            "kube-apiserver", sans_dns=["localhost"], sans_ip=["127.0.0.1"], usages=("server",)
        )
        certificate, key = leaf.write(self.directory, "apiserver")
        return pod_proxy_context(str(certificate), str(key), self.agent_clients.cert_pem.decode())

    @property
    def host(self) -> str:
        return self.name or f"localhost:{self.server.port}"

    def write_config(self) -> None:
        document = configuration(self.directory, kubelet_port=1, pods=self.pods)
        del document["kubelet"]
        document["superApiserver"] = {"kubeconfigFile": "super.kubeconfig"}
        self.write_kubeconfig()
        self.daemon.config.write_text(yaml.safe_dump(document), encoding="utf-8")

    def write_kubeconfig(self) -> None:
        server = {"server": f"https://{self.host}", "certificate-authority": "kubelet-ca.crt"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "super", "cluster": server}],
            "users": [{"name": "vn-agent", "user": self.users}],
            "contexts": [{"name": "super", "context": {"cluster": "super", "user": "vn-agent"}}],
            "current-context": "super",
        }
        replace_file(self.directory / "super.kubeconfig", yaml.safe_dump(document))

    def audited(self) -> list[dict[str, Any]]:
        lines = (self.directory / "audit.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def hidden(tmp_path: Path) -> Iterator[HiddenKubelet]:
    with HiddenKubelet(tmp_path / "n") as running:
        yield running


def last(node: HiddenKubelet, path: str) -> Exchange:
    return node.server.requests(path)[-1]


def test_a_log_comes_by_the_pods_subresource(hidden: HiddenKubelet) -> None:
    reply = hidden.logs("ten-a", "web", "shop", "?timestamps=true&tailLines=5&limitBytes=4096")
    assert reply is not None
    assert reply.status == 200
    assert SHOP.marker.encode() in reply.body
    seen = last(hidden, PODS)
    assert (seen.method, seen.path) == ("GET", f"{PODS}/log")
    assert seen.query == [
        ("container", "app"),
        ("timestamps", "true"),
        ("tailLines", "5"),
        ("limitBytes", "4096"),
    ]
    assert seen.peer == f"vcnode:vn-agent:{NAME}"


def test_a_log_is_followed(hidden: HiddenKubelet) -> None:
    with hidden.client("ten-a") as client:
        client.send(head("GET /containerLogs/web/shop/app?follow=true"))
        assert received(client, SHOP.marker.encode())
        hidden.server.append_log(SHOP.namespace, "shop", "app", "a later line")
        assert received(client, b"a later line")


@pytest.mark.parametrize(
    ("line", "fields", "path", "query"),
    [
        (
            "POST /exec/web/shop/app?command=cat&command=-u&input=1&output=1&error=1",
            SPDY,
            "exec",
            [
                *(("container", "app"), ("command", "cat"), ("command", "-u")),
                *(("stdin", "1"), ("stdout", "1"), ("stderr", "1")),
            ],
        ),
        (
            "GET /exec/web/shop/app?command=cat&output=1&tty=1",
            WEBSOCKET,
            "exec",
            [("container", "app"), ("command", "cat"), ("stdout", "1"), ("tty", "1")],
        ),
        ("POST /attach/web/shop/app?output=1", SPDY, "attach", [("container", "app"), ("stdout", "1")]),
        (
            "POST /portForward/web/shop",
            (*SPDY[:2], "X-Stream-Protocol-Version: portforward.k8s.io"),
            "portforward",
            [],
        ),
        (
            "GET /portForward/web/shop?port=80",
            (*WEBSOCKET[:4], "Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io"),
            "portforward",
            [("ports", "80")],
        ),
    ],
)
def test_streams_go_both_ways(
    hidden: HiddenKubelet, line: str, fields: tuple[str, ...], path: str, query: list[tuple[str, str]]
) -> None:
    with hidden.client("ten-a") as client:
        client.send(head(line, *fields))
        assert received(client, b"HTTP/1.1 101 Switching Protocols\r\n"), client.received
        client.send(b"there and back")
        assert received(client, b"there and back")
    seen = last(hidden, f"{PODS}/{path}")
    assert (seen.method, seen.query) == (line.partition(" ")[0], query)


def test_pages_come_by_the_nodes_proxy(hidden: HiddenKubelet) -> None:
    reply = hidden.ask("ten-a", "GET /pods")
    assert reply is not None
    assert reply.status == 200
    names = [each["metadata"]["namespace"] for each in json.loads(reply.body)["items"]]
    assert names == ["web"]
    seen = last(hidden, f"/api/v1/nodes/{NAME}/proxy/pods")
    assert (seen.method, seen.values("Accept-Encoding")) == ("GET", ["identity"])


def test_a_foreign_pod_causes_no_request(hidden: HiddenKubelet) -> None:
    reply = hidden.logs("ten-b", "web", "shop")
    assert reply is not None
    assert reply.status == 404
    assert hidden.server.requests("/api/v1/namespaces") == []


def test_a_callers_fields_do_not_travel(hidden: HiddenKubelet) -> None:
    theirs = (
        *("Impersonate-User: theirs", "Impersonate-Group: theirs", "X-Remote-User: theirs"),
        *("X-Forwarded-For: 192.0.2.1", "Cookie: theirs"),
    )
    assert hidden.ask("ten-a", "GET /containerLogs/web/shop/app", *theirs) is not None
    seen = last(hidden, PODS)
    assert seen.headers == (("Host", hidden.host), ("User-Agent", "vn-agent"))
    with hidden.client("ten-a") as client:
        client.send(head("POST /exec/web/shop/app?command=cat&output=1", *theirs, *SPDY))
        assert received(client, SHOP.marker.encode())
    assert last(hidden, PODS).headers == (
        ("Host", hidden.host),
        ("User-Agent", "vn-agent"),
        ("Connection", "Upgrade"),
        ("Upgrade", "SPDY/3.1"),
        ("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
        ("Content-Length", "0"),
    )


def test_a_scrapers_token_does_not_travel(tmp_path: Path) -> None:
    """metrics-server sends its own beside its certificate. The API server gets one credential, vn-agent's."""
    node = HiddenKubelet(tmp_path / "n")
    node.users = {"tokenFile": "token"}
    node.server.tokens = {"ours"}
    replace_file(node.directory / "token", "ours\n")
    with node:
        scraper = node.tenants["ten-a"].authority.issue("metrics-server")
        document = tenant_document(
            "ten-a", node.tenants["ten-a"].authority.cert_pem, [(scraper.spki_sha256, "metrics")]
        )
        node.daemon.after_reload(
            lambda: replace_file(node.tenants_directory / "ten-a.yaml", yaml.safe_dump(document))
        )
        reply = node.ask("ten-a", "GET /metrics/resource", "Authorization: Bearer theirs", leaf=scraper)
        assert reply is not None
        assert reply.status == 200
        seen = node.server.requests("/api/v1/nodes/node-1/proxy/metrics/resource")
        assert [each.values("Authorization") for each in seen] == [["Bearer ours"]]


def test_a_rotated_token_is_used(tmp_path: Path) -> None:
    node = HiddenKubelet(tmp_path / "n")
    node.users = {"tokenFile": "token"}
    node.server.tokens = {"first-token"}
    replace_file(node.directory / "token", "first-token\n")
    with node:
        assert node.ask("ten-a", "GET /containerLogs/web/shop/app") is not None
        assert last(node, PODS).values("Authorization") == ["Bearer first-token"]
        node.server.tokens = {"second-token"}
        replace_file(node.directory / "token", "second-token\n")

        def has_new() -> bool:
            reply = node.logs("ten-a", "web", "shop")
            return reply is not None and reply.status == 200

        wait_until(has_new, within_s=DEADLINE_S)
        assert last(node, PODS).values("Authorization") == ["Bearer second-token"]


@pytest.mark.parametrize(
    ("right", "line", "fields"),
    [
        ("get pods/log", "GET /containerLogs/web/shop/app", ()),
        ("create pods/exec", "POST /exec/web/shop/app?command=cat&output=1", SPDY),
        ("get pods/exec", "GET /exec/web/shop/app?command=cat&output=1", WEBSOCKET),
        ("get nodes/proxy", "GET /stats/summary", ()),
    ],
)
def test_a_missing_right_is_the_operators_fault(
    hidden: HiddenKubelet, right: str, line: str, fields: tuple[str, ...]
) -> None:
    hidden.server.denied = {right}
    reply = hidden.ask("ten-a", line, *fields)
    assert reply is not None
    assert reply.status == 502
    message = b"vcnode: the super cluster's API server refused the node agent"
    assert message in reply.body
    assert not [name for name in OF_SUPER_CLUSTER if name in repr(reply)]
    wait_until(lambda: bool(hidden.audited()), within_s=DEADLINE_S)
    line_of_audit = hidden.audited()[-1]
    assert (line_of_audit["reason"], line_of_audit["decision"]) == ("apiserver-refused", "allow")


@pytest.mark.parametrize(
    ("state", "query", "status", "message"),
    [
        (FakePodState.WAITING, "", 400, b"container is waiting to start: ErrImageNeverPull"),
        (FakePodState.RUNNING, "?previous=true", 400, b"previous terminated container not found"),
    ],
)
def test_the_kubelets_sentences_arrive(
    hidden: HiddenKubelet, state: FakePodState, query: str, status: int, message: bytes
) -> None:
    hidden.server.pods = tuple(replace(pod, state=state) for pod in hidden.server.pods)
    reply = hidden.logs("ten-a", "web", "shop", query)
    assert reply is not None
    assert (reply.status, reply.body) == (status, b"vcnode: " + message + b"\n")


def test_a_failure_behind_the_server_is_neutral(hidden: HiddenKubelet) -> None:
    hidden.server.kubelet_script = lambda asked: (
        text(500, f"dial tcp 10.0.0.7: {SHOP.namespace}") if "containerLogs" in asked.path else None
    )
    reply = hidden.logs("ten-a", "web", "shop")
    assert reply is not None
    assert reply.status == 502
    assert reply.body == b"vcnode: the super cluster's API server failed to serve the request\n"


def test_a_redirect_goes_nowhere(hidden: HiddenKubelet) -> None:
    hidden.server.kubelet_script = lambda asked: (
        FakeReply(302, (("Location", "https://192.0.2.1/"),)) if "exec" in asked.path else None
    )
    with hidden.client("ten-a") as client:
        client.send(head("POST /exec/web/shop/app?command=cat&output=1", *SPDY))
        reply = reply_of(client, "POST")
    assert reply is not None
    assert reply.status == 502
    assert "192.0.2.1" not in repr(reply)


def test_a_server_of_another_authority_gets_nothing(hidden: HiddenKubelet) -> None:
    hidden.server.pause()
    before = len(hidden.server.exchanges)
    hidden.server.resume(tls=hidden.server_tls(Authority.create("other")))
    reply = hidden.logs("ten-a", "web", "shop")
    assert reply is not None
    assert reply.status == 502
    assert reply.body == b"vcnode: the node agent cannot verify the super cluster's API server\n"
    assert len(hidden.server.exchanges) == before


def test_a_name_that_is_not_resolved_is_no_address(tmp_path: Path) -> None:
    node = HiddenKubelet(tmp_path / "n")
    node.name = "super.invalid:6443"  # RFC 6761, 6.4
    node.pods = {"source": "file", "file": str(tmp_path / "pods.json")}
    node.write_pod_file(tmp_path / "pods.json")
    with node:
        reply = node.logs("ten-a", "web", "shop")
    assert reply is not None
    assert reply.status == 502
    assert reply.body == b"vcnode: the node agent cannot reach the super cluster's API server\n"


def test_status_and_readyz_name_the_server(hidden: HiddenKubelet) -> None:
    kubelet = hidden.daemon.status()["kubelet"]
    assert (kubelet["address"], kubelet["server"]) == (hidden.host, "superApiserver")
    # What lies behind the server is the kubelet's too.
    wait_until(lambda: hidden.daemon.status()["kubelet"]["version"] == "v1.34.4", within_s=DEADLINE_S)
    hidden.server.denied = {"get nodes/proxy"}
    wait_until(
        lambda: "packaging/rbac/options/vn-agent-apiserver-pages.yaml" in str(hidden.daemon.status()),
        within_s=DEADLINE_S,
    )
