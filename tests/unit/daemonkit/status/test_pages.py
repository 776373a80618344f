# SPDX-License-Identifier: Apache-2.0
import io
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daemonkit import logs
from daemonkit.metrics import Registry
from daemonkit.status.pages import Pages, Query, Readiness, Reply, prefers_openmetrics, too_large


@dataclass(frozen=True)
class AgedSource:
    name: str
    age_s: float


READY = Readiness(True, ("pods: ok, age 3 s",))


def pages(readiness: Readiness = READY) -> Pages:
    registry = Registry()
    registry.gauge("vcnode_x", "X.").set(1)
    status: dict[str, object] = {"socket": Path("/run/x"), "sources": [AgedSource("pods", 1.5)]}
    return Pages(registry, readiness=lambda: readiness, status=lambda: status)


def answer(given: Pages, head: bytes, *, can_change: bool = False) -> bytes:
    response = given.answer(head, can_change=can_change)
    return response() if callable(response) else response


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: node", *headers, "", ""]).encode("latin-1")


def test_a_response_is_written_in_full() -> None:
    assert answer(pages(), get("/healthz")) == (
        b"HTTP/1.1 200 OK\r\n"
        b"Content-Type: text/plain; charset=utf-8\r\n"
        b"Content-Length: 3\r\n"
        b"Cache-Control: no-store\r\n"
        b"X-Content-Type-Options: nosniff\r\n"
        b"Connection: close\r\n"
        b"\r\n"
        b"ok\n"
    )


@pytest.mark.parametrize(
    ("path", "content_type", "body"),
    [
        ("/healthz?verbose", b"text/plain; charset=utf-8", b"ok\n"),
        ("/readyz", b"text/plain; charset=utf-8", b"pods: ok, age 3 s\n"),
        (
            "/status",
            b"application/json",
            b'{"socket":"/run/x","sources":[{"name":"pods","age_s":1.5}]}\n',
        ),
    ],
)
def test_get_and_head_of_a_page(path: str, content_type: bytes, body: bytes) -> None:
    response = answer(pages(), get(path))
    head, _, got = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: " + content_type + b"\r\n")
    assert b"\r\nContent-Length: %d\r\n" % len(body) in head
    assert got == body
    assert answer(pages(), get(path, method="HEAD")) == head + b"\r\n\r\n"


PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", False),
        ("*/*", False),
        ("text/html, */*", False),
        (PROMETHEUS_3, True),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; Version=1.0.0", True),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0.3, text/plain;q=0.4", False),
        ("application/openmetrics-text;q=0.4, text/plain;q=0.4", True),
        ("application/openmetrics-text;q=1e3", False),
        ("application/openmetrics-text;version;;=,", False),
    ],
)
def test_openmetrics_is_served_when_preferred(accept: str, expected: bool) -> None:
    assert prefers_openmetrics(accept) is expected


def test_metrics_in_both_formats() -> None:
    head, _, text = answer(pages(), get("/metrics")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n")
    assert text.startswith(b"# HELP vcnode_x X.\n# TYPE vcnode_x gauge\nvcnode_x 1.0\n")
    head, _, openmetrics = answer(pages(), get("/metrics", f"Accept: {PROMETHEUS_3}")).partition(b"\r\n\r\n")
    assert (
        b"\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n" in head + b"\r\n"
    )
    assert openmetrics.endswith(b"# EOF\n")


def test_metrics_are_read_before_they_are_rendered() -> None:
    """A thread renders them."""
    registry = Registry()
    gauge = registry.gauge("vcnode_x", "X.")
    response = Pages(registry, readiness=lambda: READY, status=dict).answer(get("/metrics"))
    gauge.set(7)
    assert callable(response)
    assert b"\nvcnode_x 0.0\n" in response()


def test_head_of_metrics_has_no_body() -> None:
    response = answer(pages(), get("/metrics", method="HEAD"))
    assert response.endswith(b"\r\n\r\n")
    assert response.count(b"\r\n\r\n") == 1


def test_not_ready_is_503_with_reasons() -> None:
    response = answer(pages(Readiness(False, ("pods: never synced", "tenants: ok"))), get("/readyz"))
    assert response.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert response.endswith(b"\r\n\r\npods: never synced\ntenants: ok\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/"), 404),
        (get("/metrics/"), 404),
        (get("/healthz/../metrics"), 404),
        (get("/%6detrics"), 404),
        (get("//metrics"), 404),
        (get("/healthz", method="POST"), 405),
        (get("/healthz", method="PUT"), 405),
        (get("/log-level?level=debug", method="POST"), 405),
        (get("/log-level?level=debug", method="PUT"), 403),
        (get("/healthz", method="get"), 400),
        (get("/healthz", method=""), 400),
        (get("healthz"), 400),
        (get("http://x/healthz"), 400),
        (get("*", method="OPTIONS"), 400),
        (get("/health z"), 400),
        (get("/healthz\x01"), 400),
        (get("/healthz", "Host : x"), 400),
        (get("/healthz", "Host: x"), 400),
        (get("/healthz", " folded: x"), 400),
        (get("/healthz", "a: b\nc: d"), 400),
        (get("/healthz", "a: b\rc: d"), 400),
        (get("/healthz", "a: b\x00"), 400),
        (get("/healthz", "no colon"), 400),
        (get("/healthz", "content-LENGTH: 0"), 400),
        (get("/healthz", "Transfer-Encoding: chunked"), 400),
        (get("/healthz", "Upgrade: h2c"), 400),
        (get("/healthz", "Expect: 100-continue"), 400),
        (b"GET /healthz\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/2.0\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
        (b"\r\nGET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
    ],
)
def test_other_requests_are_refused(request_: bytes, status: int) -> None:
    response = answer(pages(), request_)
    assert response.startswith(b"HTTP/1.1 %d " % status)
    assert (b"\r\nAllow: GET, HEAD\r\n" in response) is (status == 405)


def test_an_operator_changes_the_log_level() -> None:
    logs.setup(is_json=False, stream=io.StringIO(), clock=lambda: 0)
    served = pages()
    changed = answer(served, get("/log-level?level=debug", method="PUT"), can_change=True)
    assert changed.endswith(b'\r\n\r\n{"level":"debug","configured":"info"}\n')
    for query, problem in (
        ("?level=loud", b"level must be one of debug, info, warning, error\n"),
        ("", b"level must be one of debug, info, warning, error\n"),
        ("?level", b"malformed query\n"),
    ):
        refused = answer(served, get(f"/log-level{query}", method="PUT"), can_change=True)
        assert refused.startswith(b"HTTP/1.1 400 ")
        assert refused.endswith(problem)
    assert answer(served, get("/log-level?level=error")).endswith(b'{"level":"debug","configured":"info"}\n')


def test_others_do_not_change_the_log_level() -> None:
    response = answer(pages(), get("/log-level?level=debug", method="PUT"))
    assert response.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert logs.level_name() == "info"


def test_pages_for_scrapers_alone_change_nothing() -> None:
    """Not even for a peer that might: the listener for scrapers has no such peers."""
    scraped = Pages(
        Registry(), readiness=lambda: READY, status=dict, only=frozenset({"/metrics", "/healthz"})
    )
    for method, path in (("PUT", "/log-level?level=debug"), ("GET", "/log-level"), ("GET", "/status")):
        response = answer(scraped, get(path, method=method), can_change=True)
        assert response.startswith(b"HTTP/1.1 404 ")
    assert logs.level_name() == "info"


def test_a_failing_page_is_500_and_logged() -> None:
    stream = io.StringIO()
    logs.setup(is_json=False, stream=stream, clock=lambda: 0)
    registry = Registry()
    registry.gauge_function("x", "", lambda: 1 / 0)
    failing = Pages(registry, readiness=lambda: Readiness(True, ()), status=lambda: {"x": object()})
    for path in ("/metrics", "/status"):
        response = answer(failing, get(path))
        assert response.startswith(b"HTTP/1.1 500 ")
        assert response.endswith(b"\r\n\r\nthis page failed; the log has the error\n")
    assert "path=/metrics" in stream.getvalue()
    assert "ZeroDivisionError" in stream.getvalue()
    assert "object in a status" in stream.getvalue()


def test_a_too_large_head_is_431() -> None:
    assert too_large().startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")


@given(st.binary(max_size=200))
@example(b"GET /healthz HTTP/1.1\r\n")
def test_any_bytes_get_one_whole_response(data: bytes) -> None:
    head, _, body = answer(pages(), data.replace(b"\r\n\r\n", b"") + b"\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 ")
    assert b"\r\nContent-Length: %d\r\n" % len(body) in head


def own_pages() -> Pages:
    def echo(query: Query) -> Reply:
        if "why" not in query:
            return Reply(400, b"why is needed\n")
        return Reply.json({"query": query, "at": Path("/run/x")})

    def fail(_: Query) -> Reply:
        raise ZeroDivisionError

    return Pages(Registry(), readiness=lambda: READY, status=dict, own={"/explain": echo, "/broken": fail})


@pytest.mark.parametrize(
    ("target", "status", "body"),
    [
        ("/explain?why=a%20b&x=&why=c+d", 200, b'{"query":{"why":"c d","x":""},"at":"/run/x"}\n'),
        ("/explain?why=%5B2001:db8::1%5D:80", 200, b'{"query":{"why":"[2001:db8::1]:80"},"at":"/run/x"}\n'),
        ("/explain", 400, b"why is needed\n"),
        ("/explain?", 400, b"why is needed\n"),
        ("/explain?why", 400, b"malformed query\n"),
        ("/explain?why=%ff", 400, b"malformed query\n"),
        ("/explain?" + "&".join(["a=b"] * 17), 400, b"malformed query\n"),
        ("/broken", 500, b"this page failed; the log has the error\n"),
        ("/other", 404, b"no such page: /healthz /readyz /metrics /status /log-level /explain /broken\n"),
    ],
)
def test_a_daemons_own_pages_get_the_query(target: str, status: int, body: bytes) -> None:
    head, _, got = answer(own_pages(), get(target)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert got == body
