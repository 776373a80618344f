# SPDX-License-Identifier: Apache-2.0
"""Asks for the pages of a list, each while the one before it is read.

A server takes as long to make a page of pods as a client to decode it, and a page names the next one.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from daemonkit.kube.client import MAX_RESPONSE_BYTES
from daemonkit.kube.watch import MAX_EVENT_BYTES

# A page of 500 objects of 16 KB each, which few are. It is held twice while it is decoded.
PAGE_BYTES = 8 << 20

PageOutcome = bytes | Exception
Spawn = Callable[[Coroutine[Any, Any, PageOutcome], str], asyncio.Task[PageOutcome]]
"""Starts a task with a name."""


class PageRequests:
    """The pages of one list. `request` gets the parameters of one; without `spawn` none is asked for early.

    Nothing counts what an early answer takes: it is for servers without a budget. Call `end` when all
    pages are read, or the list is given up.
    """

    def __init__(
        self,
        request: Callable[[Mapping[str, str]], Coroutine[Any, Any, bytes]],
        spawn: Spawn | None,
        name: str,
    ) -> None:
        self._request = request
        self._spawn = spawn
        self._name = name
        self._next: asyncio.Task[PageOutcome] | None = None

    def ask(self, params: Mapping[str, str]) -> None:
        """Ask for the next page now, if it may be; `page` with the same parameters has its answer."""
        if self._spawn is not None:
            self._next = self._spawn(self._answer(dict(params)), f"next page of {self._name}")

    async def page(self, params: Mapping[str, str]) -> bytes:
        """The body of a page. Raises as the request does."""
        asked, self._next = self._next, None
        if asked is None:
            return await self._request(params)
        try:
            found = await asked
        finally:
            del asked
        if not isinstance(found, Exception):
            return found
        try:
            raise found
        finally:
            # An error refers to this frame, and to the one that had the answer: no circle keeps that alive.
            del found

    def end(self) -> None:
        """Give up a page that was asked for and is not read."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    async def _answer(self, params: Mapping[str, str]) -> PageOutcome:
        try:
            return await self._request(params)
        # It is for who reads the page, if a client does.
        except Exception as error:  # noqa: BLE001 - `page` raises it
            return error


def body_limit_of(params: Mapping[str, str]) -> int:
    """How much of an answer is read: of one object as much as of an event."""
    limit = params.get("limit")
    if limit is None:
        return MAX_RESPONSE_BYTES
    return MAX_EVENT_BYTES if limit == "1" else PAGE_BYTES
