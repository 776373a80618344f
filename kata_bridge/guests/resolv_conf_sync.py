# SPDX-License-Identifier: Apache-2.0
"""Writes a changed resolv.conf into guests whose mount is a copy.

There a rewrite on the node stays invisible, and only the guest's own agent can write the file.
"""

import asyncio
from collections.abc import Callable

from bridge_api.messages import ResultCode
from daemonkit import logs
from daemonkit.tasks import Tasks
from kata_bridge.guests.registry import GuestRegistry

RETRY_S = 2.0

_log = logs.get(__name__)


class GuestResolvConfSync:
    """`desired_text` returns the resolv.conf of a sandbox; empty while none was submitted."""

    def __init__(self, guests: GuestRegistry, desired_text: Callable[[str], str], tasks: Tasks) -> None:
        self._guests = guests
        self._desired_text = desired_text
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._applied: dict[str, str] = {}
        self._in_flight: set[str] = set()
        self._not_before_s: dict[str, float] = {}

    def sync(self, sandbox: str) -> None:
        """Write the file if it is due. Call it when the guest or its resolv.conf has changed."""
        text = self._desired_text(sandbox)
        driver = self._guests.drivers.get(sandbox)
        if not text or driver is None or driver.machine.observed is None:
            return
        capabilities = driver.machine.capabilities
        if capabilities is None or not capabilities.resolv_conf or self._applied.get(sandbox) == text:
            return
        if sandbox in self._in_flight or self._loop.time() < self._not_before_s.get(sandbox, 0.0):
            return
        self._in_flight.add(sandbox)
        self._tasks.spawn(self._write(sandbox, text), f"resolv.conf {sandbox[:12]}")

    def forget(self, sandbox: str) -> None:
        self._applied.pop(sandbox, None)
        self._not_before_s.pop(sandbox, None)

    async def _write(self, sandbox: str, text: str) -> None:
        try:
            result = await self._guests.set_resolv_conf(sandbox, text)
        finally:
            self._in_flight.discard(sandbox)
        if result.code is ResultCode.GONE:
            return
        if result.code is ResultCode.UNREACHABLE:
            self._not_before_s[sandbox] = self._loop.time() + RETRY_S
            self._loop.call_later(RETRY_S, self.sync, sandbox)
            return
        # A file that the agent cannot write is the read-only mount itself, which needs no copy.
        self._applied[sandbox] = text
        if result.code is not ResultCode.APPLIED:
            _log.info("guest's resolv.conf is not written by its agent", guest=sandbox, reason=result.message)
        self.sync(sandbox)
