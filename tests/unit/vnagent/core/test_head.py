# SPDX-License-Identifier: Apache-2.0
"""The head parser against tables of RFC 9112: accepted heads, refused heads, the end of a head."""

import pytest

from tests.unit.vnagent.core.head_lines import HOST, LINE, head
from vnagent.core.head import (
    END_OF_HEAD,
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    MAX_LIST_MEMBERS,
    Fields,
    HeadError,
    RequestHead,
    ResponseHead,
    find_head,
    parse_request_head,
    parse_response_head,
)


def fields(*lines: tuple[bytes, bytes]) -> Fields:
    return Fields(lines, dict(lines))


# ---- accepted heads


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(
            head(LINE, HOST),
            RequestHead("GET", "/pods", fields((b"host", b"node-1:10550")), 0, False),
            id="least",
        ),
        pytest.param(
            head(b"POST /exec/web/shop/app?command=ls&output=1 HTTP/1.1", b"HOST:a", b"Content-Length: 0"),
            RequestHead(
                "POST",
                "/exec/web/shop/app?command=ls&output=1",
                fields((b"host", b"a"), (b"content-length", b"0")),
                0,
                False,
            ),
            id="names-without-case-blanks-optional",
        ),
        pytest.param(
            head(b"POST /x HTTP/1.1", b"Host: \t a \t ", b"Content-Length: 12", b"X-Empty:"),
            RequestHead(
                "POST",
                "/x",
                fields((b"host", b"a"), (b"content-length", b"12"), (b"x-empty", b"")),
                12,
                False,
            ),
            id="optional-blanks-go-empty-value-stays",
        ),
        pytest.param(
            head(LINE, HOST, b"Transfer-Encoding: xchunked"),
            RequestHead(
                "GET",
                "/pods",
                fields((b"host", b"node-1:10550"), (b"transfer-encoding", b"xchunked")),
                0,
                True,
            ),
            id="any-transfer-coding-is-seen",
        ),
        pytest.param(
            head(
                LINE, HOST, b"X-Stream-Protocol-Version: v4.channel.k8s.io", b"x-stream-protocol-version: v3"
            ),
            RequestHead(
                "GET",
                "/pods",
                Fields(
                    (
                        (b"host", b"node-1:10550"),
                        (b"x-stream-protocol-version", b"v4.channel.k8s.io"),
                        (b"x-stream-protocol-version", b"v3"),
                    ),
                    {b"host": b"node-1:10550", b"x-stream-protocol-version": b"v3"},
                ),
                0,
                False,
            ),
            id="several-lines-of-one-field",
        ),
        pytest.param(
            head(b"M-SEARCH * HTTP/1.1", b"Host: a", b"X: caf\xc3\xa9"),
            RequestHead("M-SEARCH", "*", fields((b"host", b"a"), (b"x", b"caf\xc3\xa9")), 0, False),
            id="any-token-any-target-obs-text",
        ),
    ],
)
def test_valid_request_heads(raw: bytes, expected: RequestHead) -> None:
    assert parse_request_head(raw)._replace(block=b"") == expected


@pytest.mark.parametrize(
    ("raw", "status", "reason"),
    [
        # The request line (RFC 9112, 3).
        (b"", 400, "malformed-request-line"),
        (head(b"GET /pods", HOST), 400, "malformed-request-line"),
        (head(b"GET /pods HTTP/1.0", HOST), 400, "malformed-request-line"),
        (head(b"GET /pods HTTP/2.0", HOST), 400, "malformed-request-line"),
        (head(b"GET /pods http/1.1", HOST), 400, "malformed-request-line"),
        (head(b"GET /pods HTTP/1.1 ", HOST), 400, "malformed-request-line"),
        (head(b" GET /pods HTTP/1.1", HOST), 400, "malformed-request-line"),
        (head(b"GET  /pods HTTP/1.1", HOST), 400, "malformed-request-line"),
        (head(b"GET /pods  HTTP/1.1", HOST), 400, "malformed-request-line"),
        (head(b"GET\t/pods HTTP/1.1", HOST), 400, "malformed-request-line"),
        (head(b"GET /po ds HTTP/1.1", HOST), 400, "malformed-request-line"),
        (head(b"GET  HTTP/1.1", HOST), 400, "malformed-request-line"),
        (head(b"G(T /pods HTTP/1.1", HOST), 400, "malformed-request-line"),
        (head(b"GET /p\xc3\xb6ds HTTP/1.1", HOST), 400, "malformed-request-line"),
        (head(b"GET /pods\x00 HTTP/1.1", HOST), 400, "malformed-request-line"),
        (head(b"GET /pods\x7f HTTP/1.1", HOST), 400, "malformed-request-line"),
        (head(b"GET /pods\r HTTP/1.1", HOST), 400, "malformed-request-line"),
        (head(b"GET /pods HTTP/1.1\nHost: a"), 400, "malformed-request-line"),
        (head(b"", LINE, HOST), 400, "malformed-request-line"),
        (b"PRI * HTTP/2.0", 400, "malformed-request-line"),
        (b"\x16\x03\x01\x00\xf4", 400, "malformed-request-line"),
        # Field lines (RFC 9112, 5; RFC 9110, 5.5).
        (head(LINE, HOST, b" folded"), 400, "malformed-field"),
        (head(LINE, b"Host: a", b"\tfolded: b"), 400, "malformed-field"),
        (head(LINE, b"Host : a"), 400, "malformed-field"),
        (head(LINE, b"Ho st: a"), 400, "malformed-field"),
        (head(LINE, HOST, b": a"), 400, "malformed-field"),
        (head(LINE, HOST, b"no-colon"), 400, "malformed-field"),
        (head(LINE, HOST, b""), 400, "malformed-field"),
        (head(LINE, HOST, b"X: a\x00b"), 400, "malformed-field"),
        (head(LINE, HOST, b"X: a\x1bb"), 400, "malformed-field"),
        (head(LINE, HOST, b"X: a\x7fb"), 400, "malformed-field"),
        (head(LINE, HOST, b"X: a\rb"), 400, "malformed-field"),
        (head(LINE, HOST, b"X: a\nHost: b"), 400, "malformed-field"),
        (head(LINE, HOST, b"X\xe9: a"), 400, "malformed-field"),
        # What two readers could read in two ways.
        (LINE, 400, "no-host"),
        (head(LINE, b"Host:"), 400, "no-host"),
        (head(LINE, b"Host: \t"), 400, "no-host"),
        (head(LINE, HOST, HOST), 400, "repeated-field"),
        (head(LINE, HOST, b"hOsT: other"), 400, "repeated-field"),
        (head(LINE, HOST, b"Content-Length: 0", b"Content-Length: 0"), 400, "repeated-field"),
        (head(LINE, HOST, b"Transfer-Encoding: chunked", b"transfer-encoding: x"), 400, "repeated-field"),
        (head(LINE, HOST, b"Upgrade: websocket", b"Upgrade: SPDY/3.1"), 400, "repeated-field"),
        (head(LINE, HOST, b"Expect: a", b"Expect: b"), 400, "repeated-field"),
        (head(LINE, HOST, b"Content-Type: a", b"Content-Type: b"), 400, "repeated-field"),
        (head(LINE, HOST, b"Content-Encoding: a", b"Content-Encoding: b"), 400, "repeated-field"),
        (head(LINE, HOST, b"Sec-WebSocket-Key: a", b"Sec-WebSocket-Key: b"), 400, "repeated-field"),
        (head(LINE, HOST, b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Version: 8"), 400, "repeated-field"),
        (head(LINE, HOST, b"Sec-WebSocket-Accept: a", b"Sec-WebSocket-Accept: b"), 400, "repeated-field"),
        (head(LINE, HOST, b"Content-Length:"), 400, "malformed-length"),
        (head(LINE, HOST, b"Content-Length: +1"), 400, "malformed-length"),
        (head(LINE, HOST, b"Content-Length: -1"), 400, "malformed-length"),
        (head(LINE, HOST, b"Content-Length: 1_0"), 400, "malformed-length"),
        (head(LINE, HOST, b"Content-Length: 0x10"), 400, "malformed-length"),
        (head(LINE, HOST, b"Content-Length: 1, 1"), 400, "malformed-length"),
        (head(LINE, HOST, b"Content-Length: \xb2"), 400, "malformed-length"),
        (head(LINE, HOST, b"Content-Length: 1000000000000000"), 400, "malformed-length"),
        # Parsed and not supported.
        (head(LINE, HOST, b"Expect: 100-continue"), 417, "expectation"),
        (head(LINE, HOST, *[b"X: a"] * MAX_FIELDS), 431, "too-many-fields"),
        # Each member costs a step where the list is read: 180 KB of commas cost 130 ms.
        *(
            (head(LINE, HOST, name + b": a" + b"," * MAX_LIST_MEMBERS), 431, "too-many-list-members")
            for name in (b"Connection", b"Sec-WebSocket-Protocol", b"X-Stream-Protocol-Version")
        ),
        (head(LINE, HOST, *[b"Connection: a" + b"," * 2] * 51), 431, "too-many-list-members"),
    ],
)
def test_refused_request_heads(raw: bytes, status: int, reason: str) -> None:
    with pytest.raises(HeadError) as caught:
        parse_request_head(raw)
    assert (caught.value.status, caught.value.reason) == (status, reason)


def test_as_many_list_members_as_are_allowed() -> None:
    found = parse_request_head(head(LINE, HOST, b"Connection: close" + b", a" * (MAX_LIST_MEMBERS - 1)))
    assert found.wants_close


def test_as_many_fields_as_are_allowed() -> None:
    found = parse_request_head(head(LINE, HOST, *[b"X: a"] * (MAX_FIELDS - 1)))
    assert len(found.fields.lines) == MAX_FIELDS


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"HTTP/1.1 200 OK", ResponseHead(200, fields(), None, False)),
        (b"HTTP/1.1 200", ResponseHead(200, fields(), None, False)),
        (b"HTTP/1.1 599 ", ResponseHead(599, fields(), None, False)),
        (
            head(b"HTTP/1.1 404 Not Found", b"Content-Length: 19"),
            ResponseHead(404, fields((b"content-length", b"19")), 19, False),
        ),
        (
            head(b"HTTP/1.1 200 OK", b"Transfer-Encoding: Chunked"),
            ResponseHead(200, fields((b"transfer-encoding", b"Chunked")), None, True),
        ),
        (
            head(b"HTTP/1.1 200 OK", b"Connection: keep-alive, Close"),
            ResponseHead(200, fields((b"connection", b"keep-alive, Close")), None, False, is_last=True),
        ),
        (
            head(b"HTTP/1.1 200 OK", b"Connection: closed"),
            ResponseHead(200, fields((b"connection", b"closed")), None, False),
        ),
    ],
)
def test_valid_response_heads(raw: bytes, expected: ResponseHead) -> None:
    assert parse_response_head(raw) == expected


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "malformed-status-line"),
        (b"HTTP/1.0 200 OK", "malformed-status-line"),
        (b"HTTP/1.1 2000 OK", "malformed-status-line"),
        (b"HTTP/1.1 20 OK", "malformed-status-line"),
        (b"HTTP/1.1 600 OK", "malformed-status-line"),
        (b"HTTP/1.1 099 OK", "malformed-status-line"),
        (b"HTTP/1.1 +20 OK", "malformed-status-line"),
        (b"HTTP/1.1  200 OK", "malformed-status-line"),
        (b"HTTP/1.1 200 O\x00K", "malformed-status-line"),
        (b"ICY 200 OK", "malformed-status-line"),
        (head(b"HTTP/1.1 200 OK", b"X : a"), "malformed-field"),
        (head(b"HTTP/1.1 200 OK", b" folded"), "malformed-field"),
        (head(b"HTTP/1.1 200 OK", b"Content-Length: 1", b"Content-Length: 2"), "repeated-field"),
        (head(b"HTTP/1.1 200 OK", b"Content-Length: 1", b"Content-Length: 1"), "repeated-field"),
        (head(b"HTTP/1.1 200 OK", b"Content-Length: -1"), "malformed-length"),
        (head(b"HTTP/1.1 200 OK", *[b"X: a"] * (MAX_FIELDS + 1)), "too-many-fields"),
        # RFC 9112, 6.3: both, or a coding that is not exactly chunked.
        (head(b"HTTP/1.1 200 OK", b"Content-Length: 1", b"Transfer-Encoding: chunked"), "ambiguous-framing"),
        (head(b"HTTP/1.1 200 OK", b"Transfer-Encoding: gzip, chunked"), "ambiguous-framing"),
        (head(b"HTTP/1.1 200 OK", b"Transfer-Encoding: xchunked"), "ambiguous-framing"),
        (head(b"HTTP/1.1 200 OK", b"Transfer-Encoding:"), "ambiguous-framing"),
    ],
)
def test_refused_response_heads(raw: bytes, reason: str) -> None:
    with pytest.raises(HeadError) as caught:
        parse_response_head(raw)
    assert (caught.value.status, caught.value.reason) == (502, reason)


def test_has_token_matches_whole_tokens() -> None:
    found = parse_request_head(head(LINE, HOST, b"Connection: keep-alive ,\tUpgrade", b"connection: close"))
    assert [
        found.fields.has_token(b"connection", token)
        for token in (b"keep-alive", b"upgrade", b"close", b"up", b"notupgrade", b"")
    ] == [True, True, True, False, False, False]


# ---- where a head ends


@pytest.mark.parametrize(
    ("buffer", "expected"),
    [
        (b"", -1),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r", -1),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 23),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n\r\n", 23),
        (b"\r", -1),
        (b"a" * MAX_HEAD_BYTES, -1),
        (b"a" * MAX_HEAD_BYTES + END_OF_HEAD[:3], -1),
        (b"a" * MAX_HEAD_BYTES + END_OF_HEAD, MAX_HEAD_BYTES),
    ],
)
def test_find_head(buffer: bytes, expected: int) -> None:
    assert find_head(buffer) == expected
    assert find_head(bytearray(buffer)) == expected


@pytest.mark.parametrize(
    ("buffer", "status", "reason"),
    [
        (b"GET / HTTP/1.1\n", 400, "malformed-head"),
        (b"GET / HTTP/1.1\rX", 400, "malformed-head"),
        (b"GET / HTTP/1.1\r\r\n", 400, "malformed-head"),
        (b"\r\nGET / HTTP/1.1\r\n", 400, "malformed-head"),
        (b"GET /\x00", 400, "malformed-head"),
        (b"GET /\x0b", 400, "malformed-head"),
        (b"GET /\x7f", 400, "malformed-head"),
        (b"\x16\x03\x01", 400, "malformed-head"),
        (b"a" * (MAX_HEAD_BYTES + 4), 431, "head-too-large"),
        (b"a" * (MAX_HEAD_BYTES + 1) + END_OF_HEAD, 431, "head-too-large"),
    ],
)
def test_hopeless_beginnings_are_refused_early(buffer: bytes, status: int, reason: str) -> None:
    with pytest.raises(HeadError) as caught:
        find_head(buffer)
    assert (caught.value.status, caught.value.reason) == (status, reason)
