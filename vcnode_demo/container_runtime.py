# SPDX-License-Identifier: Apache-2.0
"""The fake container runtime of the demo. Its containers run.

It calls the NRI plugin as containerd does: it reports a sandbox, asks about a container, and mounts what the
answer contains.
"""

from pathlib import Path

from devkit.kata.fake_runtime import FakeRuntime, RuntimeQuirks
from kata_bridge.nri.messages import Container, LinuxNamespace, LinuxPodSandbox, Mount, PodSandbox
from kata_bridge.ttrpc.status import TtrpcError
from vcnode_demo.loop_thread import LoopThread

HANDLER = "namespaces"
# containerd has 2 s; a machine under load must not fail the demo.
_REQUEST_S = 8.0


class ContainerDeniedError(Exception):
    """The plugin denies the container; the text is what the author of the pod reads."""


class ContainerRuntime:
    """`start`, put sandboxes and containers in, `stop`."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._thread = LoopThread("container runtime")
        self._runtime = FakeRuntime(socket, RuntimeQuirks(request_timeout_s=_REQUEST_S))
        self._created = 0

    def start(self) -> None:
        self._thread.start()
        self._thread.run(self._runtime.__aenter__())

    def stop(self) -> None:
        """Close the socket and end the thread. May be called twice."""
        if self._thread.is_running:
            self._thread.run(self._runtime.__aexit__())
            self._thread.stop()

    def wait_for_plugin(self) -> None:
        """Wait until the plugin has registered. Raises ToolError."""
        self._thread.run(self._runtime.wait_registered())

    def run_sandbox(self, sandbox: PodSandbox) -> None:
        self._thread.run(self._runtime.run_pod(sandbox))

    def create_container(self, sandbox: PodSandbox, name: str) -> tuple[Mount, ...]:
        """The mounts of a container that may be created. Raises ContainerDeniedError, and ToolError."""
        self._created += 1
        container = Container(id=f"{sandbox.id}-{name}-{self._created}", pod_sandbox_id=sandbox.id, name=name)
        try:
            adjustment = self._thread.run(self._runtime.create_container(sandbox, container))
        except TtrpcError as error:
            raise ContainerDeniedError(error.message) from None
        return adjustment.mounts if adjustment is not None else ()


def sandbox_of(
    sandbox: str, pod: tuple[str, str, str], labels: dict[str, str], annotations: dict[str, str], pid: int
) -> PodSandbox:
    """A sandbox as NRI reports it, held by a process; `sandbox` is its id, `pod` namespace, name, uid."""
    namespace, name, uid = pod
    network = LinuxPodSandbox((LinuxNamespace("network", f"/proc/{pid}/ns/net"),))
    return PodSandbox(sandbox, name, uid, namespace, labels, annotations, HANDLER, network, pid)
