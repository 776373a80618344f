# SPDX-License-Identifier: Apache-2.0
"""The session with kata-bridge, in virtual time, without a socket."""

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


class ScriptedClient:
    """A client whose watch follows a script."""

    def __init__(self, events: list[GuestEvent | BridgeError]) -> None:
        self.events = events
        self.is_closed = False

    def watch_guests(self) -> AsyncIterator[GuestEvent]:
        return scripted_watch(self.events)

    async def close(self) -> None:
        self.is_closed = True


class RecordedSession:
    """A session whose clients follow `scripts`, one after the other; `lines` are its events."""

    def __init__(self, *scripts: list[GuestEvent | BridgeError]) -> None:
        self.lines: list[str] = []
        self.clients: list[ScriptedClient] = []
        self.connected_at: list[float] = []
        self._scripts = list(scripts)
        self._tasks = Tasks("test")
        handlers = GuestHandlers(
            lambda guest: self.lines.append(f"present {guest.id}"),
            lambda guest: self.lines.append(f"gone {guest}"),
            lambda: self.lines.append("synced"),
            lambda: self.lines.append("disconnected"),
        )
        self.session = BridgeSession(self._connect, handlers, lambda: 1.0, consequence="nothing changes")

    def _connect(self) -> ScriptedClient:
        self.connected_at.append(asyncio.get_running_loop().time())
        self.clients.append(
            ScriptedClient(self._scripts.pop(0) if self._scripts else [BridgeUnavailableError("not running")])
        )
        return self.clients[-1]

    @contextlib.asynccontextmanager
    async def running(self, seconds: float = 0.05) -> AsyncIterator[None]:
        self._tasks.spawn(self.session.run(), "run")
        await asyncio.sleep(seconds)
        yield
        assert await self._tasks.close(1.0) == ()


async def test_guest_events_reach_the_handlers() -> None:
    no_guest = GuestEvent(GuestEventKind.PRESENT, None)
    recorded = RecordedSession(
        [PRESENT, SYNCED, no_guest, GONE, GuestEvent(GuestEventKind(77), Guest(id="x"))]
    )
    async with recorded.running():
        assert recorded.lines == ["present g1", "synced", "gone g1"]
        assert (recorded.session.is_synced, recorded.session.problem) == (True, "")
        assert recorded.session.bridge is recorded.clients[0]
    assert [each.is_closed for each in recorded.clients] == [True]
    assert recorded.session.bridge is None


async def test_reconnects_back_off() -> None:
    recorded = RecordedSession([PRESENT, SYNCED, BridgeUnavailableError("restart")])
    async with recorded.running(30.0):
        assert recorded.lines[:3] == ["present g1", "synced", "disconnected"]
        assert (recorded.session.is_synced, recorded.session.problem) == (False, "not running")
        gaps = [b - a for a, b in pairwise(recorded.connected_at)]
        assert gaps[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
        assert max(gaps) == pytest.approx(BACKOFF_MAX_S)
        assert all(each.is_closed for each in recorded.clients[:-1])


async def test_an_event_resets_the_backoff() -> None:
    away: list[GuestEvent | BridgeError] = [BridgeUnavailableError("start")]
    recorded = RecordedSession(*[away] * 4, [SYNCED, BridgeUnavailableError("restart")], [SYNCED])
    async with recorded.running(10.0):
        gaps = [b - a for a, b in pairwise(recorded.connected_at)]
        assert gaps == pytest.approx([0.1, 0.2, 0.4, 0.8, 0.1])
        assert recorded.session.is_synced
