# SPDX-License-Identifier: Apache-2.0
"""The session with kata-bridge, in virtual time, without a socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise

import pytest

from bridge_api.client import KATA_BRIDGE, BridgeError, BridgeUnavailableError
from bridge_api.messages import Guest, GuestEvent, GuestEventKind
from bridge_api.session import (
    BACKOFF_MAX_S,
    BridgeSession,
    GuestHandlers,
    session_document,
    session_fault,
    session_line,
)
from daemonkit.remedies import Cause, Fault
from daemonkit.tasks import Tasks
from devkit.fake_bridge import scripted_watch

pytestmark = pytest.mark.asyncio

SYNCED = GuestEvent(GuestEventKind.SYNCED)
PRESENT = GuestEvent(GuestEventKind.PRESENT, Guest(id="g1"))
GONE = GuestEvent(GuestEventKind.GONE, Guest(id="g1"))


async def no_events() -> AsyncIterator[GuestEvent]:
    none: tuple[GuestEvent, ...] = ()
    for event in none:
        yield event


class ScriptedClient:
    """A client whose watch follows a script, or ends at once without one."""

    def __init__(self, events: list[GuestEvent | BridgeError]) -> None:
        self.events = events
        self.is_closed = False

    def watch_guests(self) -> AsyncIterator[GuestEvent]:
        return scripted_watch(self.events) if self.events else no_events()

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
        self.session = BridgeSession(
            self._connect,
            handlers,
            lambda: 1.0,
            asyncio.get_running_loop().time,
            consequence="nothing changes",
        )

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


@dataclass
class ReportedSession:
    """The part of a session that daemons report."""

    is_synced: bool = False
    problem: str = ""
    fault: Fault | None = None
    unsynced_s: float = 5.2


DENIED = KATA_BRIDGE.fault(Cause.DENIED, "permission denied", "/run/x.sock")


@pytest.mark.parametrize(
    ("session", "line"),
    [
        (ReportedSession(is_synced=True), "kata-bridge: ok"),
        (
            ReportedSession(problem="/run/x.sock: Permission denied", fault=DENIED),
            "kata-bridge: not synced for 5 s: kata-bridge /run/x.sock: permission denied; add this"
            " daemon's user to the group of kata-bridge's listen.group (vcnode), and restart the daemon",
        ),
        (
            ReportedSession(problem="not connected yet"),
            "kata-bridge: not synced for 5 s: kata-bridge: not connected yet; see this daemon's log",
        ),
        (
            ReportedSession(),
            "kata-bridge: not synced for 5 s: kata-bridge: connected, and not synced; run `vcnode status`:"
            " kata-bridge has not synced the sandboxes of this node",
        ),
    ],
)
async def test_the_line_of_a_session_has_the_remedy(session: ReportedSession, line: str) -> None:
    assert session_line(session) == line


async def test_a_status_has_the_failure_of_a_session() -> None:
    assert session_document(ReportedSession(is_synced=True)) == {"isSynced": True, "problem": ""}
    assert session_document(ReportedSession(problem="x", fault=DENIED)) == {
        "isSynced": False,
        "problem": "x",
        "failure": DENIED.failure_document(5.2),
    }


async def test_a_failure_of_a_session_has_its_fault_and_age() -> None:
    denied: list[GuestEvent | BridgeError] = [BridgeUnavailableError("x", DENIED)]
    recorded = RecordedSession(*[denied] * 3, [PRESENT, SYNCED])
    async with recorded.running():
        assert session_fault(recorded.session) == DENIED
        assert recorded.session.unsynced_s == pytest.approx(0.05)
        await asyncio.sleep(0.3)
        assert recorded.session.unsynced_s == pytest.approx(0.35)
        await asyncio.sleep(1.0)
        assert (session_fault(recorded.session), recorded.session.unsynced_s) == (None, 0.0)


async def test_the_age_of_a_failure_begins_with_the_loss() -> None:
    recorded = RecordedSession([BridgeUnavailableError("start")], [SYNCED, BridgeUnavailableError("restart")])
    async with recorded.running(10.0):
        fault = session_fault(recorded.session)
        assert fault is not None
        assert (fault.cause, fault.error) == (Cause.OTHER, "not running")
        assert recorded.session.unsynced_s == pytest.approx(9.9)


async def test_an_ended_watch_is_a_closed_connection() -> None:
    ended = RecordedSession([])
    async with ended.running():
        fault = session_fault(ended.session)
        assert fault is not None
        assert (fault.cause, fault.error) == (Cause.CLOSED, "kata-bridge ended the watch of guests")
