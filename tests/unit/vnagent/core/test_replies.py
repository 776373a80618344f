# SPDX-License-Identifier: Apache-2.0
"""The responses to tenants, byte for byte."""

import json

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vnagent.core.head import ResponseHead, parse_response_head
from vnagent.core.replies import (
    accepted_protocols,
    log_head,
    refusal,
    switching_head,
    whole_reply,
)
from vnagent.core.requests import STREAMS, ContainerLogs, Endpoint, Protocol, Stream, Upgrade

DATE = "Fri, 20 Nov 2026 16:00:00 GMT"
LOGS = ContainerLogs("web", "shop", "app", (), False)
SPDY = Stream(
    Endpoint.EXEC, "web", "shop", None, "app", (), Upgrade(Protocol.SPDY, ("v4.channel.k8s.io",), None)
)
WEBSOCKET = SPDY._replace(upgrade=Upgrade(Protocol.WEBSOCKET, (), "key"))


def response(*lines: str) -> ResponseHead:
    return parse_response_head("\r\n".join(lines).encode("latin-1"))


# ---- our own responses


def test_a_refusal_of_a_log_is_text() -> None:
    assert refusal(Endpoint.CONTAINER_LOGS, 404, "no-such-pod-of-tenant", "0f-1", is_close=False) == (
        b"HTTP/1.1 404 Not Found\r\n"
        b"Content-Type: text/plain; charset=utf-8\r\n"
        b"Content-Length: 85\r\n"
        b"X-Content-Type-Options: nosniff\r\n"
        b"X-Request-Id: 0f-1\r\n\r\n"
        b"vcnode: no such pod or container on this node; compare with kubectl get pods -o wide\n"
    )


def test_a_refusal_of_a_stream_is_a_status_that_kubectl_decodes() -> None:
    assert refusal(
        Endpoint.EXEC, 429, "too-many-tunnels", "0f-1", is_close=True, retry_after_s=1, date=DATE
    ) == (
        b"HTTP/1.1 429 Too Many Requests\r\n"
        b"Date: Fri, 20 Nov 2026 16:00:00 GMT\r\n"
        b"Content-Type: application/json\r\n"
        b"Content-Length: 214\r\n"
        b"X-Content-Type-Options: nosniff\r\n"
        b"X-Request-Id: 0f-1\r\n"
        b"Retry-After: 1\r\n"
        b"Connection: close\r\n\r\n"
        b'{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", '
        b'"message": "vcnode: too many open streams of this tenant on this node; '
        b'close some or try again", "reason": "TooManyRequests", "code": 429}'
    )


def test_a_refusal_of_a_head_request_has_the_length_and_no_body() -> None:
    whole = refusal(Endpoint.PODS, 405, "method-not-allowed", "x", is_close=False, allow="GET, HEAD")
    head = refusal(
        Endpoint.PODS, 405, "method-not-allowed", "x", is_close=False, is_head=True, allow="GET, HEAD"
    )
    assert whole == head + b"vcnode: method not allowed\n"
    assert b"\r\nAllow: GET, HEAD\r\n" in head


def test_a_refusal_lists_supported_protocols() -> None:
    reply = refusal(
        Endpoint.EXEC, 403, "kubelet-refused-upgrade", "x", is_close=True, protocols="v4.channel.k8s.io"
    )
    assert b"\r\nX-Accepted-Stream-Protocol-Versions: v4.channel.k8s.io\r\n" in reply


@pytest.mark.parametrize("endpoint", list(Endpoint))
def test_missing_objects_get_one_response(endpoint: Endpoint) -> None:
    """Foreign or missing pod, foreign container, wrong uid, gone at the kubelet: the same bytes."""
    distinct_replies = {
        refusal(endpoint, 404, reason, "0f-1", is_close=True)
        for reason in (
            "no-such-pod-of-tenant",
            "no-such-container-of-tenant",
            "other-uid",
            "kubelet-not-found",
        )
    }
    assert len(distinct_replies) == 1


def test_a_reason_without_a_sentence_is_the_text() -> None:
    reply = refusal(Endpoint.UNKNOWN, 400, "malformed-target", "x", is_close=True)
    assert reply.endswith(b"vcnode: the request is refused (malformed-target)\n")


def test_a_page() -> None:
    assert whole_reply(200, "application/json", b"{}", "0f-1", is_close=True) == (
        b"HTTP/1.1 200 OK\r\n"
        b"Content-Type: application/json\r\n"
        b"Content-Length: 2\r\n"
        b"X-Content-Type-Options: nosniff\r\n"
        b"X-Request-Id: 0f-1\r\n"
        b"Connection: close\r\n\r\n{}"
    )


@given(
    st.sampled_from(list(Endpoint)),
    st.sampled_from([400, 403, 404, 405, 408, 417, 422, 429, 431, 500, 502, 503, 504, 599]),
    st.sampled_from(["no-such-pod-of-tenant", "not-synced", "other"]),
    st.booleans(),
    st.booleans(),
    st.none() | st.text(max_size=20),
)
def test_every_refusal_is_one_response_to_h11(
    endpoint: Endpoint, status: int, reason: str, is_close: bool, is_head: bool, text: str | None
) -> None:
    sent = refusal(endpoint, status, reason, "0f-1", is_close=is_close, is_head=is_head, text=text, date=DATE)
    client = h11.Connection(h11.CLIENT)
    method = "HEAD" if is_head else "GET"
    client.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
    client.send(h11.EndOfMessage())
    client.receive_data(sent)
    head = client.next_event()
    assert isinstance(head, h11.Response)
    assert head.status_code == status
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert client.trailing_data == (b"", False)
    assert (client.their_state is h11.MUST_CLOSE) == is_close
    if is_head:
        assert body == b""
    elif endpoint in STREAMS:
        assert json.loads(body)["code"] == status
        assert json.loads(body)["kind"] == "Status"
    else:
        assert body.decode().startswith("vcnode: ")


# ---- a relayed log


@pytest.mark.parametrize(
    ("head", "is_close", "expected"),
    [
        (response("HTTP/1.1 200 OK", "Content-Length: 7"), False, b"Content-Length: 7\r\n"),
        (response("HTTP/1.1 200 OK", "Transfer-Encoding: chunked"), True, b"Transfer-Encoding: chunked\r\n"),
        (response("HTTP/1.1 200 OK"), False, b"Transfer-Encoding: chunked\r\n"),
        (
            # Nothing of the kubelet's own head is passed on.
            response("HTTP/1.1 200 OK", "Content-Length: 0", "Set-Cookie: a", "Location: /x", "Date: y"),
            False,
            b"Content-Length: 0\r\n",
        ),
    ],
)
def test_the_head_of_a_log(head: ResponseHead, is_close: bool, expected: bytes) -> None:
    assert log_head(head, "0f-1", is_close=is_close, date=DATE) == (
        b"HTTP/1.1 200 OK\r\n"
        b"Date: Fri, 20 Nov 2026 16:00:00 GMT\r\n"
        b"Content-Type: text/plain\r\n"
        + expected
        + b"X-Content-Type-Options: nosniff\r\n"
        + b"X-Request-Id: 0f-1\r\n"
        + (b"Connection: close\r\n\r\n" if is_close else b"\r\n")
    )


# ---- 101


@pytest.mark.parametrize(
    ("request_", "head", "expected"),
    [
        (
            SPDY,
            response(
                "HTTP/1.1 101 Switching Protocols",
                *("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io"),
                *("Server: containerd", "Set-Cookie: a"),
            ),
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\nX-Request-Id: 0f-1\r\n\r\n",
        ),
        (
            WEBSOCKET,
            response(
                "HTTP/1.1 101 Switching Protocols",
                *("connection: keep-alive, upgrade", "upgrade: WebSocket"),
                *("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "Sec-WebSocket-Protocol: v5.x"),
            ),
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: v5.x\r\n"
            b"X-Request-Id: 0f-1\r\n\r\n",
        ),
        (
            # A value of another shape does not travel.
            SPDY,
            response(
                "HTTP/1.1 101 S",
                *("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: a b"),
            ),
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            b"X-Request-Id: 0f-1\r\n\r\n",
        ),
        # Another protocol than the requested one, or no upgrade at all.
        (SPDY, response("HTTP/1.1 101 S", "Connection: Upgrade", "Upgrade: websocket"), None),
        (WEBSOCKET, response("HTTP/1.1 101 S", "Connection: Upgrade", "Upgrade: h2c"), None),
        (SPDY, response("HTTP/1.1 101 S", "Connection: Upgrade"), None),
        (SPDY, response("HTTP/1.1 101 S", "Upgrade: SPDY/3.1"), None),
        (SPDY, response("HTTP/1.1 101 S", "Connection: notupgrade", "Upgrade: SPDY/3.1"), None),
    ],
)
def test_switching(request_: Stream, head: ResponseHead, expected: bytes | None) -> None:
    assert switching_head(request_, head, "0f-1") == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), None),
        (("X-Accepted-Stream-Protocol-Versions: v4.channel.k8s.io",), "v4.channel.k8s.io"),
        (
            (
                "X-Accepted-Stream-Protocol-Versions: v4.channel.k8s.io, channel.k8s.io",
                "x-accepted-stream-protocol-versions: portforward.k8s.io",
            ),
            "v4.channel.k8s.io, channel.k8s.io, portforward.k8s.io",
        ),
        (
            ("X-Accepted-Stream-Protocol-Versions: v4.channel.k8s.io, ten-b-web/bank, x v4",),
            "v4.channel.k8s.io",
        ),
        (("X-Accepted-Stream-Protocol-Versions: pod ten-b-web/bank of node-1",), None),
        (("X-Accepted-Stream-Protocol-Versions: <script>",), None),
        (("X-Accepted-Stream-Protocol-Versions: caf\xe9",), None),
    ],
)
def test_accepted_protocols(lines: tuple[str, ...], expected: str | None) -> None:
    assert accepted_protocols(response("HTTP/1.1 403 Forbidden", *lines)) == expected
