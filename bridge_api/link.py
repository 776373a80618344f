# SPDX-License-Identifier: Apache-2.0
"""One connection to kata-bridge that is made again whenever it ends, and what is told through it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from bridge_api.client import BridgeError
from bridge_api.messages import Guest, GuestEvent, GuestEventKind
from daemonkit import logs
from daemonkit.backoff import backoff_s, spread_s

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0

_log = logs.get(__name__)


class Watched(Protocol):
    """What is used here of `bridge_api.client.BridgeClient`."""

    def watch_guests(self) -> AsyncIterator[GuestEvent]: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class GuestHandlers:
    """What is to be done with what kata-bridge says; called on the loop, must not block or raise."""

    present: Callable[[Guest], None]
    gone: Callable[[str], None]
    synced: Callable[[], None]
    lost: Callable[[], None]


B = TypeVar("B", bound=Watched)
H = TypeVar("H", bound=GuestHandlers)


class Link(Generic[B, H]):
    """Keeps one connection to kata-bridge, for ever. `bridge` is the one of now.

    `handlers` may be of a kind with more to tell, which is for what is sent through the link.
    `meanwhile` is said in the log while it is away: what stays as it is.
    """

    def __init__(
        self,
        connect: Callable[[], B],
        handlers: H,
        rng: Callable[[], float],
        *,
        meanwhile: str,
    ) -> None:
        self.bridge: B | None = None
        self.is_synced = False
        self.problem = "not connected yet"
        self._connect = connect
        self.handlers = handlers
        self._rng = rng
        self._meanwhile = meanwhile

    @property
    def is_connected(self) -> bool:
        """Whether kata-bridge tells of its guests; nothing is sent otherwise."""
        return self.bridge is not None and not self.problem

    async def run(self) -> None:
        """Connect, follow the guests, connect again; until cancelled."""
        failures = 0
        while True:
            bridge = self.bridge = self._connect()
            try:
                async for event in bridge.watch_guests():
                    failures = 0
                    if self.problem:
                        self.problem = ""
                        _log.info("connected to kata-bridge")
                    self._take(event.kind, event.guest)
                self._lost("kata-bridge ended the stream of guests")
            except BridgeError as error:
                self._lost(str(error))
            finally:
                self.bridge = None
                await bridge.close()
            failures += 1
            ceiling_s = backoff_s(failures, first_s=BACKOFF_FIRST_S, longest_s=BACKOFF_MAX_S)
            await asyncio.sleep(spread_s(ceiling_s, self._rng()))

    def _take(self, kind: GuestEventKind, guest: Guest | None) -> None:
        if kind is GuestEventKind.SYNCED:
            self.is_synced = True
            self.handlers.synced()
        elif guest is None:
            _log.warning("kata-bridge tells of a guest without saying which", kind=kind.name)
        elif kind is GuestEventKind.PRESENT:
            self.handlers.present(guest)
        elif kind is GuestEventKind.GONE:
            self.handlers.gone(guest.id)

    def _lost(self, reason: str) -> None:
        if reason != self.problem:
            _log.warning(f"kata-bridge is away, {self._meanwhile}", reason=reason)
        self.problem, self.is_synced = reason, False
        self.handlers.lost()
