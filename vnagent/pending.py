# SPDX-License-Identifier: Apache-2.0
"""A request about a pod that the index does not know: ask the source once more, then decide."""

import asyncio
from typing import TYPE_CHECKING

from vnagent.core.audit import LEFT_UNDECIDED
from vnagent.core.requests import Request
from vnagent.sources.port import PodFeed

if TYPE_CHECKING:
    from vnagent.client import ClientConnection


class LearningExchange:
    """Holds the connection while the source is read; a pod that was just created is found so."""

    is_bounded = True

    def __init__(self, client: "ClientConnection", request: Request, feed: PodFeed) -> None:
        self._client = client
        self._request = request
        self._feed = feed
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._client.agent.tasks.spawn(self._run(), "learn")

    async def _run(self) -> None:
        await self._feed.refresh()
        client = self._client
        if client.exchange is not self:
            return
        client.exchange = None
        decision = client.agent.decide(self._request, client.caller)
        client.act(self._request, decision, is_final=True)

    def on_client_writable(self) -> None:
        """Nothing is being written."""

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        agent = self._client.agent
        agent.audit(self._client.caller, self._request, LEFT_UNDECIDED, 499, agent.next_request_id())
