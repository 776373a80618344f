# SPDX-License-Identifier: Apache-2.0
"""The super API server's requests, byte for byte: each parameter of a kubelet's, no field of a client."""

import base64
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devkit.kubelet.replies import Exchange, parse_head
from tenancy.ownership import Owned
from vnagent.core.apiserver_request import ApiserverRequests
from vnagent.core.head import parse_request_head
from vnagent.core.kubelet_request import page_path
from vnagent.core.requests import ContainerLogs, Endpoint, PageRequest, Protocol, Stream, Upgrade, parse

POD = Owned("ten-a", "web", "shop", "a-1", "ten-a-web", "shop-x7", "s-1", frozenset({"app"}))
REQUESTS = ApiserverRequests("api.example:6443", "", "node-1", "our-token")
KEY = base64.b64encode(bytes(16)).decode()
PODS = "/api/v1/namespaces/ten-a-web/pods/shop-x7"


def sent_for(line: str, *fields: str) -> Exchange:
    """What the API server reads for a tenant's request."""
    request = parse(parse_request_head("\r\n".join([f"{line} HTTP/1.1", "Host: node-1", *fields]).encode()))
    assert isinstance(request, ContainerLogs | Stream)
    return read(REQUESTS.logs(request, POD) if isinstance(request, ContainerLogs) else stream(request))


def stream(request: Stream) -> bytes:
    return REQUESTS.stream(request, POD)


def read(sent: bytes) -> Exchange:
    seen = Exchange(0, sent)
    parse_head(sent, seen)
    assert not seen.is_malformed
    return seen


SPDY = ("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io")
WEBSOCKET = (
    *("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    *(f"Sec-WebSocket-Key: {KEY}", "Sec-WebSocket-Protocol: v5.channel.k8s.io"),
)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", []),
        ("follow=true", [("follow", "true")]),
        ("follow=0", [("follow", "false")]),
        ("previous=true", [("previous", "true")]),
        ("timestamps=1", [("timestamps", "true")]),
        ("sinceSeconds=60", [("sinceSeconds", "60")]),
        ("sinceTime=2026-11-20T16:00:00%2B01:00", [("sinceTime", "2026-11-20T16:00:00+01:00")]),
        ("tailLines=0", [("tailLines", "0")]),
        ("tail=7", [("tailLines", "7")]),
        ("tail=all", []),
        ("limitBytes=4096", [("limitBytes", "4096")]),
        ("stream=Stderr", [("stream", "Stderr")]),
        (
            "timestamps=true&tailLines=5&follow=true&limitBytes=9",
            [("timestamps", "true"), ("tailLines", "5"), ("follow", "true"), ("limitBytes", "9")],
        ),
    ],
)
def test_each_parameter_of_a_log(query: str, expected: list[tuple[str, str]]) -> None:
    seen = sent_for(f"GET /containerLogs/web/shop/app{'?' if query else ''}{query}")
    assert (seen.method, seen.path) == ("GET", f"{PODS}/log")
    assert seen.query == [("container", "app"), *expected]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("command=ls&output=1", [("command", "ls"), ("stdout", "1")]),
        (
            "command=sh&command=-c&command=echo+a%26b%3Bc%25&input=1&output=1&error=1",
            [
                *(("command", "sh"), ("command", "-c"), ("command", "echo a&b;c%")),
                *(("stdin", "1"), ("stdout", "1"), ("stderr", "1")),
            ],
        ),
        ("command=&output=true&tty=true", [("command", ""), ("stdout", "1"), ("tty", "1")]),
        ("input=0&output=1&tty=0", [("stdin", "0"), ("stdout", "1"), ("tty", "0")]),
        ("output=false&error=1", [("stdout", "0"), ("stderr", "1")]),
    ],
)
@pytest.mark.parametrize(("method", "fields"), [("POST", SPDY), ("GET", WEBSOCKET)])
def test_each_parameter_of_an_exec(
    method: str, fields: Sequence[str], query: str, expected: list[tuple[str, str]]
) -> None:
    seen = sent_for(f"{method} /exec/web/shop/app?{query}", *fields)
    assert (seen.method, seen.path) == (method, f"{PODS}/exec")
    assert seen.query == [("container", "app"), *expected]


@pytest.mark.parametrize(
    ("line", "path", "expected"),
    [
        (
            "/attach/web/shop/app?input=1&output=1&error=1&tty=1",
            f"{PODS}/attach",
            [("container", "app"), ("stdin", "1"), ("stdout", "1"), ("stderr", "1"), ("tty", "1")],
        ),
        # Subresources have no place for a UID.
        ("/attach/web/shop/a-1/app?output=1", f"{PODS}/attach", [("container", "app"), ("stdout", "1")]),
        ("/portForward/web/shop", f"{PODS}/portforward", []),
        ("/portForward/web/shop/a-1?port=80", f"{PODS}/portforward", [("ports", "80")]),
        (
            "/portForward/web/shop?port=80&port=443",
            f"{PODS}/portforward",
            [("ports", "80"), ("ports", "443")],
        ),
    ],
)
@pytest.mark.parametrize(("method", "fields"), [("POST", SPDY), ("GET", WEBSOCKET)])
def test_each_parameter_of_other_streams(
    method: str, fields: Sequence[str], line: str, path: str, expected: list[tuple[str, str]]
) -> None:
    seen = sent_for(f"{method} {line}", *fields)
    assert (seen.method, seen.path, seen.query) == (method, path, expected)


def test_a_log_is_these_bytes() -> None:
    request = ContainerLogs("web", "shop", "app", (("follow", "true"),), is_follow=True)
    assert REQUESTS.logs(request, POD) == (
        b"GET /api/v1/namespaces/ten-a-web/pods/shop-x7/log?container=app&follow=true HTTP/1.1\r\n"
        b"Host: api.example:6443\r\n"
        b"User-Agent: vn-agent\r\n"
        b"Authorization: Bearer our-token\r\n\r\n"
    )


def test_a_spdy_stream_is_these_bytes() -> None:
    offered = Upgrade(Protocol.SPDY, ("v5.channel.k8s.io", "v4.channel.k8s.io"), None)
    request = Stream(
        Endpoint.EXEC, "web", "shop", None, "app", (("command", "a b"), ("output", "1")), offered
    )
    assert stream(request) == (
        b"POST /api/v1/namespaces/ten-a-web/pods/shop-x7/exec?container=app&command=a+b&stdout=1 HTTP/1.1\r\n"
        b"Host: api.example:6443\r\n"
        b"User-Agent: vn-agent\r\n"
        b"Authorization: Bearer our-token\r\n"
        b"Connection: Upgrade\r\n"
        b"Upgrade: SPDY/3.1\r\n"
        b"X-Stream-Protocol-Version: v5.channel.k8s.io\r\n"
        b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n"
        b"Content-Length: 0\r\n\r\n"
    )


def test_a_websocket_of_a_certificate_is_these_bytes() -> None:
    requests = ApiserverRequests("[fd00::1]:443", "/k8s/clusters/c-1", "node-1", None)
    offered = Upgrade(Protocol.WEBSOCKET, ("SPDY/3.1+portforward.k8s.io",), KEY)
    request = Stream(Endpoint.PORT_FORWARD, "web", "shop", None, None, (("port", "80"),), offered)
    assert requests.stream(request, POD) == (
        b"GET /k8s/clusters/c-1/api/v1/namespaces/ten-a-web/pods/shop-x7/portforward?ports=80 HTTP/1.1\r\n"
        b"Host: [fd00::1]:443\r\n"
        b"User-Agent: vn-agent\r\n"
        b"Connection: Upgrade\r\n"
        b"Upgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        b"Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (PageRequest(Endpoint.PODS, False, False), "/pods"),
        (PageRequest(Endpoint.RUNNING_PODS, False, False), "/runningpods/"),
        (PageRequest(Endpoint.STATS_SUMMARY, False, True), "/stats/summary?only_cpu_and_memory=true"),
        (PageRequest(Endpoint.METRICS_CADVISOR, False, False), "/metrics/cadvisor"),
    ],
)
def test_pages_come_by_the_proxy_of_the_node(page: PageRequest, expected: str) -> None:
    assert (
        REQUESTS.page(page_path(page))
        == (
            f"GET /api/v1/nodes/node-1/proxy{expected} HTTP/1.1\r\n"
            "Host: api.example:6443\r\n"
            "User-Agent: vn-agent\r\n"
            "Authorization: Bearer our-token\r\n"
            "Accept-Encoding: identity\r\n\r\n"
        ).encode()
    )


_OF_CALLERS = st.sampled_from(
    [
        *("Authorization: Bearer theirs", "Proxy-Authorization: theirs", "Cookie: theirs"),
        *("Impersonate-User: theirs", "Impersonate-Group: theirs", "Impersonate-Uid: theirs"),
        *("Impersonate-Extra-Scopes: theirs", "X-Remote-User: theirs", "X-Remote-Group: theirs"),
        *("X-Forwarded-For: theirs", "Forwarded: for=theirs", "Via: 1.1 theirs", "User-Agent: theirs"),
        "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.dGhlaXJz",
    ]
)


_OURS = {
    *("host", "user-agent", "authorization", "connection", "upgrade", "x-stream-protocol-version"),
    *("content-length", "sec-websocket-version", "sec-websocket-key", "sec-websocket-protocol"),
}


@given(
    kind=st.sampled_from(["log", "SPDY", "WebSocket"]),
    theirs=st.lists(_OF_CALLERS, max_size=8, unique=True),
    token=st.sampled_from([None, "our-token"]),
)
def test_our_credential_is_never_among_a_callers(kind: str, theirs: list[str], token: str | None) -> None:
    requests = ApiserverRequests("api.example:6443", "", "node-1", token)
    line = "GET /containerLogs/web/shop/app"
    fields: tuple[str, ...] = ()
    if kind != "log":
        line = f"{'POST' if kind == 'SPDY' else 'GET'} /exec/web/shop/app?output=1"
        fields = SPDY if kind == "SPDY" else WEBSOCKET
    request = parse(
        parse_request_head("\r\n".join([f"{line} HTTP/1.1", "Host: n", *theirs, *fields]).encode())
    )
    assert isinstance(request, ContainerLogs | Stream)
    sent = (
        requests.logs(request, POD) if isinstance(request, ContainerLogs) else requests.stream(request, POD)
    )
    seen = read(sent)
    assert seen.values("Authorization") == ([] if token is None else [f"Bearer {token}"])
    assert seen.values("Host") == ["api.example:6443"]
    assert {name.lower() for name, _ in seen.headers} <= _OURS
    assert b"theirs" not in sent
    assert b"bearer.authorization" not in sent
