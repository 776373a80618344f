# SPDX-License-Identifier: Apache-2.0
"""When sources are reloaded, and how each reload is counted. On virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from daemonkit.metrics import Counter, Family, Registry
from vnagent.reload import POLL_S, Reloadable, Reloader

pytestmark = pytest.mark.asyncio


@dataclass(eq=False)
class ReloadedSource:
    """A fake source: `is_changed` once, then not until it is set again."""

    name: str
    is_changed: bool = False
    problem: str | None = None
    takes_s: float = 0.0
    reads: list[float] = field(default_factory=list)

    def poll(self) -> bool:
        was, self.is_changed = self.is_changed, False
        return was

    async def reload(self) -> str | None:
        self.reads.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.takes_s)
        return self.problem

    @property
    def reloadable(self) -> Reloadable:
        return Reloadable(self.name, self.poll, self.reload)


def counters() -> Family[Counter]:
    return Registry().counter("vcnode_reloads_total", "Reloads.", ("result",))


def counted(reloads: Family[Counter]) -> tuple[float, float]:
    return reloads.labels("ok").value, reloads.labels("error").value


@asynccontextmanager
async def running(reloader: Reloader) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reloader.run())
        try:
            yield
        finally:
            task.cancel()


async def test_an_unchanged_source_is_not_reloaded() -> None:
    source, reloads = ReloadedSource("a"), counters()
    async with running(Reloader((source.reloadable,), reloads)):
        await asyncio.sleep(100)
    assert (source.reads, counted(reloads)) == ([], (0, 0))


async def test_a_change_is_reloaded_once_within_two_seconds() -> None:
    source, reloads = ReloadedSource("a"), counters()
    async with running(Reloader((source.reloadable,), reloads)):
        await asyncio.sleep(10.5)
        source.is_changed = True
        await asyncio.sleep(50)
    (at,) = source.reads
    assert 10.5 <= at <= 10.5 + POLL_S <= 12.5
    assert counted(reloads) == (1, 0)


async def test_a_failed_reload_is_counted_and_not_repeated() -> None:
    source, reloads = ReloadedSource("a", is_changed=True, problem="cut"), counters()
    async with running(Reloader((source.reloadable,), reloads)):
        await asyncio.sleep(50)
        source.is_changed, source.problem = True, None
        await asyncio.sleep(50)
    assert len(source.reads) == 2
    assert counted(reloads) == (1, 1)


async def test_sighup_reloads_every_source() -> None:
    one, two, reloads = ReloadedSource("a"), ReloadedSource("b", problem="away"), counters()
    reloader = Reloader((one.reloadable, two.reloadable), reloads)
    async with running(reloader):
        await asyncio.sleep(10.5)
        reloader.request_reload()
        await asyncio.sleep(0.01)
        assert (one.reads, two.reads) == ([10.5], [10.5])
        await asyncio.sleep(50)
    assert (len(one.reads), len(two.reads)) == (1, 1)
    assert counted(reloads) == (1, 1)


async def test_a_change_read_at_sighup_is_not_reloaded_again() -> None:
    source, reloads = ReloadedSource("a"), counters()
    reloader = Reloader((source.reloadable,), reloads)
    async with running(reloader):
        await asyncio.sleep(10.5)
        source.is_changed = True
        reloader.request_reload()
        await asyncio.sleep(50)
    assert source.reads == [10.5]


async def test_a_slow_reload_does_not_delay_others() -> None:
    """A hanging kubelet must not delay a tenant's removal."""
    slow, quick, reloads = (
        ReloadedSource("kubelet", is_changed=True, takes_s=30),
        ReloadedSource("tenants"),
        counters(),
    )
    async with running(Reloader((slow.reloadable, quick.reloadable), reloads)):
        await asyncio.sleep(5.5)
        quick.is_changed = True
        await asyncio.sleep(2)
        assert len(quick.reads) == 1
    assert len(slow.reads) == 1
