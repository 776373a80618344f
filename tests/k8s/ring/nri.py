# SPDX-License-Identifier: Apache-2.0
"""vcnode's NRI plugin on the ring's containerd, with a handler that records what it receives."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from daemonkit.tasks import Tasks
from kata_bridge.nri.events import Event
from kata_bridge.nri.plugin import Plugin
from tests.nri_contract import NriRecorder

_STOP_S = 10.0


class WatchingPlugin(NriRecorder):
    """A plugin in a thread of its own, while `with` lasts."""

    def __init__(self, socket: Path, events: frozenset[Event], *, index: str = "50") -> None:
        super().__init__()
        self.plugin = Plugin(socket, "vcnode-test", index, self, events)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="nri-plugin")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        tasks = Tasks("nri-test")
        tasks.spawn(self.plugin.run(), "plugin")
        await self._stop.wait()
        await tasks.close(_STOP_S / 2)
        await self.stopping()

    async def stopping(self) -> None:
        """Subclasses end here what they started."""
