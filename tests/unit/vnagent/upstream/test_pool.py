# SPDX-License-Identifier: Apache-2.0
"""Connections to the kubelet as transcripts: their bytes, the handler's calls, their state at the end.

Real TLS is in the functional ring; sessions are in `test_pool_resumption`.
"""

import asyncio
import ssl
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.vnagent.upstream.fake_transports import (
    ADDRESS,
    GET,
    OK,
    POST,
    FakeTransport,
    PoolOverFakeTransports,
    ResponseRecorder,
    feed,
    start_request,
)
from vnagent.transport.handler import NO_USAGE, EndReason
from vnagent.transport.poller import SocketPoller
from vnagent.upstream.pool import DIAL_S, IDLE_S, LEAVE_S, MAX_IDLE

pytestmark = pytest.mark.asyncio


async def test_the_request_is_sent_after_the_handshake(pool: PoolOverFakeTransports) -> None:
    connection = pool.acquire(ResponseRecorder(), GET, timeout_s=5, is_upgrade=False)
    (transport,) = pool.dialled
    before = transport.written
    connection.on_handshake()
    assert (before, transport.written, transport.deadline) == (b"", GET, pool.poller.now + 5)


async def test_a_connection_is_reused_after_a_complete_response(pool: PoolOverFakeTransports) -> None:
    first, connection, transport = start_request(pool)
    feed(connection, OK)
    assert (first.events, first.body) == (["200", "end"], b"ok")
    idle_until = transport.deadline
    second, again, _ = start_request(pool, timeout_s=None)
    assert again is connection
    assert (idle_until, transport.deadline) == (pool.poller.now + IDLE_S, None)
    feed(again, OK[:20], OK[20:39], OK[39:])
    assert (second.events, second.body) == (["200", "end"], b"ok")
    assert (len(pool.dialled), pool.open_count) == (1, 1)


@pytest.mark.parametrize(
    ("reply_bytes", "events", "body"),
    [
        # Surplus would be the next tenant's response.
        (OK + b"x", ["200", "end"], b"ok"),
        (OK + OK, ["200", "end"], b"ok"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nx", ["200", "end"], b""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nx", ["200", "end"], b"0\r\n"),
        # The kubelet announces that it closes.
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", ["200", "end"], b"ok"),
        # Malformed heads and bodies.
        (b"HTTP/1.0 200 OK\r\n\r\n", ["kubelet-malformed"], b""),
        (b"SSH-2.0-OpenSSH\r\n", [], b""),
        (b"SSH-2.0-OpenSSH\n", ["kubelet-malformed"], b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n", ["kubelet-malformed"], b""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", ["200", "kubelet-malformed"], b""),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            ["kubelet-malformed"],
            b"",
        ),
        # An upgrade that the request did not ask for.
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", ["101"], b""),
    ],
)
async def test_connections_dropped_after_their_response(
    pool: PoolOverFakeTransports, reply_bytes: bytes, events: list[str], body: bytes
) -> None:
    response, connection, transport = start_request(pool)
    feed(connection, reply_bytes)
    if not events:  # it is not over: more could come
        connection.on_deadline()
        events = ["kubelet-timeout"]
    assert (response.events, response.body) == (events, body)
    assert not transport.is_open
    assert pool.open_count == 0
    _, another, _ = start_request(pool)
    assert another is not connection


async def test_a_body_until_the_end_of_the_connection(pool: PoolOverFakeTransports) -> None:
    response, connection, transport = start_request(pool)
    feed(connection, b"HTTP/1.1 200 OK\r\n\r\nab", b"c")
    connection.on_end(EndReason.CLOSED)
    assert (response.events, response.body) == (["200", "end"], b"abc")
    assert (transport.is_open, pool.open_count) == (False, 0)


@pytest.mark.parametrize(
    ("reported", "reason", "events"),
    [
        (b"", EndReason.CLOSED, ["kubelet-broke-off"]),
        (b"HTTP/1.1 200", EndReason.CLOSED, ["kubelet-broke-off"]),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", EndReason.CLOSED, ["200", "kubelet-broke-off"]),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", EndReason.RESET, ["200", "kubelet-broke-off"]),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            EndReason.CLOSED,
            ["200", "kubelet-broke-off"],
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nab", EndReason.RESET, ["200", "kubelet-broke-off"]),
    ],
)
async def test_a_truncated_response_fails(
    pool: PoolOverFakeTransports, reported: bytes, reason: EndReason, events: list[str]
) -> None:
    response, connection, transport = start_request(pool)
    if reported:
        feed(connection, reported)
    connection.on_end(reason)
    assert response.events == events
    assert (transport.is_open, pool.open_count) == (False, 0)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (EndReason.UNTRUSTED, "kubelet-untrusted"),
        (EndReason.CLOSED, "kubelet-unreachable"),
        (EndReason.RESET, "kubelet-unreachable"),
    ],
)
async def test_failures_before_the_handshake(
    pool: PoolOverFakeTransports, reason: EndReason, expected: str
) -> None:
    response = ResponseRecorder()
    connection = pool.acquire(response, GET, timeout_s=5, is_upgrade=False)
    connection.on_end(reason)
    assert response.events == [expected]
    late = ResponseRecorder()
    pool.acquire(late, GET, timeout_s=5, is_upgrade=False).on_deadline()
    assert late.events == ["kubelet-unreachable"]
    assert pool.open_count == 0


# ---- a pooled connection that was closed just then (RFC 9112, 9.3.1)


async def test_a_request_on_a_closed_idle_connection_is_resent_once(pool: PoolOverFakeTransports) -> None:
    _, connection, _ = start_request(pool)
    feed(connection, OK)
    response, again, _ = start_request(pool)
    again.on_end(EndReason.CLOSED)
    assert response.events == []
    again.on_handshake()
    assert pool.dialled[-1].written == GET
    again.on_end(EndReason.CLOSED)
    assert response.events == ["kubelet-broke-off"]
    assert len(pool.dialled) == 2


async def test_an_upgrade_is_never_resent(pool: PoolOverFakeTransports) -> None:
    """A command must not run twice."""
    _, connection, _ = start_request(pool)
    feed(connection, OK)
    response, again, transport = start_request(pool, POST, is_upgrade=True)
    assert (again, transport.written) == (connection, GET + POST)
    again.on_end(EndReason.CLOSED)
    assert response.events == ["kubelet-broke-off"]


async def test_requests_do_not_take_the_spare_connection(pool: PoolOverFakeTransports) -> None:
    """Where requests took it, each exec waited for a handshake while another tenant read logs."""
    pool.dial_spare()
    (spare,) = pool.dialled
    _, connection, _ = start_request(pool)
    assert cast(object, connection.transport) is not spare
    feed(connection, OK)
    stream = pool.acquire(ResponseRecorder(), POST, timeout_s=5, is_upgrade=True)
    assert cast(object, stream.transport) is spare
    await asyncio.sleep(0)
    assert len(pool.dialled) == 3  # for the stream after it


async def test_a_stream_without_a_spare_takes_an_idle_connection(pool: PoolOverFakeTransports) -> None:
    _, idle, _ = start_request(pool)
    feed(idle, OK)
    assert pool.acquire(ResponseRecorder(), POST, timeout_s=5, is_upgrade=True) is idle


async def test_an_ended_spare_connection_is_not_used(pool: PoolOverFakeTransports) -> None:
    pool.dial_spare()
    (spare,) = pool.dialled
    spare.is_open = False
    stream = pool.acquire(ResponseRecorder(), POST, timeout_s=5, is_upgrade=True)
    assert cast(object, stream.transport) is not spare


async def test_a_connection_is_polled_with_its_requests_group(pool: PoolOverFakeTransports) -> None:
    for tenant in ("ten-a", "ten-b"):
        group = pool.poller.group_of(tenant, NO_USAGE)
        connection = pool.acquire(ResponseRecorder(), GET, timeout_s=5, is_upgrade=False, group=group)
        connection.on_handshake()
        assert cast(FakeTransport, connection.transport).group is group
        feed(connection, OK)
    assert len(pool.dialled) == 1


async def test_an_idle_connection_leaves_its_tenants_group(pool: PoolOverFakeTransports) -> None:
    """A tenant without connections of its own was counted for a minute: others were served as beside it."""
    group = pool.poller.group_of("ten-a", NO_USAGE)
    connection = pool.acquire(ResponseRecorder(), GET, timeout_s=5, is_upgrade=False, group=group)
    connection.on_handshake()
    feed(connection, OK)
    transport = cast(FakeTransport, connection.transport)
    assert (transport.group, transport.deadline) == (group, pool.poller.now + LEAVE_S)
    connection.on_deadline()
    assert (transport.group, transport.deadline) == (pool.poller.own, pool.poller.now + IDLE_S)
    assert pool.acquire(ResponseRecorder(), GET, timeout_s=5, is_upgrade=False, group=group) is connection
    feed(connection, OK)
    connection.on_deadline()
    connection.on_deadline()  # idle for all of its time
    assert pool.open_count == 0


async def test_a_failed_spare_connection_is_dialled_again_once(pool: PoolOverFakeTransports) -> None:
    """The kubelet restarted while it was made ready: it has not seen the request, not even a command."""
    pool.dial_spare()
    response = ResponseRecorder()
    connection = pool.acquire(response, POST, timeout_s=5, is_upgrade=True)
    assert len(pool.dialled) == 1
    connection.on_end(EndReason.RESET)
    assert (response.events, len(pool.dialled)) == ([], 2)
    connection.on_end(EndReason.RESET)
    assert response.events == ["kubelet-unreachable"]
    assert pool.open_count == 0


async def test_a_stream_on_a_spare_has_the_full_dial_timeout(pool: PoolOverFakeTransports) -> None:
    """Dialled ahead while the kubelet hung, the connection had a moment left: the stream failed with 502 in
    that moment, though the kubelet answered again."""
    pool.dial_spare()
    (spare,) = pool.dialled
    spare.deadline = pool.poller.now + 0.1
    pool.acquire(ResponseRecorder(), POST, timeout_s=5, is_upgrade=True)
    assert spare.deadline == pool.poller.now + DIAL_S


async def test_a_request_with_a_partial_response_is_not_resent(pool: PoolOverFakeTransports) -> None:
    _, connection, _ = start_request(pool)
    feed(connection, OK)
    response, again, _ = start_request(pool)
    feed(again, b"HTTP/1.1 2")
    again.on_end(EndReason.CLOSED)
    assert response.events == ["kubelet-broke-off"]


async def test_data_on_an_idle_connection_drops_it(pool: PoolOverFakeTransports) -> None:
    _, connection, transport = start_request(pool)
    feed(connection, OK)
    connection.on_data(memoryview(OK))
    assert not transport.is_open
    _, another, _ = start_request(pool)
    assert another is not connection


async def test_idle_connections_are_dropped_before_the_kubelet_does(pool: PoolOverFakeTransports) -> None:
    _, connection, transport = start_request(pool)
    feed(connection, OK)
    assert IDLE_S < 90
    connection.on_deadline()
    assert (transport.is_open, pool.open_count) == (False, 0)


async def test_idle_connections_are_bounded(pool: PoolOverFakeTransports) -> None:
    exchanges = [start_request(pool) for _ in range(MAX_IDLE + 5)]
    for _, connection, _ in exchanges:
        feed(connection, OK)
    assert [transport.is_open for _, _, transport in exchanges] == [True] * MAX_IDLE + [False] * 5
    assert pool.open_count == MAX_IDLE


# ---- upgrades


async def test_an_upgrade_takes_the_transport_and_early_data(pool: PoolOverFakeTransports) -> None:
    response, connection, transport = start_request(pool, POST, is_upgrade=True)
    response.takes_over = connection
    feed(connection, b"HTTP/1.1 101 S\r\n\r\nfirst ", b"")
    assert (response.events, response.early) == (["101"], b"first ")
    assert transport.is_open
    assert connection.transport is None
    connection.abort()
    assert transport.is_open


async def test_a_refused_upgrade_drops_the_connection(pool: PoolOverFakeTransports) -> None:
    """CVE-2018-1002105: the kubelet's state is unknown."""
    response, connection, transport = start_request(pool, POST, is_upgrade=True)
    feed(connection, b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
    assert (response.events, response.body, transport.is_open) == (["403", "end"], b"no", False)


async def test_an_aborted_request_gets_no_callback(pool: PoolOverFakeTransports) -> None:
    response, connection, transport = start_request(pool)
    connection.abort()
    connection.on_end(EndReason.CLOSED)
    connection.on_deadline()
    assert (response.events, transport.is_open, pool.open_count) == ([], False, 0)


# ---- rotation


async def test_new_certificates_drop_idle_and_returned_connections(pool: PoolOverFakeTransports) -> None:
    """A connection of the old ones serves its request, and no later one."""
    _, idle, idle_channel = start_request(pool)
    busy_exchange, busy, busy_channel = start_request(pool)
    feed(idle, OK)
    pool.dial_spare()
    pool.replace(ADDRESS, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), pool.requests)
    assert (idle_channel.is_open, busy_channel.is_open) == (False, True)
    feed(busy, OK)
    assert busy_exchange.events == ["200", "end"]
    assert not busy_channel.is_open
    _, another, _ = start_request(pool)
    assert another is not busy


async def test_a_spare_with_old_certificates_is_not_used(pool: PoolOverFakeTransports) -> None:
    pool.dial_spare()
    (warming,) = pool.dialled
    pool.replace(ADDRESS, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), pool.requests)
    response, _, transport = start_request(pool)
    assert cast(object, transport) is not warming
    assert (response.events, transport.written) == ([], GET)


# ---- any split


@given(
    st.sampled_from(
        [
            OK,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n",
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nabcde",
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        ]
    ),
    st.lists(st.integers(1, 20), max_size=40),
)
async def test_splits_change_nothing(reply_bytes: bytes, sizes: list[int]) -> None:
    poller = SocketPoller(asyncio.get_running_loop())
    pool = PoolOverFakeTransports(poller)
    whole, connection, _ = start_request(pool)
    feed(connection, reply_bytes)
    pieces, again, transport = start_request(pool)
    at = 0
    for size in [*sizes, len(reply_bytes)]:
        if at < len(reply_bytes):
            feed(again, reply_bytes[at : at + size])
        at += size
    assert (pieces.events, pieces.body) == (whole.events, whole.body)
    assert (again is connection, transport.is_open) == (True, True)
    poller.stop()
