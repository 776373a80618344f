# SPDX-License-Identifier: Apache-2.0
import contextlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.kube.http1 import (
    FREE_CHUNKS,
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    MAX_INTERIM_REPLIES,
    MIN_CHUNK_BYTES,
    HttpError,
    Reply,
    field_lines,
    request,
)

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: a/b\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n"
ENDLESS = b"HTTP/1.0 200\r\n\r\nhello"
INFORMED = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + PLAIN


def read(parts: Sequence[bytes], *, is_ended: bool = False) -> tuple[Reply, bytes]:
    reply = Reply()
    body = b"".join(part for data in parts for part in reply.feed(data))
    if is_ended:
        reply.end()
    return reply, body


def test_a_request_is_written_in_full() -> None:
    fields = field_lines({"Host": "x:6443", "Accept": "application/json"})
    assert request("GET", "/api/v1/pods", {"labelSelector": "!a,b=c", "limit": "5"}, fields, None) == (
        b"GET /api/v1/pods?labelSelector=%21a%2Cb%3Dc&limit=5 HTTP/1.1\r\n"
        b"Host: x:6443\r\nAccept: application/json\r\n\r\n"
    )
    assert request("POST", "/x", {}, field_lines({"Host": "y"}), b"{}") == (
        b"POST /x HTTP/1.1\r\nHost: y\r\nContent-Length: 2\r\n\r\n{}"
    )


@pytest.mark.parametrize("name", ["limit", "a b", "\u00e4", "a&b"])
@pytest.mark.parametrize("value", ["5", "", "a=b&c", "!a,b", "\u00e4\u0661", "a b", "x\r\nY", "-"])
def test_parameters_are_quoted(name: str, value: str) -> None:
    params = {name: value, "watch": "1"}
    sent = request("GET", "/api", params, "", None).partition(b" HTTP")[0]
    assert sent == f"GET /api?{urlencode(params)}".encode()


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "/a\nb", "/a\0", "/\u00fc", "/\x7f", ""])
def test_no_target_has_more_than_one_request(target: str) -> None:
    with pytest.raises(ValueError, match="the target of a request is not printable ASCII without spaces"):
        request("GET", target, {}, field_lines({"Host": "x"}), None)


@pytest.mark.parametrize(("data", "is_reusable"), [(PLAIN, True), (CHUNKED, True), (INFORMED, True)])
@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_a_reply_does_not_depend_on_its_chunks(data: bytes, is_reusable: bool, cuts: list[int]) -> None:
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reply, body = read([data[a:b] for a, b in pairwise(bounds)])
    assert (body, reply.is_complete, reply.is_reusable) == (b"hello", True, is_reusable)
    assert reply.head is not None
    assert reply.head.status == 200
    assert reply.feed(b"") == []


def test_header_fields_have_lower_case_names() -> None:
    reply, _ = read(
        [b"HTTP/1.1 429 Too Many\r\nRetry-After:  7 \r\nX: a\r\nx: b\r\nContent-Length: 0\r\n\r\n"]
    )
    assert reply.head is not None
    assert dict(reply.head.fields) == {"retry-after": "7", "x": "a, b", "content-length": "0"}
    assert reply.is_complete


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    reply, body = read([ENDLESS[:20], ENDLESS[20:]], is_ended=True)
    assert (body, reply.is_complete, reply.is_reusable) == (b"hello", True, False)


@pytest.mark.parametrize("fields", [b"Connection: close\r\n", b"Connection: x, Close\r\n"])
def test_connection_close_forbids_reuse(fields: bytes) -> None:
    reply, _ = read([PLAIN.replace(b"Content-Type: a/b\r\n", fields)])
    assert (reply.is_complete, reply.is_reusable) == (True, False)
    reply, _ = read([PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0")])
    assert (reply.is_complete, reply.is_reusable) == (True, False)


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_replies_without_a_body_are_complete(status: bytes) -> None:
    reply, body = read([b"HTTP/1.1 " + status + b"\r\n\r\n"])
    assert (body, reply.is_complete, reply.is_reusable) == (b"", True, True)


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\x00\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
        # A reader that does not know that these have no body would read another one.
        b"HTTP/1.1 204 No Content\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length:\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        PLAIN + b"x",
        CHUNKED + b"x",
        CHUNKED.replace(b"3\r\n", b"x\r\n"),
        CHUNKED.replace(b"3\r\n", b"-3\r\n"),
        CHUNKED.replace(b"3\r\n", b"4\r\n"),
        CHUNKED.replace(b"3\r\n", b"2\r\n"),
        CHUNKED.replace(b"3\r\n", b"3\n"),
        CHUNKED.replace(b"0\r\n\r\n", b"0\r\nTrailer: x\r\n\r\n"),
        CHUNKED.replace(b"3\r\n", b"3;" + b"x" * 5000),
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * (MAX_HEAD_BYTES + 1),
        b"HTTP/1.1 204 OK\r\nx: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n",
    ],
)
def test_malformed_replies_are_refused(data: bytes) -> None:
    with pytest.raises(HttpError):
        read([data])
    with pytest.raises(HttpError):
        read([data[at : at + 1] for at in range(len(data))])


@pytest.mark.parametrize("data", [PLAIN, CHUNKED, INFORMED])
def test_a_truncated_reply_is_an_error(data: bytes) -> None:
    for end in range(len(data)):
        with pytest.raises(HttpError):
            read([data[:end]], is_ended=True)


@given(st.lists(st.binary(max_size=60)))
def test_any_bytes_are_read_or_refused(parts: list[bytes]) -> None:
    with contextlib.suppress(HttpError):
        read([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *parts], is_ended=True)


CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
# What takes time and brings no body, as often as a server likes.
EMPTY = {
    "early hints": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "chunks of a byte": (CHUNKED_HEAD, b"1\r\nx\r\n"),
    "chunks of a few bytes": (CHUNKED_HEAD, b"14\r\n" + b"x" * 20 + b"\r\n"),
    "chunk extensions": (CHUNKED_HEAD, b"20;" + b"e" * 4_000 + b"\r\n" + b"x" * 32 + b"\r\n"),
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("at_once", [1, 7, 500])
def test_what_brings_no_body_is_bounded(name: str, at_once: int) -> None:
    """Such a stream without an end took all of the time of whoever read it."""
    head, part = EMPTY[name]
    with pytest.raises(HttpError):
        read([head, *[part * at_once] * (20_000 // at_once)])


def test_as_many_interim_replies_as_allowed_are_skipped() -> None:
    _, body = read([b"HTTP/1.1 103 Early Hints\r\n\r\n" * MAX_INTERIM_REPLIES + PLAIN])
    assert body == b"hello"


def test_small_chunks_are_allowed_beside_body() -> None:
    """Events of a watch are a chunk each, for ten minutes."""
    size = MIN_CHUNK_BYTES
    event = b"%x\r\n%b\r\n" % (size, b"e" * size)
    _, body = read([CHUNKED_HEAD, *[event * 100] * 200])
    assert len(body) == 20_000 * size
    _, body = read([CHUNKED_HEAD, b"1\r\nx\r\n" * FREE_CHUNKS])
    assert len(body) == FREE_CHUNKS


@pytest.mark.parametrize(("size", "expected"), [(2 << 10, True), (64, False)])
def test_many_chunks_of_a_piece_are_noted(size: int, expected: bool) -> None:
    reply, _ = read([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"])
    assert reply.has_few_chunks
    reply.feed(b"%x\r\n%s\r\n" % (size, b"x" * size) * ((16 << 10) // size))
    assert reply.has_few_chunks == expected


def test_the_chunks_of_a_piece_come_as_one() -> None:
    reply = Reply()
    assert reply.feed(CHUNKED_HEAD + b"1\r\nx\r\n" * 100) == [b"x" * 100]


@pytest.mark.parametrize("name", [b"a", b"a%d"])
def test_fields_are_bounded_in_number(name: bytes) -> None:
    """Equal ones are joined: the time of that is the square of their number."""
    lines = [name % at if b"%" in name else name for at in range(MAX_FIELDS)]
    with pytest.raises(HttpError, match="lines"):
        read([b"HTTP/1.1 200 OK\r\n" + b"".join(line + b": x\r\n" for line in lines) + b"\r\n"])


class CountedBytes(bytearray):
    """How many bytes were searched."""

    searched = 0

    def find(self, sub: Any, start: Any = 0, end: Any = None) -> int:
        CountedBytes.searched += len(self) - start
        return super().find(sub, start, end)


def test_a_head_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was searched from its beginning for each of its pieces."""
    monkeypatch.setattr(CountedBytes, "searched", 0)
    reply = Reply()
    monkeypatch.setattr(reply, "_pending", CountedBytes())
    data = b"HTTP/1.1 200 OK\r\nx: " + b"x" * 10_000
    for at in range(len(data)):
        reply.feed(data[at : at + 1])
    assert CountedBytes.searched <= 4 * len(data)
