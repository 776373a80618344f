# SPDX-License-Identifier: Apache-2.0
"""A request that waits for a read of the pods."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from daemonkit.fairness.lease import Lease
from daemonkit.fairness.scheduler import TenantScheduler
from daemonkit.tasks import Tasks
from vnagent.core.requests import Endpoint, PageRequest, Request
from vnagent.exchange.port import ClientPort
from vnagent.exchange.refresh import RefreshExchange
from vnagent.request_log import RequestLog

PODS = PageRequest(Endpoint.PODS, is_head=False, only_cpu_and_memory=False)


class ReadPods:
    """A source that is read at once."""

    async def refresh(self) -> bool:
        return True


@pytest.mark.asyncio
async def test_what_is_decided_behind_a_read_is_charged() -> None:
    """Decision, and what it begins: it was between all turns."""
    clock, decided = SimpleNamespace(now_ns=0), list[bool]()
    account = TenantScheduler(clock_ns=lambda: clock.now_ns).open("ten-a")

    def decide(_client: ClientPort, _request: Request, *, is_read: bool) -> None:
        decided.append(is_read)
        clock.now_ns += 5

    client, released = SimpleNamespace(exchange=None), list[bool]()
    lease = Lease(lambda: released.append(True))
    port, log = cast(ClientPort, client), cast(RequestLog, None)
    RefreshExchange(port, PODS, ReadPods(), lease, account, log, Tasks("test"), decide).start()
    await asyncio.sleep(0)
    assert (decided, released, client.exchange) == ([True], [True], None)
    assert account.used_ns == 5
