# SPDX-License-Identifier: Apache-2.0
"""Every reason to refuse a request but those of an upgrade's handshake, row by row."""

import pytest

from tests.unit.vnagent.core.request_lines import SPDY, WEBSOCKET, request
from vnagent.core.requests import MAX_PATH_CHARS, ContainerLogs, Endpoint, Refusal, Request

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
                # No name is looked for in a path that is longer than all names together.
                "/containerLogs/web/" + "a." * 500 + "a/app",
                "/" + "a" * MAX_PATH_CHARS + "?a=b",
                "/" * (MAX_PATH_CHARS + 1),
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
            (line, (), Refusal(Endpoint.DENIED, 403, "endpoint-denied"))
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
        ("POST /run/web/shop/app", SPDY, Refusal(Endpoint.DENIED, 403, "endpoint-denied", CLOSING)),
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
            "GET /containerLogs/web/shop/app?tailLines=x",
            (),
            Refusal(Endpoint.CONTAINER_LOGS, 400, "malformed-parameter", CLOSING),
        ),
        (
            "GET /containerLogs/web/shop/app?sinceSeconds=1&sinceTime=2026-11-20T16:00:00Z",
            (),
            Refusal(Endpoint.CONTAINER_LOGS, 422, "conflicting-parameters", CLOSING),
        ),
        (
            "POST /exec/web/shop/app?command=a&tty=1&tty=1",
            SPDY,
            Refusal(Endpoint.EXEC, 400, "repeated-parameter", CLOSING),
        ),
        (
            "POST /attach/web/shop/app?tty=1&tty=0",
            SPDY,
            Refusal(Endpoint.ATTACH, 400, "repeated-parameter", CLOSING),
        ),
        (
            "GET /portForward/web/shop?port=0",
            WEBSOCKET,
            Refusal(Endpoint.PORT_FORWARD, 400, "malformed-parameter", CLOSING),
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
