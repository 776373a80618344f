# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kata_bridge.channels.stock.shim_http import (
    MAX_HEAD_BYTES,
    MAX_INTERIM_REPLIES,
    HttpReply,
    HttpReplyError,
    parse,
)


@pytest.mark.parametrize(
    ("data", "reply"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", HttpReply(200, b"hello")),
        (b"HTTP/1.1 200 OK\r\ncontent-length:  5 \r\n\r\nhello, and more", HttpReply(200, b"hello")),
        (b"HTTP/1.1 200 \r\n\r\nto the end", HttpReply(200, b"to the end")),
        (b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\nboom", HttpReply(500, b"boom")),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5\r\nhello\r\nA; x=y\r\n0123456789\r\n0\r\n\r\n",
            HttpReply(200, b"hello0123456789"),
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", HttpReply(200, b"")),
    ],
)
def test_reply_is_parsed(data: bytes, reply: HttpReply) -> None:
    assert parse(data) == reply


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhell",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        # Each of these was cut off the front of all the others, and 4 MiB of them are 160 000.
        b"HTTP/1.1 100 Continue\r\n\r\n" * (MAX_INTERIM_REPLIES + 1) + b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 150_000 + b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * MAX_HEAD_BYTES + b"\r\n\r\n",
    ],
)
def test_incomplete_reply_is_rejected(data: bytes) -> None:
    with pytest.raises(HttpReplyError):
        parse(data)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.data())
def test_cut_chunked_reply_is_rejected(chunks: list[bytes], data: st.DataObject) -> None:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"
    assert parse(whole) == HttpReply(200, b"".join(chunks))

    cut = data.draw(st.integers(0, len(whole) - len(b"\r\n\r\n") - 1))
    with pytest.raises(HttpReplyError):
        parse(whole[:cut])


@given(st.binary(max_size=200))
def test_random_bytes_are_rejected_or_parsed(data: bytes) -> None:
    for head in (b"", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        try:
            parse(head + data)
        except HttpReplyError:
            continue
