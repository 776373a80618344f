# SPDX-License-Identifier: Apache-2.0
"""vcnode's NRI plugin on the ring's containerd, with a handler that records what it receives."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from daemonkit.tasks import Tasks
from kata_bridge.nri.dispatch import Deny
from kata_bridge.nri.events import Event
from kata_bridge.nri.messages import Container, ContainerAdjustment, PodSandbox
from kata_bridge.nri.plugin import Plugin
from kata_bridge.nri.session import NriSnapshot

_STOP_S = 10.0


class WatchingPlugin:
    """A plugin in a thread of its own, while `with` lasts.

    It records `snapshots` and `events` as (kind, sandbox), and the requests `created` and `validated`.
    It responds with `creation` and `validation`.
    """

    def __init__(self, socket: Path, events: frozenset[Event], *, index: str = "50") -> None:
        self.snapshots: list[NriSnapshot] = []
        self.events: list[tuple[str, PodSandbox]] = []
        self.created: list[tuple[PodSandbox, Container]] = []
        self.validated: list[tuple[Container, ContainerAdjustment]] = []
        self.creation: ContainerAdjustment | Deny = ContainerAdjustment()
        self.validation: Deny | None = None
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

    def names(self, what: str) -> list[str]:
        """The names of the pods with such an event."""
        return [pod.name for kind, pod in self.events if kind == what]

    def pod(self, what: str, name: str) -> PodSandbox | None:
        """The last pod of that name with such an event."""
        return next((pod for kind, pod in reversed(self.events) if (kind, pod.name) == (what, name)), None)

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

    # The methods of a handler.

    async def synchronize(self, snapshot: NriSnapshot) -> None:
        self.snapshots.append(snapshot)

    async def run_pod_sandbox(self, pod: PodSandbox) -> None:
        self.events.append(("run", pod))

    async def stop_pod_sandbox(self, pod: PodSandbox) -> None:
        self.events.append(("stop", pod))

    async def remove_pod_sandbox(self, pod: PodSandbox) -> None:
        self.events.append(("remove", pod))

    async def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment | Deny:
        self.created.append((pod, container))
        return self.creation

    async def validate(
        self, pod: PodSandbox, container: Container, adjustment: ContainerAdjustment
    ) -> Deny | None:
        self.validated.append((container, adjustment))
        return self.validation
