# SPDX-License-Identifier: Apache-2.0
"""What a connection to the kubelet relies on in its transport: for the real one, and the unit tests' fake."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast

import pytest

from tests.functional.vnagent.connection_links import RecordingHandler, connected_link, run
from tests.unit.vnagent.upstream.fake_transports import FakeTransport
from vnagent.core.limits import TenantUsage
from vnagent.transport.poller import SocketPoller
from vnagent.transport.tls_connection import TlsConnection

Opened = tuple[TlsConnection, RecordingHandler]
Open = Callable[[SocketPoller], AbstractAsyncContextManager[Opened]]


@asynccontextmanager
async def real_transport(poller: SocketPoller) -> AsyncIterator[Opened]:
    async with connected_link(poller, is_server=False) as link:
        link.handler.events.clear()
        yield link.transport, link.handler


@asynccontextmanager
async def fake_transport(poller: SocketPoller) -> AsyncIterator[Opened]:
    yield cast(TlsConnection, FakeTransport(poller)), RecordingHandler()


both_transports = pytest.mark.parametrize(
    "open_transport", [real_transport, fake_transport], ids=["real", "fake"]
)


@both_transports
def test_a_transport_is_polled_with_the_group_it_joined(open_transport: Open) -> None:
    async def body(poller: SocketPoller) -> None:
        async with open_transport(poller) as (transport, _):
            assert transport.is_open
            assert transport.group is poller.shared
            group = poller.group_of("ten-a", TenantUsage())
            transport.join(group)
            assert transport.group is group

    run(body)


@both_transports
def test_an_aborted_transport_takes_calls_and_makes_none(open_transport: Open) -> None:
    async def body(poller: SocketPoller) -> None:
        async with open_transport(poller) as (transport, handler):
            for _ in range(2):
                transport.abort()
                assert not transport.is_open
                transport.write(b"dropped")
                for call in (transport.flush, transport.pause, transport.resume):
                    call()
            assert handler.events == []

    run(body)
