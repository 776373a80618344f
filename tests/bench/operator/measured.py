# SPDX-License-Identifier: Apache-2.0
"""The measured vc-operator: a process of its own, whose clocks may be moved."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from daemonkit.status.server import StatusError, fetch
from tests import moved_clock, waiting
from tests.bench import usage
from tests.bench.operator.ground import Ground

_START_S, _SETTLED_S = 60.0, 2.0
_PAGE_S = 10.0
_RECONCILES = "vcnode_tenantoperator_reconciles_total"


class MeasuredOperator:
    """What its status pages and the kernel say of it."""

    def __init__(self, pid: int, socket: Path, clock: Path) -> None:
        self.pid = pid
        self._socket = socket
        self._clock = clock
        self._ahead_s = 0.0

    async def reconciles(self, result: str = "") -> float:
        """How many there were, all of them or with this result."""
        text = (await self._page("/metrics")).decode()
        wanted = f'{_RECONCILES}{{result="{result}' if result else _RECONCILES
        lines = [line for line in text.splitlines() if line.startswith(wanted)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    async def settle(self, count: int) -> None:
        """Wait until so many VirtualClusters were found settled."""
        await waiting.until_it_succeeds(
            lambda: self._check(count), StatusError, within_s=_START_S + _SETTLED_S * count
        )

    async def advance(self, seconds: float) -> None:
        """Move its clocks, and have its event loop look at them."""
        self._ahead_s += seconds
        moved_clock.move(self._clock, self._ahead_s)
        await self._page("/readyz")

    def rss_mb(self) -> float:
        return usage.memory(self.pid).rss_mb

    def private_mb(self) -> float:
        return usage.memory(self.pid).anonymous_mb

    def cpu_s(self) -> float:
        return usage.cpu_s([self.pid])

    async def _check(self, count: int) -> None:
        if await self.reconciles("settled") < count:
            raise StatusError("not settled")

    async def _page(self, path: str) -> bytes:
        try:
            return (await asyncio.to_thread(fetch, self._socket, path, _PAGE_S))[1]
        except OSError as error:
            raise StatusError(str(error)) from None


@contextlib.asynccontextmanager
async def running(ground: Ground, log: Path) -> AsyncIterator[MeasuredOperator]:
    """Start it, and end it."""
    clock = log.with_suffix(".clock")
    moved_clock.move(clock, 0.0)
    words = ("-m", "tests.moved_clock", clock, "wall,monotonic", "tenant_operator")
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *map(str, words), "--config", str(ground.config_file), stderr=output
        )
    try:
        yield MeasuredOperator(process.pid, ground.socket, clock)
    finally:
        process.terminate()
        await process.wait()
