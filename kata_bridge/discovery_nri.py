# SPDX-License-Identifier: Apache-2.0
"""What NRI says of sandboxes, brought to discovery. Handlers begin work and wait for nothing: all
calls of the node wait behind each of them."""

from kata_bridge.core.sandboxes import Seen
from kata_bridge.discovery import Discovery
from kata_bridge.nri.dispatch import Hold
from kata_bridge.nri.messages import Container, ContainerAdjustment, PodSandbox
from kata_bridge.nri.session import Snapshot


def seen_of(pod: PodSandbox) -> Seen:
    """A sandbox as NRI tells of it: it has no attempt, and a dead one has neither pid nor namespace.

    On the host's network there is a process and no namespace entry. containerd 1.7 runs the hook
    before it knows a pid, but then the namespace is there.
    """
    netns = pod.network_namespace
    return Seen(
        id=pod.id,
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        labels=pod.labels,
        annotations=pod.annotations,
        runtime_handler=pod.runtime_handler,
        ips=pod.ips,
        netns=netns,
        is_host_network=not netns and pod.pid != 0,
        is_alive=bool(netns or pod.pid),
    )


class NriHandler:
    """A `kata_bridge.nri.dispatch.Handler` that tells of sandboxes and lets all containers pass."""

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery

    async def synchronize(self, snapshot: Snapshot) -> None:
        self._discovery.nri_synchronized(seen_of(pod) for pod in snapshot.pods)

    async def run_pod_sandbox(self, pod: PodSandbox) -> None:
        self._discovery.nri_ran(seen_of(pod))

    async def stop_pod_sandbox(self, pod: PodSandbox) -> None:
        self._discovery.nri_stopped(pod.id)

    async def remove_pod_sandbox(self, pod: PodSandbox) -> None:
        self._discovery.nri_stopped(pod.id)

    async def create_container(self, _pod: PodSandbox, _container: Container) -> ContainerAdjustment | Hold:
        return ContainerAdjustment()

    async def validate(
        self, _pod: PodSandbox, _container: Container, _adjustment: ContainerAdjustment
    ) -> Hold | None:
        return None
