# SPDX-License-Identifier: Apache-2.0
"""A page is fetched as a whole or not at all; a returned connection is not aborted."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.tasks import Tasks
from tests.unit.vnagent.fake_upstream_pool import FakeUpstreamPool
from vnagent.core.framing import ChunkedBody, Unchunker
from vnagent.core.head import ResponseHead, parse_response_head
from vnagent.upstream import page_fetch as fetching
from vnagent.upstream.page_fetch import FETCH_S, FetchError, fetch_page, unchunk


def fetch(pool: FakeUpstreamPool, path: str) -> "asyncio.Task[bytes]":
    return Tasks("test").spawn(fetch_page(pool.as_pool, path), "fetch")


def head(status: int, *lines: str) -> ResponseHead:
    return parse_response_head("\r\n".join([f"HTTP/1.1 {status} X", *lines]).encode())


@pytest.mark.asyncio
async def test_a_page_of_known_length() -> None:
    pool = FakeUpstreamPool(takes_s=None)
    task = fetch(pool, "/pods")
    connection = await pool.next_connection()
    exchange = connection.exchange
    exchange.on_response(head(200, "Content-Length: 6"))
    exchange.on_body(memoryview(b"abc"))
    exchange.on_batch_end()
    exchange.on_body(memoryview(b"def"))
    exchange.on_response_end()
    assert await task == b"abcdef"
    assert not connection.is_aborted
    assert connection.request == (
        b"GET /pods HTTP/1.1\r\nHost: 127.0.0.1:10250\r\nUser-Agent: vn-agent\r\n"
        b"Accept-Encoding: identity\r\n\r\n"
    )


@pytest.mark.asyncio
async def test_a_chunked_page() -> None:
    pool = FakeUpstreamPool(takes_s=None)
    task = fetch(pool, "/metrics/cadvisor")
    connection = await pool.next_connection()
    exchange = connection.exchange
    exchange.on_response(head(200, "Transfer-Encoding: chunked"))
    for piece in (b"3\r\nab", b"c\r\n00", b"2\r\nde\r\n0\r\n"):
        exchange.on_body(memoryview(piece))
    exchange.on_response_end()
    assert await task == b"abcde"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (head(401), "kubelet-refused"),
        (head(403), "kubelet-refused"),
        (head(404), "kubelet-failed"),
        (head(500), "kubelet-failed"),
        (head(204), "kubelet-malformed"),
        (head(302, "Location: /x"), "kubelet-malformed"),
        (head(200, "Content-Encoding: gzip"), "kubelet-malformed"),
    ],
)
async def test_responses_that_are_no_page(response: ResponseHead, reason: str) -> None:
    pool = FakeUpstreamPool(takes_s=None)
    task = fetch(pool, "/pods")
    connection = await pool.next_connection()
    connection.exchange.on_response(response)
    with pytest.raises(FetchError, match=reason):
        await task
    assert connection.is_aborted


@pytest.mark.asyncio
async def test_a_page_above_the_size_limit_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MAX_PAGE_BYTES", 10)
    pool = FakeUpstreamPool(takes_s=None)
    task = fetch(pool, "/pods")
    connection = await pool.next_connection()
    exchange = connection.exchange
    exchange.on_response(head(200))
    exchange.on_body(memoryview(b"x" * 10))
    assert not connection.is_aborted
    exchange.on_body(memoryview(b"x"))
    with pytest.raises(FetchError, match="kubelet-too-large"):
        await task
    assert connection.is_aborted


@pytest.mark.asyncio
async def test_a_connection_failure_has_its_reason() -> None:
    pool = FakeUpstreamPool(takes_s=None)
    task = fetch(pool, "/pods")
    connection = await pool.next_connection()
    exchange = connection.exchange
    exchange.on_response(head(200, "Content-Length: 6"))
    exchange.on_failure("kubelet-broke-off")
    with pytest.raises(FetchError, match="kubelet-broke-off"):
        await task


@pytest.mark.asyncio
async def test_a_trickling_kubelet_times_out() -> None:
    """Each byte in time, the page not: the deadline is for the whole."""
    pool = FakeUpstreamPool(takes_s=None)
    task = fetch(pool, "/pods")
    connection = await pool.next_connection()
    exchange = connection.exchange
    exchange.on_response(head(200))
    while not task.done():
        exchange.on_body(memoryview(b"x"))
        await asyncio.sleep(1)
    with pytest.raises(FetchError, match="kubelet-timeout"):
        await task
    assert connection.is_aborted
    assert asyncio.get_running_loop().time() <= FETCH_S + 1


@pytest.mark.asyncio
async def test_cancelling_closes_the_connection() -> None:
    pool = FakeUpstreamPool(takes_s=None)
    task = fetch(pool, "/pods")
    connection = await pool.next_connection()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert connection.is_aborted


@pytest.mark.asyncio
async def test_cancelling_after_the_end_keeps_the_connection() -> None:
    """It went back to the pool with the end of the page, and may be carrying another tenant's log."""
    pool = FakeUpstreamPool(takes_s=None)
    task = fetch(pool, "/pods")
    connection = await pool.next_connection()
    exchange = connection.exchange
    await asyncio.sleep(0)
    exchange.on_response(head(200, "Content-Length: 0"))
    exchange.on_response_end()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not connection.is_aborted


@given(st.lists(st.binary(min_size=1), max_size=8), st.integers(1, 50))
def test_unchunking_joins_the_chunks(chunks: list[bytes], size: int) -> None:
    data = b"".join(b"%X\r\n%s\r\n" % (len(each), each) for each in chunks) + b"0\r\nX: y\r\n\r\n"
    body, taken = ChunkedBody(), b""
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        taken += piece[: body.feed(memoryview(piece)).take]
    assert unchunk(taken) == b"".join(chunks)
    unchunker, found = Unchunker(), b""
    for at in range(0, len(taken), size):
        found += b"".join(unchunker.feed(memoryview(taken)[at : at + size]))
    assert found == b"".join(chunks)
