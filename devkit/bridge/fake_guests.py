# SPDX-License-Identifier: Apache-2.0
"""What every stand-in for kata-bridge has: guests come and go before whoever watches, on a socket too.

No part of any daemon, and not in guests: their overlay leaves modules of this name out.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from bridge_api import rpc
from bridge_api.client import BridgeAway, BridgeError
from bridge_api.messages import Guest, GuestEvent, GuestEventKind, WatchGuestsRequest


class FakeGuests(ABC):
    """The guests of a node, as `bridge_api.client.BridgeClient` tells of them.

    A stand-in says which guests there are (`_present`) and what else can be asked (`_methods`).
    """

    def __init__(self) -> None:
        self.is_synced = True
        self._watchers: set[asyncio.Queue[GuestEvent | None]] = set()
        self._server: grpc.aio.Server | None = None

    @abstractmethod
    def _present(self) -> Iterable[Guest]:
        """Those that a new watcher is told of."""

    @abstractmethod
    def _methods(self) -> Sequence[rpc.Bound]:
        """What is served beside the watch."""

    @abstractmethod
    def forget_everything(self) -> None:
        """As a restart of the bridge does; it breaks the watches."""

    def _tell(self, event: GuestEvent) -> None:
        for watcher in self._watchers:
            watcher.put_nowait(event)

    def _break_watches(self) -> None:
        for watcher in self._watchers:
            watcher.put_nowait(None)

    # ---- a connection

    async def watch_guests(self) -> AsyncIterator[GuestEvent]:
        watcher: asyncio.Queue[GuestEvent | None] = asyncio.Queue()
        for guest in self._present():
            watcher.put_nowait(GuestEvent(GuestEventKind.PRESENT, guest))
        if self.is_synced:
            watcher.put_nowait(GuestEvent(GuestEventKind.SYNCED))
        self._watchers.add(watcher)
        try:
            while True:
                event = await watcher.get()
                if event is None:
                    raise BridgeAway("the bridge is restarted")
                yield event
        finally:
            self._watchers.discard(watcher)

    # ---- over gRPC

    async def serve(self, path: Path) -> None:
        """Listen on the unix socket `path` until `stop`."""

        async def watch(_: WatchGuestsRequest, context: Any) -> AsyncIterator[GuestEvent]:
            try:
                async for event in self.watch_guests():
                    yield event
            except BridgeAway as error:
                await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

        path.unlink(missing_ok=True)  # noqa: ASYNC240 - once, before anything is served
        self._server = grpc.aio.server()
        methods = (rpc.WATCH_GUESTS.bind(watch), *self._methods())
        self._server.add_generic_rpc_handlers((rpc.service(*methods),))
        self._server.add_insecure_port(f"unix:{path}")
        await self._server.start()

    async def stop(self) -> None:
        """Go away; the guests stay."""
        self.forget_everything()
        if self._server is not None:
            await self._server.stop(0)
            self._server = None


async def as_written(script: Iterable[GuestEvent | BridgeError]) -> AsyncIterator[GuestEvent]:
    """A `watch_guests` that says what is written down for it, and then nothing."""
    for event in script:
        if isinstance(event, BridgeError):
            raise event
        yield event
    await asyncio.sleep(1e6)
