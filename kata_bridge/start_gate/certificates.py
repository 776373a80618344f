# SPDX-License-Identifier: Apache-2.0
"""Certificates of agents in containers, for the start gate.

Where a certificate cannot be issued (a full disk), the gate blocks its container and this module retries.
"""

import asyncio
from collections.abc import Awaitable, Callable

from daemonkit import logs
from daemonkit.tasks import Tasks
from kata_bridge.nri.messages import Container, Mount, PodSandbox
from kata_bridge.sandboxes.nri_source import CertificateUnavailableError

RETRY_S = 2.0

_log = logs.get(__name__)

CertificateOf = Callable[[PodSandbox, Container], Awaitable[tuple[Mount, ...]]]


class CertificateRetries:
    """`certificate_of` is `NriSource.certificate`; `on_issued` is called with a sandbox that has waited."""

    def __init__(self, certificate_of: CertificateOf, on_issued: Callable[[str], None], tasks: Tasks) -> None:
        self._certificate_of = certificate_of
        self._on_issued = on_issued
        self._tasks = tasks
        # One container for each living sandbox.
        self._waiting: dict[str, tuple[PodSandbox, Container]] = {}
        self._retrying: asyncio.Task[None] | None = None

    async def mounts(self, pod: PodSandbox, container: Container) -> tuple[Mount, ...] | None:
        """The mounts of a container's certificate; None where it cannot be issued now."""
        try:
            return await self._certificate_of(pod, container)
        except CertificateUnavailableError as error:
            _log.warning("cannot issue the certificate of a pod's agent", sandbox=pod.id, reason=error)
            return None

    def retry(self, pod: PodSandbox, container: Container) -> None:
        """Retry until the certificate of this blocked container can be issued."""
        self._waiting[pod.id] = (pod, container)
        # A finished task is done before its callback runs, so test done().
        if self._retrying is None or self._retrying.done():
            self._retrying = self._tasks.spawn(self._retry_all(), "certificates")

    def forget(self, sandbox: str) -> None:
        """The sandbox is gone."""
        self._waiting.pop(sandbox, None)

    async def _retry_all(self) -> None:
        while self._waiting:
            await asyncio.sleep(RETRY_S)
            for sandbox, (pod, container) in list(self._waiting.items()):
                try:
                    await self._certificate_of(pod, container)
                except CertificateUnavailableError:
                    continue
                if self._waiting.pop(sandbox, None) is not None:
                    self._on_issued(sandbox)
