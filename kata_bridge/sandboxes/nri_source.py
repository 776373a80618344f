# SPDX-License-Identifier: Apache-2.0
"""What NRI says of sandboxes, brought to discovery. Handlers begin work and wait for nothing: all
calls of the node wait behind each of them."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from daemonkit import logs
from kata_bridge.channels.port import Unreachable
from kata_bridge.nri.dispatch import Hold
from kata_bridge.nri.messages import Container, ContainerAdjustment, Mount, PodSandbox
from kata_bridge.nri.session import Snapshot
from kata_bridge.sandboxes.core.sandbox import Seen, sandbox_of
from kata_bridge.sandboxes.discovery import Discovery

# The container that is our agent, and where it finds its certificate: packaging/guest/sidecar.yaml.
# Any pod's author may call a container so: what it gets is good for that very pod's rules alone.
SIDECAR = "vcnode-guest-agent"
SIDECAR_CREDENTIALS = "/etc/vcnode-guest"

_NO_CERTIFICATE = (
    "waiting: the node cannot make the certificate of the pod's agent now (it is tried again by itself)"
)

CredentialsOf = Callable[[str], Awaitable[Path | None]]

_log = logs.get(__name__)


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
    """A `kata_bridge.nri.dispatch.Handler` that tells of sandboxes and lets containers pass.

    `credentials_of` gives the directory of a sandbox's certificate, None for one whose agent we do
    not take; it raises `Unreachable` where none can be made now. None where no agent is taken.
    """

    def __init__(self, discovery: Discovery, credentials_of: CredentialsOf | None = None) -> None:
        self._discovery = discovery
        self._credentials_of = credentials_of

    async def synchronize(self, snapshot: Snapshot) -> None:
        self._discovery.nri_synchronized(seen_of(pod) for pod in snapshot.pods)

    async def run_pod_sandbox(self, pod: PodSandbox) -> None:
        self._discovery.nri_ran(seen_of(pod))

    async def stop_pod_sandbox(self, pod: PodSandbox) -> None:
        self._discovery.nri_stopped(pod.id)

    async def remove_pod_sandbox(self, pod: PodSandbox) -> None:
        self._discovery.nri_stopped(pod.id)

    async def certificate(self, pod: PodSandbox, container: Container) -> tuple[Mount, ...]:
        """The mount that our agent's container needs from its creation on; none for any other.

        Raises `Unreachable` where no certificate can be made now; its text is for the node's operator.
        """
        if self._credentials_of is None or container.name != SIDECAR:
            return ()
        directory = await self._credentials_of(pod.id)
        if directory is None:
            return ()
        return (Mount(SIDECAR_CREDENTIALS, "bind", str(directory), ("rbind", "ro", "rprivate")),)

    async def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment | Hold:
        """Let it pass; a tenant's agent with its certificate, or not at all."""
        try:
            return ContainerAdjustment(mounts=await self.certificate(pod, container))
        except Unreachable as error:
            _log.warning("a pod's agent gets no certificate", sandbox=pod.id, reason=error)
            return Hold(_NO_CERTIFICATE) if sandbox_of(seen_of(pod)).tenant else ContainerAdjustment()

    async def validate(
        self, _pod: PodSandbox, _container: Container, _adjustment: ContainerAdjustment
    ) -> Hold | None:
        return None
