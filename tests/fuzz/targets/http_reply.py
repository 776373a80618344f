# SPDX-License-Identifier: Apache-2.0
"""An API server's and a shim's replies: divided anywhere, the same reply, and h11 reads the same one."""

import re

import h11

from daemonkit.kube.http1 import MAX_HEAD_BYTES, HttpError, Reply
from kata_bridge.channels.stock import shim_http
from tests.fuzz.invariants import only, same_however_divided
from tests.fuzz.target import FuzzTarget

_Read = tuple[int, dict[str, str], bytes, bool]


def _read(pieces: list[bytes]) -> _Read | None:
    """Status, fields, body and whether the connection may go on; None if the reply is refused or cut off."""
    reply = Reply()
    body = b""
    try:
        for piece in pieces:
            body += b"".join(reply.feed(piece))
        reply.end()
    except HttpError:
        return None
    assert reply.head is not None
    return reply.head.status, dict(reply.head.fields), body, reply.is_reusable


def check(data: bytes) -> None:
    found = same_however_divided(data, _read)
    if found is not None:
        status, fields, body, is_reusable = found
        assert sum(len(name) + len(value) for name, value in fields.items()) <= 2 * MAX_HEAD_BYTES
        theirs = _read_by_h11(data, has_old=b"HTTP/1.0" in data)
        if theirs is None:
            # Blanks before a chunk's extension are of the grammar (RFC 9112, 7.1.1), and h11 refuses them.
            assert re.search(rb"[0-9A-Fa-f][ \t]+(;|\r\n)", data), f"h11 refuses {data!r}"
            return
        assert (status, body) == theirs[:2]
        assert theirs[2].keys() == fields.keys()
        assert not is_reusable or not theirs[3]
    _check_shim(data)


def _check_shim(data: bytes) -> None:
    found = only(shim_http.HttpReplyError, shim_http.parse, data)
    assert found is None or len(found.body) <= len(data)


def _read_by_h11(data: bytes, *, has_old: bool) -> tuple[int, bytes, dict[str, str], bool] | None:
    """Status, body, fields and whether the connection ends with the reply."""
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    client.send(h11.EndOfMessage())
    status, body, fields = 0, b"", dict[str, str]()
    try:
        client.receive_data(data)
        client.receive_data(b"")
        while not isinstance(event := client.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                status, fields = (
                    event.status_code,
                    {name.decode(): value.decode("latin-1") for name, value in event.headers},
                )
            elif isinstance(event, h11.Data):
                body += event.data
    except h11.RemoteProtocolError:
        return None
    return status, body, fields, client.their_state is h11.MUST_CLOSE and not has_old


TARGET = FuzzTarget(
    check,
    seeds=(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0a;x=y\r\n"
        b"0123456789\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nA: b\r\na: c\r\n\r\nuntil the end",
        b"HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
    ),
    tokens=(
        *(
            b"\r\n",
            b"\n",
            b"\r",
            b" ",
            b"\t",
            b":",
            b",",
            b";",
            b"\x00",
            b"\xe9",
            b"\r\n\r\n",
            b"0\r\n\r\n",
            b"HTTP/1.1 ",
        ),
        *(
            b"Content-Length: 5\r\n",
            b"Content-Length: 05\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"HTTP/1.0 200 \r\n",
        ),
        *(
            b"Connection: close, x\r\n",
            b"Connection: keep-alive\r\n",
            b"100 ",
            b"101 ",
            b"ffffffff\r\n",
            b"a: b\r\n",
        ),
        *(b"Transfer-Encoding: Chunked\r\n", b"\xb2", b"+5", b"5, 5", b"5\r\nhello\r\n"),
    ),
)
