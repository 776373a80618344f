# SPDX-License-Identifier: Apache-2.0
"""Passes the runtime's calls to discovery first and then to the start gate.

So a guest is known before the gate decides on its containers. A handler waits only for
`StartGate.wait_briefly` and for a certificate.
"""

from collections.abc import Callable

from kata_bridge.nri.dispatch import Deny
from kata_bridge.nri.messages import Container, ContainerAdjustment, PodSandbox
from kata_bridge.nri.session import NriSnapshot
from kata_bridge.sandboxes.nri_source import NriSource
from kata_bridge.start_gate.certificates import CertificateRetries
from kata_bridge.start_gate.gate import StartGate


class GatedHandler:
    """A `kata_bridge.nri.dispatch.Handler` that blocks containers."""

    def __init__(
        self,
        source: NriSource,
        gate: StartGate,
        certificates: CertificateRetries,
        on_stopped: Callable[[str], None],
    ) -> None:
        """`on_stopped` is called with the id of a sandbox that was stopped."""
        self._source = source
        self._gate = gate
        self._certificates = certificates
        self._on_stopped = on_stopped

    async def synchronize(self, snapshot: NriSnapshot) -> None:
        await self._source.synchronize(snapshot)
        self._gate.synchronize(snapshot)

    async def run_pod_sandbox(self, pod: PodSandbox) -> Deny | None:
        deny = self._gate.sandbox_started(pod)
        if deny is None:
            await self._source.run_pod_sandbox(pod)
            self._gate.reevaluate(pod.id)
        return deny

    async def stop_pod_sandbox(self, pod: PodSandbox) -> None:
        self._stopped(pod.id)
        await self._source.stop_pod_sandbox(pod)

    async def remove_pod_sandbox(self, pod: PodSandbox) -> None:
        self._stopped(pod.id)
        await self._source.remove_pod_sandbox(pod)

    async def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment | Deny:
        await self._gate.wait_briefly(pod, container)
        mounts = await self._certificates.mounts(pod, container)
        answer = self._gate.create_container(pod, container, lacks_certificate=mounts is None)
        if isinstance(answer, Deny):
            if mounts is None:
                self._certificates.retry(pod, container)
            return answer
        return ContainerAdjustment(mounts=(*answer.mounts, *(mounts or ())))

    def _stopped(self, sandbox: str) -> None:
        self._gate.sandbox_stopped(sandbox)
        self._certificates.forget(sandbox)
        self._on_stopped(sandbox)

    async def validate(
        self, pod: PodSandbox, container: Container, adjustment: ContainerAdjustment
    ) -> Deny | None:
        return self._gate.validate(pod, container, adjustment)
