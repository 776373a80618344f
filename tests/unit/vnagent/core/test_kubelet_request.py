# SPDX-License-Identifier: Apache-2.0
"""The kubelet's requests, byte for byte, without anything of the client's head."""

import base64

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from devkit.kubelet.replies import Exchange, parse_head
from tenancy.ownership import Owned
from vnagent.core.head import HeadError, parse_request_head
from vnagent.core.kubelet_request import KubeletRequests, page_path
from vnagent.core.requests import (
    ContainerLogs,
    Endpoint,
    PageRequest,
    Protocol,
    Stream,
    Upgrade,
    parse,
)

POD = Owned("ten-a", "web", "shop", "a-1", "ten-a-web", "shop-x7", "s-1", frozenset({"app"}))
HOST = "127.0.0.1:10250"
REQUESTS = KubeletRequests(HOST)
KEY = base64.b64encode(bytes(16)).decode()
SPDY = Upgrade(Protocol.SPDY, ("v5.channel.k8s.io", "v4.channel.k8s.io"), None)
WEBSOCKET = Upgrade(Protocol.WEBSOCKET, ("v5.channel.k8s.io", "v4.channel.k8s.io"), KEY)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (
            ContainerLogs("web", "shop", "app", (), False),
            b"GET /containerLogs/ten-a-web/shop-x7/app HTTP/1.1\r\n"
            b"Host: 127.0.0.1:10250\r\n"
            b"User-Agent: vn-agent\r\n\r\n",
        ),
        (
            ContainerLogs(
                "web", "shop", "app", (("follow", "true"), ("sinceTime", "2026-11-20T16:00:00Z")), True
            ),
            b"GET /containerLogs/ten-a-web/shop-x7/app?follow=true&sinceTime=2026-11-20T16%3A00%3A00Z"
            b" HTTP/1.1\r\n"
            b"Host: 127.0.0.1:10250\r\n"
            b"User-Agent: vn-agent\r\n\r\n",
        ),
    ],
)
def test_logs(request_: ContainerLogs, expected: bytes) -> None:
    assert REQUESTS.logs(request_, POD) == expected


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (
            Stream(
                Endpoint.EXEC, "web", "shop", None, "app", (("command", "a b&c"), ("output", "1")), SPDY
            ),
            b"POST /exec/ten-a-web/shop-x7/app?command=a+b%26c&output=1 HTTP/1.1\r\n"
            b"Host: 127.0.0.1:10250\r\n"
            b"Connection: Upgrade\r\n"
            b"Upgrade: SPDY/3.1\r\n"
            b"X-Stream-Protocol-Version: v5.channel.k8s.io\r\n"
            b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n"
            b"Content-Length: 0\r\n"
            b"User-Agent: vn-agent\r\n\r\n",
        ),
        (
            Stream(Endpoint.ATTACH, "web", "shop", "a-1", "app", (("tty", "1"),), WEBSOCKET),
            b"GET /attach/ten-a-web/shop-x7/s-1/app?tty=1 HTTP/1.1\r\n"
            b"Host: 127.0.0.1:10250\r\n"
            b"Connection: Upgrade\r\n"
            b"Upgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            b"Sec-WebSocket-Protocol: v5.channel.k8s.io, v4.channel.k8s.io\r\n"
            b"User-Agent: vn-agent\r\n\r\n",
        ),
        (
            Stream(
                Endpoint.PORT_FORWARD,
                "web",
                "shop",
                "a-1",
                None,
                (("port", "80"),),
                Upgrade(Protocol.WEBSOCKET, (), KEY),
            ),
            b"GET /portForward/ten-a-web/shop-x7/s-1?port=80 HTTP/1.1\r\n"
            b"Host: 127.0.0.1:10250\r\n"
            b"Connection: Upgrade\r\n"
            b"Upgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            b"User-Agent: vn-agent\r\n\r\n",
        ),
    ],
)  # fmt: skip
def test_streams(request_: Stream, expected: bytes) -> None:
    assert REQUESTS.stream(request_, POD) == expected


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (PageRequest(Endpoint.PODS, False, False), "/pods"),
        (PageRequest(Endpoint.PODS, True, False), "/pods"),
        (PageRequest(Endpoint.RUNNING_PODS, False, False), "/runningpods/"),
        (PageRequest(Endpoint.STATS_SUMMARY, False, False), "/stats/summary"),
        (PageRequest(Endpoint.STATS_SUMMARY, False, True), "/stats/summary?only_cpu_and_memory=true"),
        (PageRequest(Endpoint.METRICS_RESOURCE, False, False), "/metrics/resource"),
        (PageRequest(Endpoint.METRICS_CADVISOR, False, False), "/metrics/cadvisor"),
        (PageRequest(Endpoint.METRICS_PROBES, False, False), "/metrics/probes"),
    ],
)
def test_pages(page: PageRequest, expected: str) -> None:
    assert page_path(page) == expected
    assert (
        REQUESTS.page(expected)
        == (
            f"GET {expected} HTTP/1.1\r\n"
            "Host: 127.0.0.1:10250\r\n"
            "User-Agent: vn-agent\r\n"
            "Accept-Encoding: identity\r\n\r\n"
        ).encode()
    )


# ---- from the client's bytes to the kubelet's, whatever the client sends

_ALLOWED = {
    *("host", "user-agent", "connection", "upgrade", "x-stream-protocol-version", "content-length"),
    *("sec-websocket-version", "sec-websocket-key", "sec-websocket-protocol"),
}
_LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
_HOSTILE = st.sampled_from(
    [
        *("Authorization: Bearer secret", "Impersonate-User: admin", "X-Remote-User: admin"),
        *("X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1", "Proxy-Authorization: secret"),
        *("X-Forwarded-Host: evil", "Cookie: secret", "TE: trailers", "Accept-Encoding: gzip"),
        *("Range: bytes=0-1", "Via: 1.1 secret", "X-Original-Url: /pods", "Content-Type: secret"),
        "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0",
    ]
)
_COMMAND = st.text(st.characters(min_codepoint=1, max_codepoint=255), max_size=12)


@given(
    endpoint=st.sampled_from(["exec", "attach", "portForward", "containerLogs"]),
    names=st.tuples(_LABEL, _LABEL, _LABEL),
    super_names=st.tuples(_LABEL, _LABEL, _LABEL),
    has_uid=st.booleans(),
    is_websocket=st.booleans(),
    hostile=st.lists(_HOSTILE, max_size=8),
    commands=st.lists(_COMMAND, max_size=4),
)
def test_no_client_header_or_name_is_forwarded(
    endpoint: str,
    names: tuple[str, str, str],
    super_names: tuple[str, str, str],
    has_uid: bool,
    is_websocket: bool,
    hostile: list[str],
    commands: list[str],
) -> None:
    namespace, name, container = names
    pod = Owned("t", namespace, name, "tenant-uid", *super_names, frozenset({container}))
    is_logs = endpoint == "containerLogs"
    has_uid = has_uid and not is_logs
    path = f"/{endpoint}/{namespace}/{name}"
    expected_path = f"/{endpoint}/{pod.super_namespace}/{pod.super_name}"
    if has_uid:
        path, expected_path = f"{path}/tenant-uid", f"{expected_path}/{pod.super_uid}"
    if endpoint != "portForward":
        path, expected_path = f"{path}/{container}", f"{expected_path}/{container}"
    query = ""
    if endpoint == "exec" and commands:
        query = "?" + "&".join("command=" + "".join(f"%{ord(c):02x}" for c in word) for word in commands)
    lines = ["Host: evil.example", "Connection: Upgrade, Host, User-Agent", *hostile]
    if is_logs:
        lines[1] = "Connection: close, Host"
    elif is_websocket:
        lines += ["Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {KEY}"]
        lines += ["Sec-WebSocket-Protocol: v5.channel.k8s.io"]
    else:
        lines += ["Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io", "Content-Length: 0"]
    method = "GET" if is_logs or is_websocket else "POST"
    try:
        head = parse_request_head("\r\n".join([f"{method} {path}{query} HTTP/1.1", *lines]).encode())
    except HeadError:
        assume(condition=False)  # the same hostile line twice
    request = parse(head)
    assert isinstance(request, ContainerLogs | Stream)
    if isinstance(request, ContainerLogs):
        sent = REQUESTS.logs(request, pod)
    else:
        sent = REQUESTS.stream(request, pod)
    assert sent.count(b"\r\n\r\n") == 1
    assert sent.endswith(b"\r\n\r\n")
    # As a kubelet reads it.
    seen = Exchange(0, sent)
    parse_head(sent, seen)
    assert not seen.is_malformed
    assert (seen.method, seen.path, seen.version) == (method, expected_path, "HTTP/1.1")
    assert seen.values("Host") == [HOST]
    assert {field.lower() for field, _ in seen.headers} <= _ALLOWED
    assert seen.is_upgrade == (not is_logs)
    assert b"secret" not in sent
    assert b"evil" not in sent
    assert [value.encode("latin-1") for value in request_commands(request)] == [
        word.encode("latin-1") for word in (commands if endpoint == "exec" else [])
    ]


def request_commands(request: ContainerLogs | Stream) -> list[str]:
    return [value for key, value in request.options if key == "command"]
