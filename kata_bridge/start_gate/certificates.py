# SPDX-License-Identifier: Apache-2.0
"""The certificates of agents in containers, as the gate needs them: one that cannot be made (a full
disk) is tried again while its container waits, so that the gate learns when it need not wait longer."""

import asyncio
from collections.abc import Awaitable, Callable

from daemonkit import logs
from daemonkit.tasks import Tasks
from kata_bridge.channels.port import Unreachable
from kata_bridge.nri.messages import Container, Mount, PodSandbox

RETRY_S = 2.0

_log = logs.get(__name__)

CertificateOf = Callable[[PodSandbox, Container], Awaitable[tuple[Mount, ...]]]


class Certificates:
    """`certificate_of` is `NriHandler.certificate`; `made` is told of a sandbox that has waited for one."""

    def __init__(self, certificate_of: CertificateOf, made: Callable[[str], None], tasks: Tasks) -> None:
        self._certificate_of = certificate_of
        self._made = made
        self._tasks = tasks
        # Of sandboxes that live, one container each.
        self._waiting: dict[str, tuple[PodSandbox, Container]] = {}
        self._trying: asyncio.Task[None] | None = None

    async def mounts(self, pod: PodSandbox, container: Container) -> tuple[Mount, ...] | None:
        """What a container needs of it; None where that cannot be made now."""
        try:
            return await self._certificate_of(pod, container)
        except Unreachable as error:
            _log.warning("a pod's agent gets no certificate", sandbox=pod.id, reason=error)
            return None

    def wait(self, pod: PodSandbox, container: Container) -> None:
        """This container is held for want of one."""
        self._waiting[pod.id] = (pod, container)
        # One that is through with its last look is done at once; what is called when it is over comes later.
        if self._trying is None or self._trying.done():
            self._trying = self._tasks.spawn(self._keep_trying(), "certificates")

    def forget(self, sandbox: str) -> None:
        """The sandbox is gone."""
        self._waiting.pop(sandbox, None)

    async def _keep_trying(self) -> None:
        while self._waiting:
            await asyncio.sleep(RETRY_S)
            for sandbox, (pod, container) in list(self._waiting.items()):
                try:
                    await self._certificate_of(pod, container)
                except Unreachable:
                    continue
                if self._waiting.pop(sandbox, None) is not None:
                    self._made(sandbox)
