# SPDX-License-Identifier: Apache-2.0
"""Reports the sandboxes of NRI to discovery. A handler must not wait: all pods of the node wait for it."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from daemonkit import logs
from kata_bridge.nri.dispatch import Deny
from kata_bridge.nri.messages import Container, ContainerAdjustment, Mount, PodSandbox
from kata_bridge.nri.session import NriSnapshot
from kata_bridge.sandboxes.core.sandbox import SandboxObservation, sandbox_of
from kata_bridge.sandboxes.discovery import Discovery

# The container that runs our agent, and where it reads its certificate: packaging/guest/sidecar.yaml.
# Any pod's author may name a container so: its certificate is good for that pod's rules alone.
AGENT_CONTAINER = "vcnode-guest-agent"
AGENT_CREDENTIALS = "/etc/vcnode-guest"

_NO_CERTIFICATE = (
    "waiting: the node cannot issue the certificate of the pod's guest agent (the kubelet tries again)"
)


class CertificateUnavailableError(Exception):
    """A certificate cannot be issued now; the message is for the node's operator."""


CredentialsOf = Callable[[str], Awaitable[Path | None]]

_log = logs.get(__name__)


def observation_of(pod: PodSandbox) -> SandboxObservation:
    """A sandbox as NRI reports it: without an attempt, and a dead one without pid and namespace.

    A sandbox in the host's network has a process and no namespace entry. containerd 1.7 runs the hook before
    it knows a pid, but then it has the namespace.
    """
    netns = pod.network_namespace
    return SandboxObservation(
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


class NriSource:
    """A `kata_bridge.nri.dispatch.Handler` that reports sandboxes and blocks no container.

    `credentials_of` returns the directory of a sandbox's certificate, or None for a sandbox whose channels
    have no agent. It raises `CertificateUnavailableError` where it cannot issue one now. It is None on a node
    without agents.
    """

    def __init__(self, discovery: Discovery, credentials_of: CredentialsOf | None = None) -> None:
        self._discovery = discovery
        self._credentials_of = credentials_of

    async def synchronize(self, snapshot: NriSnapshot) -> None:
        self._discovery.nri_synchronized(observation_of(pod) for pod in snapshot.pods)

    async def run_pod_sandbox(self, pod: PodSandbox) -> None:
        self._discovery.nri_started(observation_of(pod))

    async def stop_pod_sandbox(self, pod: PodSandbox) -> None:
        self._discovery.nri_stopped(pod.id)

    async def remove_pod_sandbox(self, pod: PodSandbox) -> None:
        self._discovery.nri_stopped(pod.id)

    async def certificate(self, pod: PodSandbox, container: Container) -> tuple[Mount, ...]:
        """The mount of its certificate, for our agent's container; no mounts for any other.

        Raises `CertificateUnavailableError`.
        """
        if self._credentials_of is None or container.name != AGENT_CONTAINER:
            return ()
        directory = await self._credentials_of(pod.id)
        if directory is None:
            return ()
        return (Mount(AGENT_CREDENTIALS, "bind", str(directory), ("rbind", "ro", "rprivate")),)

    async def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment | Deny:
        """Allow it; deny a tenant's agent whose certificate cannot be issued."""
        try:
            return ContainerAdjustment(mounts=await self.certificate(pod, container))
        except CertificateUnavailableError as error:
            _log.warning("cannot issue the certificate of a pod's agent", sandbox=pod.id, reason=error)
            return Deny(_NO_CERTIFICATE) if sandbox_of(observation_of(pod)).tenant else ContainerAdjustment()

    async def validate(
        self, _pod: PodSandbox, _container: Container, _adjustment: ContainerAdjustment
    ) -> Deny | None:
        return None
