# SPDX-License-Identifier: Apache-2.0
"""Random histories of a world: acts of whoever writes, and faults."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, Phase, settings

from daemonkit.kube.client import UnreachableError
from devkit.kube import wire as wire
from devkit.kube.storage import StatusError
from tests.unit.syncer.planes import Plane, refused
from tests.unit.syncer.worlds import World

Act = tuple[Any, ...]
"""One step of a history: a method of `HistoryActor`, in words or with underscores, and its arguments."""


class HistoryActor:
    """Carries out acts; one that its API server refuses is no act. Those here are faults, and time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.count = 0

    async def act(self, act: str, *args: Any) -> None:
        self.count += 1
        try:
            result = getattr(self, act.replace(" ", "_"))(*args)
        except StatusError:
            return
        if asyncio.iscoroutine(result):
            await result

    def _plane(self, side: str) -> Plane:
        return self.world.super if side == "super" else self.world.tenants[side]

    def fail(self, side: str, code: int) -> None:
        """The next request fails; without a code, for want of a connection."""
        self._plane(side).failures.append(refused(code) if code else UnreachableError("connect"))

    def lose_answer(self, side: str) -> None:
        self._plane(side).lost += 1

    def stall(self, side: str) -> None:
        """No watch shows anything, until the flow."""
        plane = self._plane(side)
        if plane.flows.is_set():
            plane.flows.clear()
            plane.stalled_s = asyncio.get_running_loop().time()

    def flow(self, side: str) -> None:
        plane = self._plane(side)
        plane.flows.set()
        plane.stalled_s = None

    def compact(self, side: str) -> None:
        self._plane(side).storage.compact()

    async def kill(self) -> None:
        await self.world.kill_syncer()
        self.world.start_syncer()

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.world.check_patrols()


# To shrink a history takes minutes, and one that fails is short enough to read.
HISTORIES = settings(
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
