# SPDX-License-Identifier: Apache-2.0
"""The request of each target, row by row of the kubelet's API, and that every target is one of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.vnagent.core.request_lines import KEY, SPDY, SPDY_V4, WEBSOCKET, request
from vnagent.core.head import HeadError
from vnagent.core.requests import (
    PAGE_ENDPOINTS,
    ContainerLogs,
    Endpoint,
    Health,
    PageRequest,
    Protocol,
    Refusal,
    Request,
    Stream,
    Upgrade,
)

# ---- accepted requests


@pytest.mark.parametrize(
    ("values", "accepts"),
    [
        ([], False),
        (["gzip"], True),
        (["GZIP"], True),
        (["x-gzip"], True),
        (["deflate, gzip;q=0.5"], True),
        (["deflate", "gzip"], True),
        (["gzip ; q=1.000 "], True),
        (["*"], True),
        (["*;q=0"], False),
        (["gzip;q=0"], False),
        (["gzip;q=0.000, *"], False),
        (["gzip, *;q=0"], True),
        (["identity"], False),
        (["identity;q=1, gzip;q=0"], False),
        (["gzipped"], False),
        (["gzip;q=2"], False),
        (["gzip;level=9"], False),
        ([""], False),
        ([",".join(["br"] * 40 + ["gzip"])], False),  # only the first ones are read
    ],
)
def test_gzip_for_those_who_take_it(values: list[str], accepts: bool) -> None:
    found = request("GET /pods", *(f"Accept-Encoding: {value}" for value in values))
    assert found == PageRequest(Endpoint.PODS, False, False, accepts_gzip=accepts)


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
        ("GET /pods", PageRequest(Endpoint.PODS, False, False)),
        ("GET /pods/", PageRequest(Endpoint.PODS, False, False)),
        ("HEAD /pods", PageRequest(Endpoint.PODS, True, False)),
        ("GET /pods?limit=500&x=%2F", PageRequest(Endpoint.PODS, False, False)),
        ("GET /runningpods", PageRequest(Endpoint.RUNNING_PODS, False, False)),
        ("GET /runningpods/", PageRequest(Endpoint.RUNNING_PODS, False, False)),
        ("GET /stats/summary", PageRequest(Endpoint.STATS_SUMMARY, False, False)),
        ("POST /stats/summary", PageRequest(Endpoint.STATS_SUMMARY, False, False)),
        (
            "GET /stats/summary?only_cpu_and_memory=true",
            PageRequest(Endpoint.STATS_SUMMARY, is_head=False, only_cpu_and_memory=True),
        ),
        ("GET /metrics/resource", PageRequest(Endpoint.METRICS_RESOURCE, False, False)),
        ("GET /metrics/cadvisor", PageRequest(Endpoint.METRICS_CADVISOR, False, False)),
        ("GET /metrics/probes", PageRequest(Endpoint.METRICS_PROBES, False, False)),
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
def test_requests_without_an_upgrade(line: str, expected: Request) -> None:
    assert request(line) == expected


def stream(
    endpoint: Endpoint,
    container: str | None,
    upgrade: Upgrade,
    options: tuple[tuple[str, str], ...] = (),
    uid: str | None = None,
) -> Stream:
    return Stream(endpoint, "web", "shop", uid, container, options, upgrade)


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


# ---- arbitrary targets

_SEGMENT = st.sampled_from(
    [
        *("containerLogs", "exec", "attach", "portForward", "pods", "healthz", "stats", "summary"),
        *("metrics", "resource", "logs", "web", "shop", "app", "", ".", "..", "%2e", "a-b", "A"),
    ]
) | st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=5)
_TARGETS = st.one_of(
    st.sampled_from(sorted(PAGE_ENDPOINTS)),
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
def test_every_target_is_in_the_closed_set(
    method: str, target: str, query: str, lines: tuple[str, ...]
) -> None:
    try:
        found = request(f"{method} {target}{query}", *lines)
    except HeadError:
        return  # a target that ends the head early, or is none
    if isinstance(found, Refusal):
        # Any request: a refusal is one of the closed set. The tables above show which.
        assert found.status in {400, 403, 404, 405, 422}
        assert (found.allow is not None) == (found.status == 405)
        return
    assert "Content-Length: 1" not in lines
    path = target.partition("?")[0]
    if isinstance(found, ContainerLogs | Stream):
        # Decided on whole segments: the joined names are the requested path.
        names = [found.namespace, found.pod, found.uid, found.container]
        assert path == "/".join(["", found.endpoint.value, *(name for name in names if name is not None)])
        assert isinstance(found, Stream) == (lines in (SPDY, WEBSOCKET))
    else:
        health = {"healthz", "healthz/ping", "healthz/log", "healthz/syncloop"}
        assert path in PAGE_ENDPOINTS if isinstance(found, PageRequest) else path.strip("/") in health
