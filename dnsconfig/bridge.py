# SPDX-License-Identifier: Apache-2.0
"""The connection to kata-bridge: guests come in, resolv.confs go out, and it is made again when it ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from daemonkit import logs
from daemonkit.tasks import Tasks
from dnsconfig.delivery import Push
from kata_bridge.api.client import BridgeError
from kata_bridge.api.messages import Guest, GuestEvent, GuestEventKind, GuestResult

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0

_log = logs.get(__name__)


class Bridge(Protocol):
    """What is used of `kata_bridge.api.client.BridgeClient`."""

    def watch_guests(self) -> AsyncIterator[GuestEvent]: ...
    async def set_resolv_conf(
        self, guest: str, text: str, *, waits: str = "", pod_uid: str = ""
    ) -> GuestResult: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Handlers:
    """What is to be done with what kata-bridge says; called on the loop, must not block or raise.

    `failed` gets a push that ended without an answer, and why.
    """

    present: Callable[[Guest], None]
    gone: Callable[[str], None]
    synced: Callable[[], None]
    lost: Callable[[], None]
    answered: Callable[[Push, GuestResult], None]
    failed: Callable[[Push, str], None]


class Connection:
    """Keeps one connection to kata-bridge, for ever."""

    def __init__(
        self, connect: Callable[[], Bridge], handlers: Handlers, tasks: Tasks, rng: Callable[[], float]
    ) -> None:
        self._connect = connect
        self._handlers = handlers
        self._tasks = tasks
        self._rng = rng
        self._bridge: Bridge | None = None
        self.is_synced = False
        self.problem = "not connected yet"

    async def run(self) -> None:
        """Connect, follow the guests, connect again; until cancelled."""
        failures = 0
        while True:
            bridge = self._bridge = self._connect()
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
                self._bridge = None
                await bridge.close()
            failures += 1
            ceiling_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 10))
            await asyncio.sleep(ceiling_s * (0.5 + 0.5 * self._rng()))

    def _take(self, kind: GuestEventKind, guest: Guest | None) -> None:
        if kind is GuestEventKind.SYNCED:
            self.is_synced = True
            self._handlers.synced()
        elif guest is None:
            _log.warning("kata-bridge tells of a guest without saying which", kind=kind.name)
        elif kind is GuestEventKind.PRESENT:
            self._handlers.present(guest)
        elif kind is GuestEventKind.GONE:
            self._handlers.gone(guest.id)

    def _lost(self, reason: str) -> None:
        if reason != self.problem:
            _log.warning("kata-bridge is away, pods keep what they have", reason=reason)
        self.problem, self.is_synced = reason, False
        self._handlers.lost()

    def push(self, push: Push) -> None:
        """Begin a push; its answer goes to the handlers."""
        bridge = self._bridge
        if bridge is None:
            self._handlers.failed(push, "kata-bridge is away")
        else:
            self._tasks.spawn(self._push(bridge, push), f"push {push.number}")

    async def _push(self, bridge: Bridge, push: Push) -> None:
        guest, pod_uid = push.target.guest, push.target.pod_uid
        try:
            result = await bridge.set_resolv_conf(guest, push.text, waits=push.waits, pod_uid=pod_uid)
        except BridgeError as error:
            if bridge is self._bridge:
                self._handlers.failed(push, str(error))
        else:
            if bridge is self._bridge:
                self._handlers.answered(push, result)
