# SPDX-License-Identifier: Apache-2.0
"""A request about a pod that the index does not have: wait for the next read of the source, then decide."""

import asyncio
from typing import Protocol

from daemonkit.fairness.lease import Lease
from daemonkit.fairness.scheduler import Account
from daemonkit.tasks import Tasks
from vnagent.core.audit import LEFT_UNDECIDED
from vnagent.core.requests import Request
from vnagent.exchange.port import ClientPort
from vnagent.request_log import RequestLog
from vnagent.sources.port import PodsOnDemand


class DecideAgain(Protocol):
    """Decides and acts on a request after a read; `is_read` is False if the read failed."""

    def __call__(self, client: ClientPort, request: Request, /, *, is_read: bool) -> None: ...


class RefreshExchange:
    """Waits for a read that begins after the request, so that it finds a pod that was just created.

    `lease` is its place among the tenant's `lookups`. `account` is charged for what
    is decided behind the read.
    """

    is_bounded = True

    def __init__(
        self,
        client: ClientPort,
        request: Request,
        source: PodsOnDemand,
        lease: Lease,
        account: Account,
        log: RequestLog,
        tasks: Tasks,
        decide_again: DecideAgain,
    ) -> None:
        self._client = client
        self._request = request
        self._source = source
        self._lease = lease
        self._account = account
        self._log = log
        self._tasks = tasks
        self._decide_again = decide_again
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._client.exchange = self
        self._task = self._tasks.spawn(self._account.run(self._run()), "pods lookup")

    async def _run(self) -> None:
        try:
            is_read = await self._source.refresh()
        finally:
            self._lease.release()
        client = self._client
        if client.exchange is self:
            client.exchange = None
            self._decide_again(client, self._request, is_read=is_read)

    def on_client_writable(self) -> None:
        """Nothing is being written."""

    def cancel(self) -> None:
        # A task that is cancelled before its first step runs nothing.
        self._lease.release()
        if self._task is not None:
            self._task.cancel()
        client, log = self._client, self._log
        log.record(client.caller, self._request, LEFT_UNDECIDED, 499, log.next_request_id(), client.begun_s)
