# SPDX-License-Identifier: Apache-2.0
"""Keeps a daemon connected to kata-bridge and passes its guest events on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from bridge_api.client import KATA_BRIDGE, BridgeError
from bridge_api.messages import Guest, GuestEvent, GuestEventKind
from daemonkit import logs
from daemonkit.backoff import backoff_s, spread_s
from daemonkit.remedies import Cause, Fault

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0

_log = logs.get(__name__)


class SessionClient(Protocol):
    """The part of `bridge_api.client.BridgeClient` that a session uses."""

    def watch_guests(self) -> AsyncIterator[GuestEvent]: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class GuestHandlers:
    """Callbacks for guest events. They run on the event loop and must not block or raise."""

    present: Callable[[Guest], None]
    gone: Callable[[str], None]
    synced: Callable[[], None]
    disconnected: Callable[[], None]


class SessionState(Protocol):
    """The part of a `BridgeSession` that daemons report."""

    is_synced: bool
    problem: str
    fault: Fault | None

    @property
    def unsynced_s(self) -> float: ...


def session_fault(session: SessionState) -> Fault | None:
    """Why the guests of kata-bridge are not synced; None if they are."""
    if session.is_synced:
        return None
    if session.fault is not None:
        return session.fault
    if session.problem:
        return KATA_BRIDGE.fault(Cause.OTHER, session.problem)
    return KATA_BRIDGE.fault(Cause.NOT_SYNCED, "connected, and not synced")


def session_document(session: SessionState) -> dict[str, object]:
    """The session as a part of `/status`."""
    fault = session_fault(session)
    found: dict[str, object] = {"isSynced": session.is_synced, "problem": session.problem}
    return found if fault is None else found | {"failure": fault.failure_document(session.unsynced_s)}


def session_line(session: SessionState) -> str:
    """The session as a line of `/readyz`."""
    fault = session_fault(session)
    if fault is None:
        return "kata-bridge: ok"
    return f"kata-bridge: not synced for {session.unsynced_s:.0f} s: {fault.text}; {fault.remedy}"


B = TypeVar("B", bound=SessionClient)
H = TypeVar("H", bound=GuestHandlers)


class BridgeSession(Generic[B, H]):
    """Connects to kata-bridge again and again. `bridge` is the current client, None between two.

    `consequence` completes the log line about a lost connection. `problem` is why it is not connected; empty
    when connected; `fault` has the remedy, where it is known. `clock` is monotonic, in seconds. Daemons add
    their calls, and handlers for the results.
    """

    def __init__(
        self,
        connect: Callable[[], B],
        handlers: H,
        rng: Callable[[], float],
        clock: Callable[[], float],
        *,
        consequence: str,
    ) -> None:
        self.bridge: B | None = None
        self.is_synced = False
        self.problem = "not connected yet"
        self.fault: Fault | None = None
        self._connect = connect
        self.handlers = handlers
        self._rng = rng
        self._clock = clock
        self._unsynced_since = clock()
        self._consequence = consequence

    @property
    def unsynced_s(self) -> float:
        """For how long it has not been synced; 0 if it is."""
        return 0.0 if self.is_synced else self._clock() - self._unsynced_since

    async def run(self) -> None:
        """Connect and watch guests with backoff, until cancelled."""
        failures = 0
        while True:
            bridge = self.bridge = self._connect()
            try:
                async for event in bridge.watch_guests():
                    failures = 0
                    if self.problem:
                        self.problem, self.fault = "", None
                        _log.info("connected to kata-bridge")
                    self._handle(event.kind, event.guest)
                ended = "kata-bridge ended the watch of guests"
                self._disconnected(ended, KATA_BRIDGE.fault(Cause.CLOSED, ended))
            except BridgeError as error:
                self._disconnected(str(error), error.fault)
            finally:
                self.bridge = None
                await bridge.close()
            failures += 1
            ceiling_s = backoff_s(failures, first_s=BACKOFF_FIRST_S, longest_s=BACKOFF_MAX_S)
            await asyncio.sleep(spread_s(ceiling_s, self._rng()))

    def _handle(self, kind: GuestEventKind, guest: Guest | None) -> None:
        if kind is GuestEventKind.SYNCED:
            self.is_synced = True
            self.handlers.synced()
        elif guest is None:
            _log.warning("guest event without a guest ignored", kind=kind.name)
        elif kind is GuestEventKind.PRESENT:
            self.handlers.present(guest)
        elif kind is GuestEventKind.GONE:
            self.handlers.gone(guest.id)

    def _disconnected(self, message: str, fault: Fault | None) -> None:
        if message != self.problem:
            _log.warning(f"disconnected from kata-bridge; {self._consequence}", reason=message)
        if self.is_synced:
            self._unsynced_since = self._clock()
        self.problem, self.fault, self.is_synced = message, fault, False
        self.handlers.disconnected()
