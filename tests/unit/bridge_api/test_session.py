# SPDX-License-Identifier: Apache-2.0
"""The link to kata-bridge, in virtual time, without a socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from bridge_api.client import BridgeError, BridgeUnavailableError
from bridge_api.messages import Guest, GuestEvent, GuestEventKind
from bridge_api.session import BACKOFF_MAX_S, BridgeSession, GuestHandlers
from daemonkit.tasks import Tasks
from devkit.fake_bridge import scripted_watch

pytestmark = pytest.mark.asyncio

SYNCED = GuestEvent(GuestEventKind.SYNCED)
PRESENT = GuestEvent(GuestEventKind.PRESENT, Guest(id="g1"))
GONE = GuestEvent(GuestEventKind.GONE, Guest(id="g1"))


class Connection:
    """A connection that says what is written down for it, and then nothing."""

    def __init__(self, events: list[GuestEvent | BridgeError]) -> None:
        self.events = events
        self.is_closed = False

    def watch_guests(self) -> AsyncIterator[GuestEvent]:
        return scripted_watch(self.events)

    async def close(self) -> None:
        self.is_closed = True


class Told:
    """A link whose connections are `scripts`, one after the other, then none; and what it told."""

    def __init__(self, *scripts: list[GuestEvent | BridgeError]) -> None:
        self.lines: list[str] = []
        self.connections: list[Connection] = []
        self.connected_at: list[float] = []
        self._scripts = list(scripts)
        self._tasks = Tasks("test")
        handlers = GuestHandlers(
            lambda guest: self.lines.append(f"present {guest.id}"),
            lambda guest: self.lines.append(f"gone {guest}"),
            lambda: self.lines.append("synced"),
            lambda: self.lines.append("lost"),
        )
        self.link = BridgeSession(self._connect, handlers, lambda: 1.0, consequence="all stays as it is")

    def _connect(self) -> Connection:
        self.connected_at.append(asyncio.get_running_loop().time())
        self.connections.append(
            Connection(self._scripts.pop(0) if self._scripts else [BridgeUnavailableError("nobody there")])
        )
        return self.connections[-1]

    @contextlib.asynccontextmanager
    async def running(self, seconds: float = 0.05) -> AsyncIterator[None]:
        self._tasks.spawn(self.link.run(), "run")
        await asyncio.sleep(seconds)
        yield
        assert await self._tasks.close(1.0) == ()


async def test_guest_events_reach_the_handlers() -> None:
    nobody = GuestEvent(GuestEventKind.PRESENT, None)
    told = Told([PRESENT, SYNCED, nobody, GONE, GuestEvent(GuestEventKind(77), Guest(id="x"))])
    async with told.running():
        assert told.lines == ["present g1", "synced", "gone g1"]
        assert (told.link.is_synced, told.link.is_connected, told.link.problem) == (True, True, "")
        assert told.link.bridge is told.connections[0]
    assert [each.is_closed for each in told.connections] == [True]
    assert told.link.bridge is None


async def test_reconnects_back_off() -> None:
    told = Told([PRESENT, SYNCED, BridgeUnavailableError("restart")])
    async with told.running(30.0):
        assert told.lines[:3] == ["present g1", "synced", "lost"]
        assert (told.link.is_synced, told.link.is_connected) == (False, False)
        assert told.link.problem == "nobody there"
        gaps = [b - a for a, b in pairwise(told.connected_at)]
        assert gaps[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
        assert max(gaps) == pytest.approx(BACKOFF_MAX_S)
        assert all(each.is_closed for each in told.connections[:-1])


async def test_an_event_resets_the_backoff() -> None:
    away: list[GuestEvent | BridgeError] = [BridgeUnavailableError("start")]
    told = Told(*[away] * 4, [SYNCED, BridgeUnavailableError("restart")], [SYNCED])
    async with told.running(10.0):
        gaps = [b - a for a, b in pairwise(told.connected_at)]
        assert gaps == pytest.approx([0.1, 0.2, 0.4, 0.8, 0.1])
        assert told.link.is_synced
