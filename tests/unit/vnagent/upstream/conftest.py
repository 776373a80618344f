# SPDX-License-Identifier: Apache-2.0
"""A pool of kubelet connections over fake transports."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from tests.unit.vnagent.upstream.fake_transports import PoolOverFakeTransports
from vnagent.transport.poller import SocketPoller


@pytest_asyncio.fixture
async def pool() -> AsyncIterator[PoolOverFakeTransports]:
    poller = SocketPoller(asyncio.get_running_loop())
    yield PoolOverFakeTransports(poller)
    poller.stop()
