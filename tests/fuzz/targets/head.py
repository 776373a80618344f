# SPDX-License-Identifier: Apache-2.0
"""Requests on one connection to vn-agent: h11 takes the same bytes for the same requests.

What goes to the kubelet for an accepted request is again one request, and means the same.
"""

import h11

from tenancy.ownership import Owned
from tests.fuzz.invariants import divisions, only
from tests.fuzz.target import FuzzTarget
from vnagent.core.head import (
    END_OF_HEAD,
    MAX_HEAD_BYTES,
    HeadError,
    RequestHead,
    find_head,
    parse_request_head,
)
from vnagent.core.kubelet_request import KubeletRequests
from vnagent.core.requests import ContainerLogs, Refusal, Request, Stream, parse

_NEXT = b"GET /next HTTP/1.1\r\nHost: n\r\n\r\n"
_MAX_REQUESTS = 8


def check(data: bytes) -> None:
    """Take requests off the front while the agent would read on."""
    previous = None
    rest = data + _NEXT
    for _ in range(_MAX_REQUESTS):
        end = _end_of_head(rest)
        if end is None or end < 0:
            return
        raw = rest[:end]
        alone = only(HeadError, parse_request_head, raw)
        behind = only(HeadError, parse_request_head, raw, previous)
        assert alone == behind, "the previous head changes the result"
        if alone is None:
            return
        request = parse(alone)
        if isinstance(request, Refusal) and request.must_close:
            return
        rest = rest[end + len(END_OF_HEAD) :]
        _compare_with_h11(raw + END_OF_HEAD, alone, rest)
        _rebuild(request)
        if alone.wants_close or isinstance(request, Stream):
            return
        previous = alone


def _end_of_head(data: bytes) -> int | None:
    """Where the head ends. It does not depend on how the bytes arrive."""
    found = only(HeadError, find_head, data)
    for pieces in divisions(data):
        buffer, scanned, end = bytearray(), 0, -1
        try:
            for piece in pieces:
                buffer += piece
                end = find_head(buffer, scanned)
                if end >= 0:
                    break
                scanned = len(buffer)
        except HeadError:
            # In one piece its end may be found first: then the head itself is refused.
            assert found is None or only(HeadError, parse_request_head, data[:found]) is None
            continue
        assert end == found
    return found


def _compare_with_h11(head: bytes, ours: RequestHead, rest: bytes) -> None:
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * MAX_HEAD_BYTES)
    server.receive_data(head + rest)
    theirs = server.next_event()
    assert isinstance(theirs, h11.Request)
    assert theirs.method == ours.method.encode()
    assert theirs.target == ours.target.encode()
    assert tuple(theirs.headers) == ours.fields.lines
    assert isinstance(server.next_event(), h11.EndOfMessage)
    assert server.trailing_data[0] == rest, "the next request begins elsewhere"


def _rebuild(request: Request) -> None:
    if not isinstance(request, ContainerLogs | Stream):
        return
    pod = Owned(
        "t",
        request.namespace,
        request.pod,
        "u",
        request.namespace,
        request.pod,
        request.uid or "u",
        frozenset(),
    )
    kubelet = KubeletRequests("node:10250")
    sent = kubelet.logs(request, pod) if isinstance(request, ContainerLogs) else kubelet.stream(request, pod)
    assert find_head(sent) == len(sent) - len(END_OF_HEAD)
    head = parse_request_head(sent[: -len(END_OF_HEAD)])
    _compare_with_h11(sent, head, b"")
    assert parse(head) == request


_HOST = b"Host: n\r\n"
_SPDY = b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"
_WEBSOCKET = (
    b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n"
)
TARGET = FuzzTarget(
    check,
    seeds=(
        b"GET /containerLogs/web/shop/app?follow=true&tailLines=5 HTTP/1.1\r\n" + _HOST + b"\r\n",
        b"GET /containerLogs/web/shop/app HTTP/1.1\r\n"
        + _HOST
        + b"\r\nGET /healthz HTTP/1.1\r\n"
        + _HOST
        + b"\r\n",
        b"POST /exec/web/shop/app?command=sh&command=-c&input=1&output=1&tty=1 HTTP/1.1\r\n"
        + _HOST
        + _SPDY
        + b"Content-Length: 0\r\n\r\n",
        b"GET /attach/web/shop/a-uid/app?output=true HTTP/1.1\r\n" + _HOST + _WEBSOCKET + b"\r\n",
        b"POST /portForward/web/shop?port=80 HTTP/1.1\r\n" + _HOST + _SPDY + b"\r\n",
        b"HEAD /stats/summary?only_cpu_and_memory=true HTTP/1.1\r\n" + _HOST + b"Accept: */*\r\n\r\n",
        b"POST /run/web/shop/app HTTP/1.1\r\n" + _HOST + b"Content-Length: 3\r\n\r\nabc",
    ),
    tokens=(
        *(
            b"\r\n",
            b"\n",
            b"\r",
            b"\t",
            b" ",
            b"\x00",
            b"\x7f",
            b"\xe9",
            b":",
            b",",
            b";",
            b"\r\n\r\n",
            b"\r\n ",
        ),
        *(
            b"Content-Length: 5\r\n",
            b"Content-Length: 0\r\n",
            b"content-length: 00\r\n",
            b"Content-Length: +0\r\n",
        ),
        *(
            b"Transfer-Encoding: chunked\r\n",
            b"Transfer-Encoding: identity\r\n",
            b"0\r\n\r\n",
            b"Host: m\r\n",
        ),
        *(
            b"Connection: close\r\n",
            b"Connection: Upgrade\r\n",
            b"Upgrade: websocket\r\n",
            b"Upgrade: h2c\r\n",
        ),
        *(
            b"Expect: 100-continue\r\n",
            b" HTTP/1.1",
            b" HTTP/1.0",
            b"GET ",
            b"POST ",
            b"CONNECT ",
            b"OPTIONS ",
        ),
        *(b"http://n", b"//", b"/../", b"%2e", b"%00", b"%2F", b"?", b"&", b"=", b"+", b"%0d%0a", b"#", b"*"),
        *(b"sinceTime=2026-01-02T03:04:05Z", b"tail=all", b"stream=All", b"limitBytes=1", b"command=%20"),
        b"/metrics/cadvisor",
    ),
)
