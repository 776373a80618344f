# SPDX-License-Identifier: Apache-2.0
"""The kubelet's TLS session over the pool: what confirms it, refutes it, or dials again without it."""

import _ssl
import ctypes
import ssl
from typing import cast

import pytest

from daemonkit.tls.client_session import ClientSession
from tests.unit.vnagent.upstream.fake_transports import (
    ADDRESS,
    GET,
    POST,
    FakeTransport,
    PoolOverFakeTransports,
    ResponseRecorder,
    ResumedTls,
    feed,
    start_request,
)
from vnagent.transport.handler import EndReason
from vnagent.upstream.pool import UpstreamConnection

pytestmark = pytest.mark.asyncio

OFFERED = cast(ClientSession, object())


def dialled_with_a_session(
    pool: PoolOverFakeTransports, request: bytes = POST, *, is_resumed: bool = False
) -> tuple[ResponseRecorder, UpstreamConnection, FakeTransport]:
    """A connection that offers a session. `is_resumed`: its handshake is done, and took it."""
    response = ResponseRecorder()
    connection = pool.acquire(response, request, timeout_s=5, is_upgrade=request is POST)
    transport = pool.dialled[-1]
    connection.offered_session = OFFERED
    if is_resumed:
        transport.tls = ResumedTls()
        connection.on_handshake()
    return response, connection, transport


async def test_a_session_that_was_not_resumed_is_refused(pool: PoolOverFakeTransports) -> None:
    _, connection, _ = dialled_with_a_session(pool)
    connection.on_handshake()
    assert (pool.session.events, pool.full_count, pool.resumed_count) == (["refuse"], 1, 0)
    connection.on_end(EndReason.RESET)
    assert pool.session.events == ["refuse"]


async def test_a_response_confirms_the_session(pool: PoolOverFakeTransports) -> None:
    _, connection, _ = dialled_with_a_session(pool, is_resumed=True)
    assert (pool.session.events, pool.full_count, pool.resumed_count) == ([], 0, 1)
    feed(connection, b"HTTP/1.1 400 B", b"ad\r\n")
    connection.on_end(EndReason.RESET)
    assert pool.session.events == ["confirm"]


@pytest.mark.parametrize("by", ["end", "deadline"])
async def test_a_failed_resumption_is_dialled_again_without_session(
    pool: PoolOverFakeTransports, by: str
) -> None:
    """Once: nothing of the request has left."""
    response, connection, transport = dialled_with_a_session(pool)

    def fail() -> None:
        connection.on_end(EndReason.RESET) if by == "end" else connection.on_deadline()

    fail()
    again = pool.dialled[-1]
    assert (again is transport, transport.is_open, again.is_open, pool.may_resume) == (
        False,
        False,
        True,
        False,
    )
    assert (response.events, pool.session.events) == ([], ["refuse"])
    count = len(pool.dialled)
    fail()
    assert (response.events, len(pool.dialled)) == (["kubelet-unreachable"], count)


async def test_the_request_is_sent_on_the_second_dial(pool: PoolOverFakeTransports) -> None:
    response, connection, transport = dialled_with_a_session(pool)
    connection.on_end(EndReason.RESET)
    connection.on_handshake()
    assert (response.events, transport.written, pool.dialled[-1].written) == ([], b"", POST)


async def test_an_untrusted_kubelet_is_not_dialled_again(pool: PoolOverFakeTransports) -> None:
    """It did not resume the session, and its chain was verified."""
    response, connection, _ = dialled_with_a_session(pool)
    count = len(pool.dialled)
    connection.on_end(EndReason.UNTRUSTED)
    assert (response.events, len(pool.dialled)) == (["kubelet-untrusted"], count)


async def test_a_response_timeout_doubts_the_session(pool: PoolOverFakeTransports) -> None:
    response, connection, _ = dialled_with_a_session(pool, is_resumed=True)
    connection.on_deadline()
    assert (response.events, pool.session.events) == (["kubelet-timeout"], ["resumption_failed"])


async def test_a_stream_without_response_is_not_resent(pool: PoolOverFakeTransports) -> None:
    """The kubelet may have seen the request: a command must not run twice."""
    response, connection, _ = dialled_with_a_session(pool, is_resumed=True)
    connection.on_end(EndReason.CLOSED)
    assert (response.events, pool.session.events) == (["kubelet-broke-off"], ["resumption_failed"])


async def test_a_request_without_response_is_resent_without_session(
    pool: PoolOverFakeTransports,
) -> None:
    response, connection, _ = dialled_with_a_session(pool, GET, is_resumed=True)
    connection.on_end(EndReason.CLOSED)
    connection.on_handshake()
    assert (response.events, pool.dialled[-1].written, pool.may_resume) == ([], GET, False)
    connection.on_end(EndReason.CLOSED)
    assert (response.events, pool.session.events) == (["kubelet-broke-off"], ["resumption_failed"])


@pytest.mark.parametrize("by", ["end", "deadline"])
async def test_the_end_of_an_idle_connection_keeps_its_session(pool: PoolOverFakeTransports, by: str) -> None:
    pool.dial_spare()
    spare, pool.dialled[-1].tls = pool.connections[-1], ResumedTls()
    spare.offered_session = OFFERED
    spare.on_handshake()
    if by == "end":
        spare.on_end(EndReason.CLOSED)
    else:
        spare.on_deadline()
    assert (pool.open_count, pool.session.events) == (0, [])


def stream_begins(
    pool: PoolOverFakeTransports, connection: UpstreamConnection, response: ResponseRecorder
) -> None:
    """The kubelet responds with 101, and the stream takes over the connection."""
    response.takes_over = connection
    pool.dialled[-1].tls = ResumedTls()
    feed(connection, b"HTTP/1.1 101 S\r\n\r\nfirst ")


async def test_a_sessions_age_counts_from_its_handshake(pool: PoolOverFakeTransports) -> None:
    pool.poller.now = 1_000.0
    response, connection, _ = start_request(pool, POST, is_upgrade=True)
    pool.poller.now = 1_100.0
    stream_begins(pool, connection, response)
    assert pool.session.verified_at_s == 1_000.0


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_sessions_of_replaced_certificates_are_not_kept(
    pool: PoolOverFakeTransports, *, is_replaced: bool
) -> None:
    """OpenSSL would take it for no connection that is made with the new ones."""
    response, connection, _ = start_request(pool, POST, is_upgrade=True)
    if is_replaced:
        pool.replace(ADDRESS, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), pool.requests)
    stream_begins(pool, connection, response)
    assert pool.session.events == ([] if is_replaced else ["keep"])


@pytest.mark.parametrize("error", [MemoryError(), ssl.SSLError(1, "malloc failure")], ids=repr)
async def test_a_stream_survives_a_failure_to_keep_its_session(
    pool: PoolOverFakeTransports, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def keep(*_: object) -> None:
        raise error

    monkeypatch.setattr(pool.session, "keep", keep)
    response, connection, transport = start_request(pool, POST, is_upgrade=True)
    stream_begins(pool, connection, response)
    assert (response.events, response.early, transport.is_open) == (["101"], b"first ", True)
    assert pool.open_count == 0


async def test_a_failure_to_keep_a_session_clears_openssl_errors(
    pool: PoolOverFakeTransports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ssl` would raise it for the next connection that it reads, whosever that is."""
    library = ctypes.PyDLL(_ssl.__file__)
    library.ERR_peek_error.restype = ctypes.c_ulong

    def keep(*_: object) -> None:
        assert not library.d2i_SSL_SESSION(None, ctypes.byref(ctypes.c_char_p(b"none")), ctypes.c_long(4))
        assert library.ERR_peek_error()
        raise MemoryError

    monkeypatch.setattr(pool.session, "keep", keep)
    response, connection, _ = start_request(pool, POST, is_upgrade=True)
    stream_begins(pool, connection, response)
    assert not library.ERR_peek_error()
