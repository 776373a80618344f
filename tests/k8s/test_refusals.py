# SPDX-License-Identifier: Apache-2.0
"""What is not the caller's is not there: the same reply, byte for byte, as for what never was."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass

import pytest

from devkit.audit_fields import AUDIT_FIELDS
from tests.k8s.ring.api import JsonObject, TlsEndpoint
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.kubectl import Kubectl, KubectlResult
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.tenants import RingTenant

# What a tenant never learns from a refusal.
_FORBIDDEN_WORDS = ("tenant-1", "kube-system", "system:vn-agent", "10250", "resourceVersion")


@dataclass(frozen=True, slots=True)
class _RequestPair:
    """One tenant requests another tenant's pod, and a pod that does not exist.

    `asker` is the index of the tenant. Names of a pair are equally long, so that replies may
    differ only in the name.
    """

    asker: int
    foreign: tuple[str, str]
    missing: tuple[str, str]


_ACME, _ACME_X = 0, 1
_ACME_NAMESPACE = "tenant-1-70b001-acme-default"
_PAIRS = {
    "the other tenant's pod by its name": _RequestPair(
        _ACME_X, ("default", "only-acme"), ("default", "only-none")
    ),
    "a namespace that joins to the other tenant's": _RequestPair(
        _ACME, ("x-default", "web"), ("x-default", "wib")
    ),
    "the super namespace itself": _RequestPair(_ACME_X, (_ACME_NAMESPACE, "web"), (_ACME_NAMESPACE, "wib")),
    "the tenant's own super namespace": _RequestPair(
        _ACME, (_ACME_NAMESPACE, "web"), (_ACME_NAMESPACE, "wib")
    ),
    "a pod of the host": _RequestPair(_ACME, ("kube-system", "node-agent"), ("kube-system", "none-agent")),
}

_SPDY = (
    "Connection: Upgrade",
    "Upgrade: SPDY/3.1",
    "X-Stream-Protocol-Version: v4.channel.k8s.io",
    "Content-Length: 0",
)
_FORWARD = (*_SPDY[:2], "X-Stream-Protocol-Version: portforward.k8s.io", "Content-Length: 0")
_WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol: v4.channel.k8s.io",
)

# Method, path after the pod's place, headers.
_REQUESTS = {
    "logs": ("GET", "/containerLogs/{pod}/main", ()),
    "logs, followed": ("GET", "/containerLogs/{pod}/main?follow=true", ()),
    "logs, previous": ("GET", "/containerLogs/{pod}/main?previous=true", ()),
    "logs of another container": ("GET", "/containerLogs/{pod}/mesh-proxy", ()),
    "exec": ("POST", "/exec/{pod}/main?command=id&output=1", _SPDY),
    "exec by WebSocket": ("GET", "/exec/{pod}/main?command=id&output=1", _WEBSOCKET),
    "exec without an upgrade": ("POST", "/exec/{pod}/main?command=id&output=1", _SPDY[3:]),
    "attach": ("POST", "/attach/{pod}/main?output=1", _SPDY),
    "port-forward": ("POST", "/portForward/{pod}", _FORWARD),
}

# Whose the pod is decides after whether the request makes sense at all.
_REFUSED = dict.fromkeys(_REQUESTS, b"HTTP/1.1 404 ") | {"exec without an upgrade": b"HTTP/1.1 400 "}


@pytest.fixture(scope="module")
def ghosts(served: Ring) -> None:
    """Every pair's pods as objects in the requester's own apiserver, so that kubectl reaches the node."""
    for pair in _PAIRS.values():
        tenant = served.tenants[pair.asker]
        for namespace, name in (pair.foreign, pair.missing):
            served.syncer.create_ghost(tenant, namespace, name)


@pytest.mark.usefixtures("ghosts")
@pytest.mark.parametrize("websockets", [True, False], ids=["websocket", "spdy"])
@pytest.mark.parametrize("name", _PAIRS)
@pytest.mark.parametrize("command", ["logs", "logs -f", "exec", "attach", "cp", "port-forward"])
def test_kubectl_sees_no_difference(served: Ring, name: str, command: str, websockets: bool) -> None:
    pair = _PAIRS[name]
    foreign = _masked(_try(served, pair.asker, pair.foreign, command, websockets), pair.foreign)
    missing = _masked(_try(served, pair.asker, pair.missing, command, websockets), pair.missing)
    assert foreign == missing
    assert foreign.code != 0
    assert not _words(foreign.err, except_names=pair.foreign)
    if command != "port-forward":
        assert foreign.out == b""


@pytest.mark.parametrize("request_name", _REQUESTS)
@pytest.mark.parametrize("name", _PAIRS)
def test_the_agent_answers_byte_for_byte_the_same(served: Ring, name: str, request_name: str) -> None:
    pair = _PAIRS[name]
    agent = served.agent_as(served.tenants[pair.asker].client)
    foreign = _masked_bytes(_send_request(agent, request_name, pair.foreign), pair.foreign)
    missing = _masked_bytes(_send_request(agent, request_name, pair.missing), pair.missing)
    assert foreign == missing
    assert foreign.startswith(_REFUSED[request_name])
    assert not _words(foreign, except_names=pair.foreign)


@pytest.mark.parametrize("request_name", [n for n, r in _REQUESTS.items() if "/main" in r[1]])
def test_an_injected_container_is_not_there(served: Ring, acme: RingTenant, request_name: str) -> None:
    agent = served.agent_as(acme.client)
    method, path, headers = _REQUESTS[request_name]
    replies = []
    for container in ("mesh-proxy", "mesh-query"):
        changed_path = path.replace("/main", f"/{container}")
        reply = agent.exchange(_head(method, changed_path, ("default", "web"), headers))
        replies.append(_masked_bytes(reply, (container, container)))
    assert replies[0] == replies[1]
    assert replies[0].startswith(_REFUSED[request_name])


@pytest.mark.parametrize("request_name", _REQUESTS)
def test_an_administrators_own_certificate_opens_nothing(
    served: Ring, acme: RingTenant, request_name: str
) -> None:
    # Signed by the tenant's registered authority, as any certificate that its administrator makes.
    agent = served.agent_as(acme.unregistered)
    targets = (("default", "web"), ("default", "wib"), ("x-default", "web"))
    replies = {_masked_bytes(_send_request(agent, request_name, t), t) for t in targets}
    assert len(replies) == 1
    reply = replies.pop()
    assert reply.startswith(b"HTTP/1.1 403 ")
    assert not _words(reply, except_names=("default", "web"))


@pytest.mark.parametrize("path", ["/pods", "/stats/summary", "/metrics/resource", "/healthz"])
def test_an_administrators_own_certificate_reads_no_page(served: Ring, acme: RingTenant, path: str) -> None:
    reply = served.agent_as(acme.unregistered).request("GET", path)
    assert reply.status == 403


def test_a_caller_that_asks_for_an_end_gets_it(served: Ring, acme: RingTenant) -> None:
    # RFC 9112, 9.6: the server closes after its answer, so that a caller may read until then.
    head = _head("GET", "/containerLogs/{pod}/main", ("default", "wib"), ())
    with served.agent_as(acme.client).dial(timeout_s=10) as connection:
        connection.sendall(head)
        reply = b""
        while chunk := connection.recv(65536):
            reply += chunk
    assert reply.startswith(b"HTTP/1.1 404 ")


def test_client_without_certificate_is_refused(served: Ring) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        served.agent_as(None).exchange(_head("GET", "/pods", ("", ""), ()))


def test_unregistered_certificate_is_refused(served: Ring) -> None:
    # Good for the kubelet, and of no tenant.
    kubelet_client = served.agent_kubelet_leaf
    with pytest.raises((ssl.SSLError, ConnectionError)):
        served.agent_as(kubelet_client).exchange(_head("GET", "/pods", ("", ""), ()))


def test_every_refusal_is_in_the_audit_log(served: Ring, acme_x: RingTenant) -> None:
    pod = "requested-once"
    _send_request(served.agent_as(acme_x.client), "exec", ("default", pod))

    def written() -> list[JsonObject]:
        return [line for line in served.agent.audit_lines() if line["pod"] == pod]

    (line,) = wait_for("line in the audit log", written, timeout_s=5)
    assert (line["tenant"], line["endpoint"], line["status"]) == (acme_x.key, "exec", 404)
    assert tuple(line) == AUDIT_FIELDS


def _try(ring: Ring, asker: int, pod: tuple[str, str], command: str, websockets: bool) -> KubectlResult:
    """Run one kubectl command against a pod and wait for its end."""
    namespace, name = pod
    user = ring.tenants[asker].kubectl
    kubectl = Kubectl(user.network, user.binary, user.kubeconfig, namespace, websockets)
    if command == "port-forward":
        return _try_port_forward(kubectl, name)
    arguments = {
        "logs": ("logs", name),
        "logs -f": ("logs", "-f", name),
        "exec": ("exec", name, "--", "id"),
        "attach": ("attach", name),
        "cp": ("cp", f"{name}:/etc/passwd", "/dev/null"),
    }[command]
    return kubectl(*arguments)


def _try_port_forward(kubectl: Kubectl, name: str) -> KubectlResult:
    """kubectl listens first; a connection makes it request the pod, and give up."""
    process = kubectl.start("port-forward", f"pod/{name}", ":8080", "--address=127.0.0.1")
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        found = re.search(r"127\.0\.0\.1:(\d+) -> ", line)
        if found is not None:
            with kubectl.network.connect("127.0.0.1", int(found.group(1))) as connection:
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                assert connection.recv(4096) == b""
            process.kill()
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    return KubectlResult(process.returncode, out, err)


def _send_request(agent: TlsEndpoint, request_name: str, pod: tuple[str, str]) -> bytes:
    method, path, headers = _REQUESTS[request_name]
    return agent.exchange(_head(method, path, pod, headers))


def _head(method: str, path: str, pod: tuple[str, str], headers: tuple[str, ...]) -> bytes:
    lines = [f"{method} {path.format(pod='/'.join(pod))} HTTP/1.1", "Host: node", *headers]
    if not any(h.startswith("Connection:") for h in headers):
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _masked_bytes(text: bytes, names: tuple[str, str]) -> bytes:
    """Without the parts that may differ: the requested names, the time, ids and own ports."""
    for name in names:
        # As a whole word: "web" is also how "websocket" begins.
        text = re.sub(rb"(?<![\w-])%b(?![\w-])" % re.escape(name.encode()), b"NAME", text)
    text = re.sub(rb"(?im)^(date|[\w-]*request-?id): .*?\r$", rb"\1:\r", text)
    text = re.sub(rb"127\.0\.0\.1:\d+|\[::1\]:\d+", b"LOCAL", text)
    # klog lines of kubectl: time, process id and goroutine
    return re.sub(rb"(?m)^[EWI]\d{4} [\d:.]+ +\d+ ", b"LOG ", text)


def _masked(result: KubectlResult, names: tuple[str, str]) -> KubectlResult:
    return KubectlResult(result.code, _masked_bytes(result.out, names), _masked_bytes(result.err, names))


def _words(text: bytes, *, except_names: tuple[str, str]) -> list[str]:
    """Names of the super cluster in `text`, apart from those of the request."""
    plain = text.decode(errors="replace")
    for name in except_names:
        plain = plain.replace(name, "")
    return [word for word in _FORBIDDEN_WORDS if word in plain]
