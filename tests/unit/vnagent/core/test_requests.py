# SPDX-License-Identifier: Apache-2.0
"""What each request is, row by row of the kubelet's API, and every reason to refuse one."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vnagent.core.head import HeadError, RequestHead, parse_request_head
from vnagent.core.requests import (
    ContainerLogs,
    Endpoint,
    Health,
    Page,
    Protocol,
    Refusal,
    Request,
    Stream,
    Upgrade,
    parse,
)

KEY = base64.b64encode(bytes(16)).decode()
SPDY = ("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io")
WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    f"Sec-WebSocket-Key: {KEY}",
)
V4 = "v4.channel.k8s.io"


def head(line: str, *lines: str) -> RequestHead:
    return parse_request_head("\r\n".join([f"{line} HTTP/1.1", "Host: node-1", *lines]).encode("latin-1"))


def request(line: str, *lines: str) -> Request:
    return parse(head(line, *lines))


# ---- what is understood


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("GET /healthz", Health(is_head=False)),
        ("HEAD /healthz", Health(is_head=True)),
        ("GET /healthz/", Health(is_head=False)),
        ("GET /healthz/ping", Health(is_head=False)),
        ("GET /healthz/log", Health(is_head=False)),
        ("GET /healthz/syncloop", Health(is_head=False)),
        ("GET /healthz?verbose", Health(is_head=False)),
        ("GET /pods", Page(Endpoint.PODS, False, False)),
        ("GET /pods/", Page(Endpoint.PODS, False, False)),
        ("HEAD /pods", Page(Endpoint.PODS, True, False)),
        ("GET /pods?limit=500&x=%2F", Page(Endpoint.PODS, False, False)),
        ("GET /runningpods", Page(Endpoint.RUNNING_PODS, False, False)),
        ("GET /runningpods/", Page(Endpoint.RUNNING_PODS, False, False)),
        ("GET /stats/summary", Page(Endpoint.STATS_SUMMARY, False, False)),
        ("POST /stats/summary", Page(Endpoint.STATS_SUMMARY, False, False)),
        (
            "GET /stats/summary?only_cpu_and_memory=true",
            Page(Endpoint.STATS_SUMMARY, is_head=False, only_cpu_and_memory=True),
        ),
        ("GET /metrics/resource", Page(Endpoint.METRICS_RESOURCE, False, False)),
        ("GET /metrics/cadvisor", Page(Endpoint.METRICS_CADVISOR, False, False)),
        ("GET /metrics/probes", Page(Endpoint.METRICS_PROBES, False, False)),
        ("GET /containerLogs/web/shop/app", ContainerLogs("web", "shop", "app", (), False)),
        (
            "GET /containerLogs/web/shop/app?follow=true&tailLines=5",
            ContainerLogs("web", "shop", "app", (("follow", "true"), ("tailLines", "5")), True),
        ),
        # Names that are words of the protocol as well.
        ("GET /containerLogs/web/healthz/metrics", ContainerLogs("web", "healthz", "metrics", (), False)),
        ("GET /containerLogs/pods/exec/run", ContainerLogs("pods", "exec", "run", (), False)),
        (
            "GET /containerLogs/kube-system/etcd-node-1.x/etcd",
            ContainerLogs("kube-system", "etcd-node-1.x", "etcd", (), False),
        ),
        (
            f"GET /containerLogs/{'n' * 63}/{'p' * 253}/{'c' * 63}",
            ContainerLogs("n" * 63, "p" * 253, "c" * 63, (), False),
        ),
    ],
)
def test_what_is_understood_without_an_upgrade(line: str, expected: Request) -> None:
    assert request(line) == expected


def stream(
    endpoint: Endpoint,
    container: str | None,
    upgrade: Upgrade,
    options: tuple[tuple[str, str], ...] = (),
    uid: str | None = None,
) -> Stream:
    return Stream(endpoint, "web", "shop", uid, container, options, upgrade)


SPDY_V4 = Upgrade(Protocol.SPDY, (V4,), None)
PLAIN_WEBSOCKET = Upgrade(Protocol.WEBSOCKET, (), KEY)


@pytest.mark.parametrize(
    ("line", "lines", "expected"),
    [
        (
            "POST /exec/web/shop/app?command=ls&command=-l&output=1",
            SPDY,
            stream(
                Endpoint.EXEC, "app", SPDY_V4, (("command", "ls"), ("command", "-l"), ("output", "1"))
            ),
        ),
        (
            "POST /exec/web/shop/app",
            (*SPDY, "Content-Length: 0"),
            stream(Endpoint.EXEC, "app", SPDY_V4),
        ),
        (
            "POST /exec/web/shop/0c7f-uid/app",
            SPDY,
            stream(Endpoint.EXEC, "app", SPDY_V4, uid="0c7f-uid"),
        ),
        (
            "GET /exec/web/shop/app?command=ls",
            WEBSOCKET,
            stream(Endpoint.EXEC, "app", PLAIN_WEBSOCKET, (("command", "ls"),)),
        ),
        (
            "POST /attach/web/shop/app?input=1&tty=1",
            SPDY,
            stream(Endpoint.ATTACH, "app", SPDY_V4, (("input", "1"), ("tty", "1"))),
        ),
        ("POST /attach/web/shop/uid/app", SPDY, stream(Endpoint.ATTACH, "app", SPDY_V4, uid="uid")),
        ("GET /attach/web/shop/app", WEBSOCKET, stream(Endpoint.ATTACH, "app", PLAIN_WEBSOCKET)),
        (
            "POST /portForward/web/shop",
            (*SPDY[:2], "X-Stream-Protocol-Version: portforward.k8s.io"),
            stream(
                Endpoint.PORT_FORWARD, None, Upgrade(Protocol.SPDY, ("portforward.k8s.io",), None)
            ),
        ),
        (
            "GET /portForward/web/shop/uid?port=80&port=443",
            WEBSOCKET,
            stream(
                Endpoint.PORT_FORWARD,
                None,
                PLAIN_WEBSOCKET,
                (("port", "80"), ("port", "443")),
                uid="uid",
            ),
        ),
    ],
)  # fmt: skip
def test_streams(line: str, lines: tuple[str, ...], expected: Stream) -> None:
    assert request(line, *lines) == expected


@pytest.mark.parametrize(
    ("method", "lines", "expected"),
    [
        (
            "POST",
            ("connection: keep-alive, UPGRADE", "Upgrade: spdy/3.1", f"X-Stream-Protocol-Version: {V4}"),
            SPDY_V4,
        ),
        (
            "POST",
            ("Connection: keep-alive", "Connection: upgrade", "Upgrade: SPDY/3.1", SPDY[2]),
            SPDY_V4,
        ),
        (
            # One line for each protocol, in order, as Go's client writes them.
            "POST",
            (
                *SPDY[:2],
                "X-Stream-Protocol-Version: v5.channel.k8s.io",
                "X-Stream-Protocol-Version: v4.channel.k8s.io,v3.channel.k8s.io",
                "X-Stream-Protocol-Version: channel.k8s.io",
            ),
            Upgrade(
                Protocol.SPDY,
                ("v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io", "channel.k8s.io"),
                None,
            ),
        ),
        (
            # Entries of another shape stay here: the last of them is a bearer token.
            "GET",
            (
                *WEBSOCKET,
                "Sec-WebSocket-Protocol: v5.channel.k8s.io, base64.channel.k8s.io, chat",
                "Sec-WebSocket-Protocol: v4.base64.channel.k8s.io",
                "Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io",
                "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0",
            ),
            Upgrade(
                Protocol.WEBSOCKET,
                (
                    "v5.channel.k8s.io",
                    "base64.channel.k8s.io",
                    "v4.base64.channel.k8s.io",
                    "SPDY/3.1+portforward.k8s.io",
                ),
                KEY,
            ),
        ),
        ("POST", (*SPDY[:2], *["X-Stream-Protocol-Version: channel.k8s.io"] * 40), None),
    ],
)
def test_handshakes(method: str, lines: tuple[str, ...], expected: Upgrade | None) -> None:
    found = request(f"{method} /exec/web/shop/app?command=ls", *lines)
    assert isinstance(found, Stream)
    assert found.upgrade == (expected or Upgrade(Protocol.SPDY, ("channel.k8s.io",) * 16, None))


# ---- what is refused

CLOSING = True


@pytest.mark.parametrize(
    ("line", "lines", "expected"),
    [
        # Targets that two readers could read in two ways.
        *(
            (f"GET {target}", (), Refusal(Endpoint.MALFORMED, 400, "malformed-target", CLOSING))
            for target in (
                "*",
                "pods",
                "http://node-1/pods",
                "node-1:10550",
                "/%70ods",
                "/containerLogs/web%2Fshop/app/x",
                "/containerLogs/web/shop/app%00",
                "/containerLogs/web/shop;x=1/app",
                "/containerLogs/web\\shop/app",
                "/pods#fragment",
                "/pods?a=b#fragment",
                '/containerLogs/web/shop/app?sinceTime="',
                "/containerLogs/web/shop/app?tailLines=1;follow=1",
                "/containerLogs/web/shop/app?x[]=1",
            )
        ),
        *(
            (f"GET {target}", (), Refusal(Endpoint.MALFORMED, 400, "malformed-path", CLOSING))
            for target in (
                "//pods",
                "/./pods",
                "/../pods",
                "/logs/../pods",
                "/containerLogs//shop/app",
                "/containerLogs/web/../app",
                "/containerLogs/web/./app",
                "/pods//",
                "/..",
            )
        ),
        # No endpoint takes a body.
        (
            "POST /stats/summary",
            ("Content-Length: 1",),
            Refusal(Endpoint.MALFORMED, 400, "body-not-allowed", CLOSING),
        ),
        (
            "GET /pods",
            ("Transfer-Encoding: chunked",),
            Refusal(Endpoint.MALFORMED, 400, "body-not-allowed", CLOSING),
        ),
        (
            "POST /exec/web/shop/app",
            (*SPDY, "Content-Length: 5"),
            Refusal(Endpoint.MALFORMED, 400, "body-not-allowed", CLOSING),
        ),
        (
            "POST /exec/web/shop/app",
            (*SPDY, "Content-Length: 0", "Transfer-Encoding: identity"),
            Refusal(Endpoint.MALFORMED, 400, "body-not-allowed", CLOSING),
        ),
        # Endpoints of the kubelet that show the host or change it, at any depth.
        *(
            (line, (), Refusal(Endpoint.SHUT, 403, "endpoint-shut"))
            for line in (
                "GET /logs",
                "GET /logs/",
                "GET /logs/pods/x",
                "GET /logs/?query=kubelet",
                "POST /run/web/shop/app",
                "POST /checkpoint/web/shop/app",
                "GET /configz",
                "GET /statusz",
                "GET /flagz",
                "GET /debug/pprof/heap",
                "PUT /debug/flags/v",
                "GET /spec/",
                "POST /cri/exec/token",
                "GET /stats",
                "GET /stats/container",
                "GET /stats/web/shop/uid/app",
                "GET /metrics",
                "GET /metrics/",
                "GET /metrics/slis",
                "GET /metrics/resource/",
                "DELETE /metrics",
            )
        ),
        ("POST /run/web/shop/app", SPDY, Refusal(Endpoint.SHUT, 403, "endpoint-shut", CLOSING)),
        # Everything else.
        *(
            (line, (), Refusal(Endpoint.UNKNOWN, 404, "no-such-endpoint"))
            for line in (
                "GET /",
                "GET /api/v1/pods",
                "GET /Pods",
                "GET /pods/web",
                "GET /healthz/etcd",
                "GET /healthzz",
                "GET /runningpods/x",
                "GET /containerlogs/web/shop/app",
                "GET /containerLogs",
                "GET /containerLogs/",
                "GET /containerLogs/web",
                "GET /containerLogs/web/shop",
                "GET /containerLogs/web/shop/uid/app",
                "GET /containerLogs/web/shop/app/",
                "GET /exec/web/app",
                "GET /exec/web/shop/uid/app/more",
                "GET /portForward/web",
                "GET /portForward/web/shop/uid/more",
                "DELETE /x",
            )
        ),
        ("GET /x", WEBSOCKET, Refusal(Endpoint.UNKNOWN, 404, "no-such-endpoint", CLOSING)),
        ("POST /exec/web/app", SPDY, Refusal(Endpoint.UNKNOWN, 404, "no-such-endpoint", CLOSING)),
        # Methods.
        *(
            (
                f"{method} /healthz",
                (),
                Refusal(Endpoint.HEALTHZ, 405, "method-not-allowed", allow="GET, HEAD"),
            )
            for method in ("POST", "PUT", "OPTIONS", "get", "GETX", "CONNECT")
        ),
        ("POST /pods", (), Refusal(Endpoint.PODS, 405, "method-not-allowed", allow="GET, HEAD")),
        ("DELETE /pods", (), Refusal(Endpoint.PODS, 405, "method-not-allowed", allow="GET, HEAD")),
        (
            "PUT /stats/summary",
            (),
            Refusal(Endpoint.STATS_SUMMARY, 405, "method-not-allowed", allow="GET, HEAD, POST"),
        ),
        (
            "HEAD /containerLogs/web/shop/app",
            (),
            Refusal(Endpoint.CONTAINER_LOGS, 405, "method-not-allowed", allow="GET"),
        ),
        (
            "POST /containerLogs/web/shop/app",
            (),
            Refusal(Endpoint.CONTAINER_LOGS, 405, "method-not-allowed", allow="GET"),
        ),
        (
            "PUT /exec/web/shop/app",
            SPDY,
            Refusal(Endpoint.EXEC, 405, "method-not-allowed", CLOSING, "GET, POST"),
        ),
        (
            "OPTIONS /portForward/web/shop",
            (),
            Refusal(Endpoint.PORT_FORWARD, 405, "method-not-allowed", allow="GET, POST"),
        ),
        # An upgrade where none is offered.
        ("GET /pods", WEBSOCKET, Refusal(Endpoint.PODS, 400, "upgrade-not-offered", CLOSING)),
        ("GET /healthz", ("Upgrade: h2c",), Refusal(Endpoint.HEALTHZ, 400, "upgrade-not-offered", CLOSING)),
        (
            "GET /containerLogs/web/shop/app",
            WEBSOCKET,
            Refusal(Endpoint.CONTAINER_LOGS, 400, "upgrade-not-offered", CLOSING),
        ),
        # Names.
        *(
            (
                f"GET /containerLogs/{path}",
                (),
                Refusal(Endpoint.CONTAINER_LOGS, 400, "malformed-name", CLOSING),
            )
            for path in (
                "Web/shop/app",
                "web_1/shop/app",
                "web./shop/app",
                "-web/shop/app",
                "web-/shop/app",
                f"{'n' * 64}/shop/app",
                "web/Shop/app",
                "web/.shop/app",
                "web/shop./app",
                "web/a..b/app",
                "web/-shop/app",
                f"web/{'p' * 254}/app",
                "web/shop/App",
                "web/shop/a.b",
                f"web/shop/{'c' * 64}",
                "web/shop/app,x",
                "web/shop/app:80",
                "web/shop@x/app",
                "~/shop/app",
            )
        ),
        ("POST /exec/web/shop/-uid/app", SPDY, Refusal(Endpoint.EXEC, 400, "malformed-name", CLOSING)),
        (
            f"POST /exec/web/shop/{'u' * 129}/app",
            SPDY,
            Refusal(Endpoint.EXEC, 400, "malformed-name", CLOSING),
        ),
        ("POST /exec/web/shop/", SPDY, Refusal(Endpoint.EXEC, 400, "malformed-name", CLOSING)),
        (
            "POST /portForward/web/shop/",
            SPDY,
            Refusal(Endpoint.PORT_FORWARD, 400, "malformed-name", CLOSING),
        ),
        # Parameters: test_query has them all, here that their errors arrive.
        (
            "GET /containerLogs/web/shop/app?container=x",
            (),
            Refusal(Endpoint.CONTAINER_LOGS, 400, "unknown-parameter", CLOSING),
        ),
        (
            "GET /containerLogs/web/shop/app?sinceSeconds=1&sinceTime=2026-11-20T16:00:00Z",
            (),
            Refusal(Endpoint.CONTAINER_LOGS, 422, "conflicting-parameters", CLOSING),
        ),
        (
            "POST /exec/web/shop/app?command=a&tty=maybe",
            SPDY,
            Refusal(Endpoint.EXEC, 400, "malformed-parameter", CLOSING),
        ),
        (
            "POST /attach/web/shop/app?command=a",
            SPDY,
            Refusal(Endpoint.ATTACH, 400, "unknown-parameter", CLOSING),
        ),
        (
            "GET /portForward/web/shop?port=0",
            WEBSOCKET,
            Refusal(Endpoint.PORT_FORWARD, 400, "malformed-parameter", CLOSING),
        ),
        (
            "GET /stats/summary?only_cpu_and_memory=x",
            (),
            Refusal(Endpoint.STATS_SUMMARY, 400, "malformed-parameter", CLOSING),
        ),
        (
            "GET /containerLogs/web/shop/app?",
            (),
            ContainerLogs("web", "shop", "app", (), False),
        ),
    ],
)
def test_refusals(line: str, lines: tuple[str, ...], expected: Request) -> None:
    assert request(line, *lines) == expected


@pytest.mark.parametrize(
    ("method", "lines", "reason"),
    [
        ("POST", (), "not-an-upgrade"),
        ("GET", (), "not-an-upgrade"),
        ("POST", SPDY[1:], "not-an-upgrade"),
        ("POST", (SPDY[0], SPDY[2]), "not-an-upgrade"),
        ("POST", ("Connection: notupgrade", *SPDY[1:]), "not-an-upgrade"),
        ("POST", ("Connection: upgrade-insecure, x", *SPDY[1:]), "not-an-upgrade"),
        ("GET", SPDY, "spdy-needs-post"),
        ("POST", SPDY[:2], "no-stream-protocol"),
        ("POST", (*SPDY[:2], "X-Stream-Protocol-Version: v0.channel.k8s.io"), "no-stream-protocol"),
        ("POST", (*SPDY[:2], "X-Stream-Protocol-Version: v4.channel.k8s.io\xe9"), "no-stream-protocol"),
        ("POST", (SPDY[0], "Upgrade: SPDY/2", SPDY[2]), "unknown-upgrade"),
        ("POST", (SPDY[0], "Upgrade: h2c", SPDY[2]), "unknown-upgrade"),
        ("POST", (SPDY[0], "Upgrade: websocket, SPDY/3.1", SPDY[2]), "unknown-upgrade"),
        ("POST", WEBSOCKET, "malformed-websocket-handshake"),
        ("GET", (*WEBSOCKET[:2], WEBSOCKET[3]), "malformed-websocket-handshake"),
        (
            "GET",
            (*WEBSOCKET[:2], "Sec-WebSocket-Version: 8", WEBSOCKET[3]),
            "malformed-websocket-handshake",
        ),
        ("GET", WEBSOCKET[:3], "malformed-websocket-handshake"),
        ("GET", (*WEBSOCKET[:3], "Sec-WebSocket-Key: short"), "malformed-websocket-handshake"),
        ("GET", (*WEBSOCKET[:3], f"Sec-WebSocket-Key: {KEY}\xe9"), "malformed-websocket-handshake"),
        (
            "GET",
            (*WEBSOCKET[:3], f"Sec-WebSocket-Key: {base64.b64encode(bytes(17)).decode()}"),
            "malformed-websocket-handshake",
        ),
        ("GET", (*WEBSOCKET, "Sec-WebSocket-Protocol: chat"), "no-stream-protocol"),
        (
            "GET",
            (*WEBSOCKET, "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0"),
            "no-stream-protocol",
        ),
    ],
)
def test_handshakes_that_are_refused(method: str, lines: tuple[str, ...], reason: str) -> None:
    found = request(f"{method} /exec/web/shop/app?command=ls", *lines)
    assert found == Refusal(Endpoint.EXEC, 400, reason, must_close=True)


# ---- arbitrary targets

_SEGMENT = st.sampled_from(
    [
        *("containerLogs", "exec", "attach", "portForward", "pods", "healthz", "stats", "summary"),
        *("metrics", "resource", "logs", "web", "shop", "app", "", ".", "..", "%2e", "a-b", "A"),
    ]
) | st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=5)
_TARGETS = st.one_of(
    st.lists(_SEGMENT, max_size=6).map(lambda parts: "/" + "/".join(parts)),
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1),
)
_QUERIES = st.sampled_from(["", "?", "?follow=true", "?command=ls&tty=1", "?port=80", "?a", "?a=%zz"])


@given(
    st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"]),
    _TARGETS,
    _QUERIES,
    st.sampled_from([(), SPDY, WEBSOCKET, ("Connection: Upgrade",), ("Upgrade: x",), ("Content-Length: 1",)]),
)
def test_every_target_is_one_of_the_closed_set(
    method: str, target: str, query: str, lines: tuple[str, ...]
) -> None:
    try:
        found = request(f"{method} {target}{query}", *lines)
    except HeadError:
        return  # a target that ends the head early, or is none
    if isinstance(found, Refusal):
        assert found.status in {400, 403, 404, 405, 422}
        assert (found.allow is not None) == (found.status == 405)
        return
    assert "Content-Length: 1" not in lines
    path = target.partition("?")[0]
    if isinstance(found, ContainerLogs | Stream):
        # Decided on whole segments: the names put together are the path that was asked for.
        names = [found.namespace, found.pod, found.uid, found.container]
        assert path == "/".join(["", found.endpoint.value, *(name for name in names if name is not None)])
        assert isinstance(found, Stream) == (lines in (SPDY, WEBSOCKET))
    else:
        assert path.strip("/") in {
            *("healthz", "healthz/ping", "healthz/log", "healthz/syncloop", "pods", "runningpods"),
            *("stats/summary", "metrics/resource", "metrics/cadvisor", "metrics/probes"),
        }
