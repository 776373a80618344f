# SPDX-License-Identifier: Apache-2.0
"""A server upstream with several addresses: a request dials the others before it fails."""

from dataclasses import replace
from typing import cast

import pytest

from daemonkit.tls.client_session import ClientSession
from tests.unit.vnagent.upstream.fake_transports import (
    ADDRESS,
    GET,
    OK,
    POST,
    PoolOverFakeTransports,
    ResponseRecorder,
    feed,
    start_request,
)
from vnagent.core.dial_order import MAX_DIALS
from vnagent.transport.handler import EndReason

pytestmark = pytest.mark.asyncio

HOSTS = ("2001:db8::1", "192.0.2.1", "192.0.2.2", "192.0.2.3")


def move(pool: PoolOverFakeTransports, *hosts: str) -> None:
    pool.move(replace(ADDRESS, host=hosts[0], others=hosts[1:]))


@pytest.mark.parametrize("reason", [EndReason.RESET, EndReason.CLOSED, EndReason.UNTRUSTED])
async def test_the_next_address_is_dialled(pool: PoolOverFakeTransports, reason: EndReason) -> None:
    move(pool, *HOSTS)
    response = ResponseRecorder()
    connection = pool.acquire(response, POST, timeout_s=5, is_upgrade=True)
    connection.on_end(reason)
    connection.on_handshake()
    assert pool.dialled_hosts == [*HOSTS[:2]]
    assert [transport.written for transport in pool.dialled] == [b"", POST]
    assert response.events == []


async def test_an_address_that_does_not_answer_is_left(pool: PoolOverFakeTransports) -> None:
    move(pool, *HOSTS)
    connection = pool.acquire(ResponseRecorder(), GET, timeout_s=5, is_upgrade=False)
    connection.on_deadline()
    assert pool.dialled_hosts == [*HOSTS[:2]]
    assert [transport.is_open for transport in pool.dialled] == [False, True]


@pytest.mark.parametrize("is_hanging", [True, False])
async def test_an_address_with_a_session_is_left(pool: PoolOverFakeTransports, *, is_hanging: bool) -> None:
    """It was dialled again without the session first: where it hangs, a page's 10 s were over before another
    address was dialled."""
    move(pool, *HOSTS)
    response = ResponseRecorder()
    connection = pool.acquire(response, GET, timeout_s=5, is_upgrade=False)
    connection.offered_session = cast(ClientSession, object())
    for _ in range(MAX_DIALS):
        assert response.events == []
        if is_hanging:
            connection.on_deadline()
        else:
            connection.on_end(EndReason.RESET)
    assert response.events == ["kubelet-unreachable"]
    assert pool.dialled_hosts == [*HOSTS[:MAX_DIALS]]


async def test_an_address_is_dialled_once_more_without_session(pool: PoolOverFakeTransports) -> None:
    """Behind the others: it may have failed for the session that was offered."""
    move(pool, *HOSTS[:2])
    response = ResponseRecorder()
    connection = pool.acquire(response, GET, timeout_s=5, is_upgrade=False)
    connection.offered_session = cast(ClientSession, object())
    connection.on_end(EndReason.RESET)
    connection.on_end(EndReason.RESET)
    connection.on_handshake()
    assert pool.dialled_hosts == [HOSTS[0], HOSTS[1], HOSTS[0]]
    assert (pool.dialled[-1].written, response.events) == (GET, [])


async def test_a_request_fails_after_a_few_addresses(pool: PoolOverFakeTransports) -> None:
    move(pool, *HOSTS)
    response = ResponseRecorder()
    connection = pool.acquire(response, GET, timeout_s=5, is_upgrade=False)
    for _ in range(MAX_DIALS):
        assert response.events == []
        connection.on_end(EndReason.RESET)
    assert response.events == ["kubelet-unreachable"]
    assert (pool.dialled_hosts, pool.open_count) == ([*HOSTS[:MAX_DIALS]], 0)
    pool.acquire(ResponseRecorder(), GET, timeout_s=5, is_upgrade=False)
    assert pool.dialled_hosts[-1] == HOSTS[MAX_DIALS]


async def test_the_address_that_was_reached_is_dialled_first(pool: PoolOverFakeTransports) -> None:
    """Also after the name was resolved again, whatever the order of the answer."""
    move(pool, *HOSTS)
    pool.acquire(ResponseRecorder(), GET, timeout_s=5, is_upgrade=False).on_end(EndReason.RESET)
    for hosts in (HOSTS, HOSTS[::-1]):
        move(pool, *hosts)
        pool.acquire(ResponseRecorder(), GET, timeout_s=5, is_upgrade=False)
    assert pool.dialled_hosts == [HOSTS[0], HOSTS[1], HOSTS[1], HOSTS[1]]


async def test_a_spare_that_fails_has_others_dialled_first(pool: PoolOverFakeTransports) -> None:
    move(pool, *HOSTS)
    pool.dial_spare()
    pool.connections[0].on_deadline()
    assert (pool.dialled_hosts, pool.open_count) == ([HOSTS[0]], 0)
    pool.dial_spare()
    assert pool.dialled_hosts == [*HOSTS[:2]]


async def test_a_closed_idle_connection_does_not_move_an_address(pool: PoolOverFakeTransports) -> None:
    """The server was reached. The request is sent once more, to the same address."""
    move(pool, *HOSTS)
    _, connection, _ = start_request(pool)
    feed(connection, OK)
    response, again, _ = start_request(pool)
    assert again is connection
    again.on_end(EndReason.CLOSED)
    again.on_end(EndReason.RESET)
    again.on_handshake()
    feed(again, OK)
    assert response.events == ["200", "end"]
    assert pool.dialled_hosts == [HOSTS[0], HOSTS[0], HOSTS[1]]


async def test_a_name_that_is_resolved_meanwhile_is_dialled(pool: PoolOverFakeTransports) -> None:
    move(pool, "")
    response = ResponseRecorder()
    connection = pool.acquire(response, GET, timeout_s=5, is_upgrade=False)
    move(pool, *HOSTS)
    connection.on_end(EndReason.RESET)
    connection.on_handshake()
    assert (pool.dialled_hosts, response.events) == (["", HOSTS[0]], [])
