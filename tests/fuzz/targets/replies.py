# SPDX-License-Identifier: Apache-2.0
"""A kubelet's replies: h11 reads the same head, and what a tenant gets for it is one reply of known words."""

import re

import h11

from tests.fuzz.invariants import only
from tests.fuzz.target import FuzzTarget
from vnagent.core.framing import body_of
from vnagent.core.head import END_OF_HEAD, MAX_HEAD_BYTES, HeadError, find_head, parse_response_head
from vnagent.core.replies import accepted_protocols, log_head, refusal, switching_head, translate_refusal
from vnagent.core.requests import ContainerLogs, Endpoint, Protocol, Stream, Upgrade

_LOGS = ContainerLogs("web", "shop", "app", (), False)
_STREAMS = tuple(
    Stream(Endpoint.EXEC, "web", "shop", None, "app", (), Upgrade(protocol, ("v4.channel.k8s.io",), None))
    for protocol in Protocol
)
# The sentences for tenants have these characters; of the kubelet's text one word at most is passed on.
_SENTENCE = re.compile(r"[A-Za-z0-9 ,.:;/]{1,200}")


def check(data: bytes) -> None:
    end = only(HeadError, find_head, data)
    if end is None or end < 0:
        _check_refusals(400, data)
        return
    head = only(HeadError, parse_response_head, data[:end])
    if head is None:
        return
    body = data[end + len(END_OF_HEAD) :]
    client = _h11_client()
    client.receive_data(data[: end + len(END_OF_HEAD)])
    theirs = client.next_event()
    assert isinstance(theirs, h11.Response | h11.InformationalResponse)
    assert theirs.status_code == head.status
    assert tuple(theirs.headers) == tuple(map(_as_h11_has_it, head.fields.lines))
    if head.status >= 200:
        reader = body_of(head)
        assert reader.is_chunked is head.is_chunked
        _read_back(log_head(head, "id", is_close=head.is_last), 200)
    for request in _STREAMS:
        switched = switching_head(request, head, "id")
        if switched is not None:
            _read_back(switched, 101)
    protocols = accepted_protocols(head)
    _read_back(
        refusal(Endpoint.EXEC, 403, "kubelet-refused-upgrade", "id", is_close=False, protocols=protocols), 403
    )
    _check_refusals(head.status, body)


def _check_refusals(kubelet_status: int, body: bytes) -> None:
    requests: tuple[ContainerLogs | Stream, ...] = (_LOGS, *_STREAMS)
    for request in requests:
        status, reason, text = translate_refusal(request, kubelet_status, body)
        assert text is None or _SENTENCE.fullmatch(text), text
        reply = refusal(request.endpoint, status, reason, "id", is_close=True, text=text)
        _read_back(reply, status)


def _as_h11_has_it(line: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """h11 gives names of codings, which have no case (RFC 9112, 7), in lower case."""
    name, value = line
    return name, value.lower() if name == b"transfer-encoding" else value


def _h11_client() -> h11.Connection:
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=2 * MAX_HEAD_BYTES)
    offer = [("Host", "a"), ("Connection", "Upgrade"), ("Upgrade", "x")]
    client.send(h11.Request(method="GET", target="/", headers=offer))
    client.send(h11.EndOfMessage())
    return client


def _read_back(reply: bytes, status: int) -> None:
    """The reply is one message, whose head our own parser takes too."""
    client = _h11_client()
    client.receive_data(reply)
    event = client.next_event()
    assert isinstance(event, h11.Response | h11.InformationalResponse)
    assert event.status_code == status
    end = find_head(reply)
    assert parse_response_head(reply[:end]).status == status
    while isinstance(event := client.next_event(), h11.Data):
        pass
    assert client.trailing_data[0] == b""


TARGET = FuzzTarget(
    check,
    seeds=(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
        b"0\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nConnection: close\r\n\r\nno go",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Accept: abc=\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
        b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n",
        b"HTTP/1.1 403 Forbidden\r\nX-Accepted-Stream-Protocol-Versions: v4.channel.k8s.io\r\n"
        b"X-Accepted-Stream-Protocol-Versions: channel.k8s.io\r\n\r\n",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 90\r\n\r\n"
        b'container "app" in pod "shop_web" is waiting to start: ContainerCreating',
        b'HTTP/1.1 500 x\r\n\r\nerror: container not found ("app")',
        b"HTTP/1.1 429 \r\n\r\nyou must specify at least 1 of stdin, stdout, stderr",
    ),
    tokens=(
        *(
            b"\r\n",
            b"\n",
            b"\t",
            b" ",
            b":",
            b",",
            b"\x7f",
            b"\xe9",
            b"\r\n\r\n",
            b"HTTP/1.1 ",
            b"HTTP/1.0 ",
            b" 204 ",
        ),
        *(
            b"Content-Length: 0\r\n",
            b"Content-Length: 7\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Connection: close\r\n",
        ),
        *(
            b"Transfer-Encoding: gzip, chunked\r\n",
            b"Upgrade: websocket\r\n",
            b"v5.channel.k8s.io",
            b'"',
            b'" in pod "',
        ),
        *(b" is terminated", b" not found", b"previous terminated container ", b" is not available", b"port"),
    ),
)
