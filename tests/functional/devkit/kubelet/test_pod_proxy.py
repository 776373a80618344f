# SPDX-License-Identifier: Apache-2.0
"""The fake of an API server before a kubelet: what tests/k8s/test_super_apiserver.py finds at a real one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devkit.kubelet.pod_proxy import FakePodProxy, pod_proxy_context
from devkit.kubelet.pods import FakePod
from devkit.kubelet.replies import Exchange, FakeReply, parse_head
from devkit.pki import Authority

POD = FakePod("acme-default", "web", "uid-1", containers=("main",))
PODS = "/api/v1/namespaces/acme-default/pods"
LOGIN = "Authorization: Bearer known"
V5 = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Key: x",
    "Sec-WebSocket-Protocol: v5.channel.k8s.io",
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakePodProxy]:
    authority = Authority.create("super")
    certificate, key = authority.issue("api", sans_dns=["localhost"]).write(tmp_path, "api")
    context = pod_proxy_context(str(certificate), str(key), authority.cert_pem.decode())
    proxy = FakePodProxy([POD], tls=context)
    proxy.tokens = {"known"}
    proxy.start()
    yield proxy
    proxy.stop()


def answer(server: FakePodProxy, line: str, *fields: str) -> FakeReply:
    head = "\r\n".join([f"{line} HTTP/1.1", "Host: super", *fields, "", ""]).encode()
    exchange = Exchange(0, head)
    parse_head(head, exchange)
    return server.answer(exchange)


@pytest.mark.parametrize(
    ("line", "fields", "status", "part"),
    [
        (f"GET {PODS}/web/log?container=main", (LOGIN,), 200, b"acme-default/web/main"),
        (f"GET {PODS}/web/log?container=main", (), 401, b'"message": "Unauthorized"'),
        (f"GET {PODS}/web/log?container=main", ("Authorization: Bearer other",), 401, b"Unauthorized"),
        (
            f"GET {PODS}/web/log?container=other",
            (LOGIN,),
            400,
            b'"message": "container other is not valid for pod web"',
        ),
        (f"GET {PODS}/none/log", (LOGIN,), 404, b'"message": "pods \\"none\\" not found"'),
        (f"GET {PODS}/web/log?previous=true", (LOGIN,), 400, b'"message": "previous terminated container'),
        ("GET /api/v1/nodes/node-1/proxy/pods", (LOGIN,), 200, b'"uid-1"'),
        ("GET /api/v1/nodes/worker-2/proxy/pods", (LOGIN,), 404, b'"kind": "Status"'),
        (f"GET {PODS}/web/exec?command=ls&stdout=1", (LOGIN, *V5), 101, b""),
        # The kubelet's own words: an upgrade's answer passes.
        (f"GET {PODS}/web/exec?command=ls", (LOGIN, *V5), 400, b"you must specify at least 1 of stdin"),
    ],
)
def test_facts(server: FakePodProxy, line: str, fields: tuple[str, ...], status: int, part: bytes) -> None:
    reply = answer(server, line, *fields)
    assert reply.status == status, reply
    assert part in reply.body


@pytest.mark.parametrize("right", ["get pods/log", "get pods/exec", "get nodes/proxy"])
def test_a_denied_right_is_a_status(server: FakePodProxy, right: str) -> None:
    server.denied = {right}
    lines = {
        "get pods/log": f"GET {PODS}/web/log",
        "get pods/exec": f"GET {PODS}/web/exec?command=ls&stdout=1",
        "get nodes/proxy": "GET /api/v1/nodes/node-1/proxy/pods",
    }
    reply = answer(server, lines[right], LOGIN)
    assert (reply.status, b'"reason": "Forbidden"' in reply.body) == (403, True)
