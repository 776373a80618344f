# SPDX-License-Identifier: Apache-2.0
"""The connection to kata-bridge: guests come in, resolv.confs go out, and it is made again when it ends."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bridge_api.client import BridgeError
from bridge_api.messages import GuestEvent, GuestResult
from bridge_api.session import BridgeSession, GuestHandlers
from daemonkit import logs
from daemonkit.tasks import Tasks
from dnsconfig.delivery.queue import Push

_log = logs.get(__name__)


class Bridge(Protocol):
    """What is used of `bridge_api.client.BridgeClient`."""

    def watch_guests(self) -> AsyncIterator[GuestEvent]: ...
    async def set_resolv_conf(
        self,
        guest: str,
        text: str,
        *,
        wait_message: str = "",
        pod_uid: str = "",
        networks: Sequence[str] = (),
    ) -> GuestResult: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Handlers(GuestHandlers):
    """What is to be done with what kata-bridge says; called on the loop, must not block or raise.

    `failed` gets a push that ended without an answer, and why.
    """

    answered: Callable[[Push, GuestResult], None]
    failed: Callable[[Push, str], None]


class Connection(BridgeSession[Bridge, Handlers]):
    """The link, with pushes: they go out as tasks of `tasks`."""

    def __init__(
        self, connect: Callable[[], Bridge], handlers: Handlers, tasks: Tasks, rng: Callable[[], float]
    ) -> None:
        super().__init__(connect, handlers, rng, consequence="pods keep what they have")
        self._tasks = tasks

    def push(self, push: Push) -> None:
        """Begin a push; its answer goes to the handlers."""
        bridge = self.bridge
        if bridge is None:
            self.handlers.failed(push, "kata-bridge is away")
        else:
            self._tasks.spawn(self._push(bridge, push), f"push {push.number}")

    async def _push(self, bridge: Bridge, push: Push) -> None:
        guest, wanted = push.target.guest, push.wanted
        pod_uid = "" if guest else push.target.pod_uid
        try:
            result = await bridge.set_resolv_conf(
                guest, wanted.text, wait_message=wanted.waits, pod_uid=pod_uid, networks=wanted.networks
            )
        except BridgeError as error:
            if bridge is self.bridge:
                self.handlers.failed(push, str(error))
        else:
            if bridge is self.bridge:
                self.handlers.answered(push, result)
