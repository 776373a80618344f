# SPDX-License-Identifier: Apache-2.0
"""A request about a pod that the index does not know: wait for the next read of the source, then decide."""

import asyncio
from typing import TYPE_CHECKING

from vnagent.core.audit import LEFT_UNDECIDED
from vnagent.core.requests import Request
from vnagent.sources.port import PodFeed

if TYPE_CHECKING:
    from vnagent.downstream.client_connection import ClientConnection


class LearningExchange:
    """Holds the connection until a read that began after the request has ended: a pod that was just created
    is found, whoever else asks for what. It counts in `Use.lookups`."""

    is_bounded = True

    def __init__(self, client: "ClientConnection", request: Request, feed: PodFeed) -> None:
        self._client = client
        self._request = request
        self._feed = feed
        self._use = client.agent.account_of(client.caller)
        self._use.lookups += 1
        self._is_waiting = True
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._client.agent.tasks.spawn(self._run(), "learn")

    async def _run(self) -> None:
        try:
            is_read = await self._feed.refresh()
        finally:
            self._stop_waiting()
        client = self._client
        if client.exchange is not self:
            return
        client.exchange = None
        # What was not read cannot confirm that a pod is missing.
        decision = client.agent.decide(self._request, client.caller, is_stale=not is_read)
        client.act(self._request, decision, is_final=True)

    def _stop_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._use.lookups -= 1

    def on_client_writable(self) -> None:
        """Nothing is being written."""

    def cancel(self) -> None:
        # A task that is cancelled before its first step runs nothing.
        self._stop_waiting()
        if self._task is not None:
            self._task.cancel()
        agent = self._client.agent
        agent.audit(self._client.caller, self._request, LEFT_UNDECIDED, 499, agent.next_request_id())
