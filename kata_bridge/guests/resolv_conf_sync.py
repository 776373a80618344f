# SPDX-License-Identifier: Apache-2.0
"""Keeps the resolv.conf in guests as the node's: where a mount is a copy, a rewrite on the node does
not show in it, and only the guest's own agent can write there."""

import asyncio
from collections.abc import Callable

from bridge_api.messages import ResultCode
from daemonkit import logs
from daemonkit.tasks import Tasks
from kata_bridge.guests.registry import GuestRegistry

RETRY_S = 2.0

_log = logs.get(__name__)


class GuestResolvConfSync:
    """`text_for` tells what a sandbox's is to say, empty: nothing is known."""

    def __init__(self, guests: GuestRegistry, text_for: Callable[[str], str], tasks: Tasks) -> None:
        self._guests = guests
        self._text_for = text_for
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._written: dict[str, str] = {}
        self._busy: set[str] = set()
        self._not_before_s: dict[str, float] = {}

    def changed(self, sandbox: str) -> None:
        """The guest is another, or what its resolv.conf is to say."""
        text = self._text_for(sandbox)
        driver = self._guests.drivers.get(sandbox)
        if not text or driver is None or driver.machine.held is None:
            return
        capabilities = driver.machine.capabilities
        if capabilities is None or not capabilities.resolv_conf or self._written.get(sandbox) == text:
            return
        if sandbox in self._busy or self._loop.time() < self._not_before_s.get(sandbox, 0.0):
            return
        self._busy.add(sandbox)
        self._tasks.spawn(self._write(sandbox, text), f"resolv.conf {sandbox[:12]}")

    def forget(self, sandbox: str) -> None:
        self._written.pop(sandbox, None)
        self._not_before_s.pop(sandbox, None)

    async def _write(self, sandbox: str, text: str) -> None:
        try:
            result = await self._guests.set_resolv_conf(sandbox, text)
        finally:
            self._busy.discard(sandbox)
        if result.code is ResultCode.GONE:
            return
        if result.code is ResultCode.UNREACHABLE:
            self._not_before_s[sandbox] = self._loop.time() + RETRY_S
            self._loop.call_later(RETRY_S, self.changed, sandbox)
            return
        # A file that cannot be written there is the mount itself, read-only, which needs no copy.
        self._written[sandbox] = text
        if result.code is not ResultCode.APPLIED:
            _log.info("no copy of a resolv.conf is written in a guest", guest=sandbox, reason=result.message)
        self.changed(sandbox)
