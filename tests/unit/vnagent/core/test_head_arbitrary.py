# SPDX-License-Identifier: Apache-2.0
"""The head parser against h11, and against arbitrary bytes and splits."""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.vnagent.core.head_lines import HOST, LINE, head
from vnagent.core.head import (
    END_OF_HEAD,
    MAX_HEAD_BYTES,
    HeadError,
    RequestHead,
    find_head,
    parse_request_head,
    parse_response_head,
)

T = TypeVar("T")


def read_or_refused(parse: Callable[[bytes], T], raw: bytes) -> T | HeadError:
    """No other exception than HeadError, whatever the bytes."""
    try:
        return parse(raw)
    except HeadError as error:
        return error


_PIECES = st.sampled_from(
    [
        *(b"GET", b"POST", b" ", b"/", b"/pods?a=b", b" HTTP/1.1", b" HTTP/1.0", b"HTTP/1.1 200 OK"),
        *(b"\r\n", b"\r", b"\n", b"\t", b"\x00", b"\x7f", b"\xe9", b":", b"a", b","),
        *(b"Host: a", b"host: b", b"Host:", b"Host : a", b"Content-Length: 5", b"content-length: 5"),
        *(b"Content-Length: +5", b"Transfer-Encoding: chunked", b"transfer-encoding: gzip"),
        *(b"Connection: Upgrade, close", b"Upgrade: SPDY/3.1", b"Expect: 100-continue", b"X-Y: z z"),
    ]
)
_BYTES = st.lists(_PIECES | st.binary(max_size=3), max_size=20).map(b"".join)
_LINES = st.lists(_PIECES | _BYTES, max_size=8)
_REQUESTS = st.one_of(_BYTES, _LINES.map(lambda lines: head(LINE, HOST, *lines)), st.binary())
_RESPONSES = st.one_of(_BYTES, _LINES.map(lambda lines: head(b"HTTP/1.1 200 OK", *lines)), st.binary())


@given(_REQUESTS)
@example(head(LINE, HOST, b"Content-Length: 5", b"Transfer-Encoding: chunked"))
def test_accepted_requests_mean_the_same_to_h11(raw: bytes) -> None:
    if END_OF_HEAD in raw:
        return  # `find_head` passes the bytes before the first one
    ours = read_or_refused(parse_request_head, raw)
    if isinstance(ours, HeadError):
        # Any bytes at all: malformed, an expectation, too large. Which one is the table's, not this one's.
        assert ours.status in {400, 417, 431}
        return
    if ours.has_transfer_coding or ours.content_length:
        return  # refused one step later: no endpoint takes a body
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * MAX_HEAD_BYTES)
    server.receive_data(raw + END_OF_HEAD)
    theirs = server.next_event()
    assert isinstance(theirs, h11.Request)
    assert (theirs.method, theirs.target, theirs.http_version) == (
        ours.method.encode(),
        ours.target.encode(),
        b"1.1",
    )
    assert tuple(theirs.headers) == ours.fields.lines
    assert isinstance(server.next_event(), h11.EndOfMessage)
    assert server.trailing_data == (b"", False)


@given(st.lists(_REQUESTS, min_size=2, max_size=4), st.booleans())
def test_the_previous_head_changes_no_result(raws: list[bytes], is_same_block: bool) -> None:
    """Equal fields are not parsed again, without a difference in the result."""
    if is_same_block:
        block = raws[0].partition(b"\r\n")[2]
        raws = [raw.partition(b"\r\n")[0] + b"\r\n" + block for raw in raws]
    previous = None
    for raw in raws:
        alone = read_or_refused(parse_request_head, raw)
        behind = read_or_refused(partial(parse_request_head, previous=previous), raw)
        if isinstance(alone, HeadError):
            assert isinstance(behind, HeadError)
            assert (behind.status, behind.reason) == (alone.status, alone.reason)
            return
        assert behind == alone
        assert isinstance(behind, RequestHead)
        previous = behind


@given(_RESPONSES)
def test_accepted_responses_mean_the_same_to_h11(raw: bytes) -> None:
    if END_OF_HEAD in raw:
        return
    ours = read_or_refused(parse_response_head, raw)
    if isinstance(ours, HeadError):
        assert ours.status == 502
        return
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=2 * MAX_HEAD_BYTES)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    client.send(h11.EndOfMessage())
    client.receive_data(raw + END_OF_HEAD)
    theirs = client.next_event()
    assert isinstance(theirs, h11.Response | h11.InformationalResponse)
    assert theirs.status_code == ours.status
    assert tuple(theirs.headers) == ours.fields.lines
    if ours.is_chunked or (ours.content_length and ours.status not in {101, 204, 304}):
        assert client.next_event() is h11.NEED_DATA


@given(_REQUESTS, st.lists(st.integers(1, 40), max_size=30))
@example(b"a" * 20 + b"\r\n\r\n", [1] * 30)
def test_splits_change_nothing(raw: bytes, sizes: list[int]) -> None:
    data = raw + END_OF_HEAD
    buffer = bytearray()
    cuts = [*sizes, len(data)]
    found: bytes | HeadError | None = None
    scanned = 0
    while found is None:
        piece = data[len(buffer) : len(buffer) + cuts.pop(0)]
        buffer += piece
        try:
            end = find_head(buffer, scanned)
        except HeadError as error:
            found = error
        else:
            scanned = len(buffer)
            found = bytes(buffer[:end]) if end >= 0 else None
    whole = data[: data.find(END_OF_HEAD)]
    if isinstance(found, bytes):
        assert found == whole
        return
    # A head that is refused before its end would be refused with its end.
    with pytest.raises(HeadError) as caught:
        parse_request_head(whole)
    assert (found.status, caught.value.status) == (400, 400)


def test_a_head_in_tiny_pieces_is_scanned_once() -> None:
    """One tenant that sends one byte in a record would block the loop for everybody."""
    data = head(LINE, HOST, b"X: " + b"a" * (MAX_HEAD_BYTES - 100))
    buffer = bytearray()
    started = time.process_time()
    for at in range(0, len(data), 2):
        scanned = len(buffer)
        buffer += data[at : at + 2]
        assert find_head(buffer, scanned) == -1
    # 0.1 s where it is linear; 160 s where each piece is a new search.
    assert time.process_time() - started < 5.0
