# SPDX-License-Identifier: Apache-2.0
"""The runtime's words, brought to discovery and to the gate, in this order: a guest is known before it
is asked whether its containers may start. Handlers wait for nothing but `Gate.patience` and the
certificate of our agent's container."""

from collections.abc import Callable

from kata_bridge.nri.dispatch import Hold
from kata_bridge.nri.messages import Container, ContainerAdjustment, PodSandbox
from kata_bridge.nri.session import Snapshot
from kata_bridge.sandboxes.nri_source import NriHandler
from kata_bridge.start_gate.certificates import Certificates
from kata_bridge.start_gate.gate import Gate


class GatedHandler:
    """A `kata_bridge.nri.dispatch.Handler` that holds containers back."""

    def __init__(
        self, discovery: NriHandler, gate: Gate, certificates: Certificates, forget: Callable[[str], None]
    ) -> None:
        """`forget` is called with the id of a sandbox that is gone."""
        self._discovery = discovery
        self._gate = gate
        self._certificates = certificates
        self._forget = forget

    async def synchronize(self, snapshot: Snapshot) -> None:
        await self._discovery.synchronize(snapshot)
        self._gate.synchronized(snapshot)

    async def run_pod_sandbox(self, pod: PodSandbox) -> Hold | None:
        hold = self._gate.began(pod)
        if hold is None:
            await self._discovery.run_pod_sandbox(pod)
            self._gate.changed(pod.id)
        return hold

    async def stop_pod_sandbox(self, pod: PodSandbox) -> None:
        self._ended(pod.id)
        await self._discovery.stop_pod_sandbox(pod)

    async def remove_pod_sandbox(self, pod: PodSandbox) -> None:
        self._ended(pod.id)
        await self._discovery.remove_pod_sandbox(pod)

    async def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment | Hold:
        await self._gate.patience(pod, container)
        certificate = await self._certificates.mounts(pod, container)
        answer = self._gate.create(pod, container, lacks_certificate=certificate is None)
        if isinstance(answer, Hold):
            if certificate is None:
                self._certificates.wait(pod, container)
            return answer
        return ContainerAdjustment(mounts=(*answer.mounts, *(certificate or ())))

    def _ended(self, sandbox: str) -> None:
        self._gate.ended(sandbox)
        self._certificates.forget(sandbox)
        self._forget(sandbox)

    async def validate(
        self, pod: PodSandbox, container: Container, adjustment: ContainerAdjustment
    ) -> Hold | None:
        return self._gate.validate(pod, container, adjustment)
