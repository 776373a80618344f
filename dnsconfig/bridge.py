# SPDX-License-Identifier: Apache-2.0
"""The session with kata-bridge: guests come in, resolvers go out."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from bridge_api.client import BridgeError
from bridge_api.messages import GuestEvent, GuestResult, SetResolvConfRequest
from bridge_api.session import BridgeSession, GuestHandlers
from daemonkit.tasks import Tasks
from dnsconfig.delivery.queue import ResolverPush


class ResolverBridge(Protocol):
    """The part of `bridge_api.client.BridgeClient` that is used."""

    def watch_guests(self) -> AsyncIterator[GuestEvent]: ...
    async def set_resolv_conf(self, request: SetResolvConfRequest) -> GuestResult: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ResolverHandlers(GuestHandlers):
    """Called on the event loop; must not block or raise.

    `failed` gets a push that ended without a response, and why.
    """

    answered: Callable[[ResolverPush, GuestResult], None]
    failed: Callable[[ResolverPush, str], None]


class ResolverSession(BridgeSession[ResolverBridge, ResolverHandlers]):
    """Pushes run as tasks of `tasks`."""

    def __init__(
        self,
        connect: Callable[[], ResolverBridge],
        handlers: ResolverHandlers,
        tasks: Tasks,
        rng: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(connect, handlers, rng, clock, consequence="pods keep their resolvers")
        self._tasks = tasks

    def push(self, push: ResolverPush) -> None:
        """Start a push; its response goes to the handlers."""
        bridge = self.bridge
        if bridge is None:
            self.handlers.failed(push, "no session with kata-bridge")
        else:
            self._tasks.spawn(self._push(bridge, push), f"push {push.number}")

    async def _push(self, bridge: ResolverBridge, push: ResolverPush) -> None:
        guest, desired = push.target.guest, push.desired
        pod_uid = "" if guest else push.target.pod_uid
        request = SetResolvConfRequest(guest, desired.text, desired.wait_message, pod_uid, desired.networks)
        try:
            result = await bridge.set_resolv_conf(request)
        except BridgeError as error:
            if bridge is self.bridge:
                self.handlers.failed(push, str(error))
        else:
            if bridge is self.bridge:
                self.handlers.answered(push, result)
