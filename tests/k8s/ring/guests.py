# SPDX-License-Identifier: Apache-2.0
"""The programs in the ring's guests: a fake of stock Kata, our agent in an image or as a sidecar."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import yaml

from daemonkit.tasks import Tasks
from devkit.kata.agent_policy import OPENED_POLICY, parse
from devkit.kata.fake_agent import AgentQuirks
from devkit.kata.fake_kata import FakeKata
from devkit.kata.guest_tables import NamespaceTables
from kata_bridge.nri.events import SANDBOXES
from kata_bridge.nri.messages import PodSandbox
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import AGENT_PORT
from tests.k8s.ring.nri import WatchingPlugin
from tests.k8s.ring.pods import container
from tests.k8s.ring.processes import wait_for

_ROOT = Path(__file__).resolve().parents[3]
_SIDECAR = _ROOT / "packaging" / "guest" / "sidecar.yaml"

# Long enough for a request or two, and for one in flight to be cut off.
_MOMENT_S = 0.03
# An agent has begun and is not attached yet.
_CRASH_S = 0.3


class StockKata(WatchingPlugin):
    """Makes each sandbox of a handler a guest of stock Kata, before other plugins receive its event.

    Its agent restores into the pod's own network namespace, with the real programs.
    """

    def __init__(self, ring: Ring, handler: str) -> None:
        super().__init__(ring.node.nri_socket, SANDBOXES, index="10")
        # How long a guest of this pod needs before its shim responds.
        self.boot_s: Callable[[str], float] = lambda _: 0.0
        # For how long a guest of this pod is then unreachable again, after a moment of service.
        self.unreachable_s: Callable[[str], float] = lambda _: 0.0
        self._ring = ring
        self._handler = handler
        self._guests: dict[str, AsyncExitStack] = {}
        self._booting = Tasks("boot")

    def __enter__(self) -> Self:
        super().__enter__()
        wait_for("stock Kata has registered", lambda: self.plugin.is_connected, timeout_s=10)
        return self

    async def run_pod_sandbox(self, pod: PodSandbox) -> None:
        await super().run_pod_sandbox(pod)
        if pod.runtime_handler != self._handler:
            return
        boot_s, unreachable_s = self.boot_s(pod.name), self.unreachable_s(pod.name)
        self._guests[pod.id] = AsyncExitStack()
        if boot_s or unreachable_s:
            self._booting.spawn(self._come_up(pod, boot_s, unreachable_s), pod.name)
        else:
            await self._boot(pod)

    async def _come_up(self, pod: PodSandbox, boot_s: float, unreachable_s: float) -> None:
        await asyncio.sleep(boot_s)
        await self._boot(pod)
        if unreachable_s:
            await asyncio.sleep(_MOMENT_S)
            stack = self._guests.get(pod.id)
            if stack is not None:
                await stack.aclose()
            await asyncio.sleep(unreachable_s)
            await self._boot(pod)

    async def _boot(self, pod: PodSandbox) -> None:
        stack = self._guests.get(pod.id)
        if stack is None:
            return  # it has ended before
        tables = NamespaceTables(self._ring.node.outside(pod.network_namespace))
        quirks = AgentQuirks(policy=parse(OPENED_POLICY))
        await stack.enter_async_context(
            FakeKata(self._ring.directory, tables, sandbox_id=pod.id, quirks=quirks)
        )

    async def stop_pod_sandbox(self, pod: PodSandbox) -> None:
        await super().stop_pod_sandbox(pod)
        stack = self._guests.pop(pod.id, None)
        if stack is not None:
            await stack.aclose()

    async def stopping(self) -> None:
        await self._booting.close(1.0)
        for stack in self._guests.values():
            await stack.aclose()


class GuestAgents(WatchingPlugin):
    """Starts our agent in guests whose image has it, a while after their sandbox.

    It runs in the pod's network namespace, and its credentials are where kata-bridge keeps those of
    the sandbox: a node whose VMM shares that directory with the guest.
    """

    def __init__(self, ring: Ring, credentials: Path) -> None:
        """`credentials` has a directory for each sandbox."""
        super().__init__(ring.node.nri_socket, SANDBOXES, index="11")
        # How long a guest of this pod needs before its agent starts; None: it has none.
        self.boot_s: Callable[[str], float | None] = lambda _: None
        # Whether the first agent crashes as it begins, and is started again.
        self.is_crashing: Callable[[str], bool] = lambda _: False
        self._ring = ring
        self._credentials = credentials
        self._agent = install_agent(ring.directory) / "site-packages"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._booting = Tasks("boot")

    def __enter__(self) -> Self:
        super().__enter__()
        wait_for("agents' guests have registered", lambda: self.plugin.is_connected, timeout_s=10)
        return self

    async def run_pod_sandbox(self, pod: PodSandbox) -> None:
        await super().run_pod_sandbox(pod)
        boot_s = self.boot_s(pod.name)
        if boot_s is not None:
            self._booting.spawn(self._come_up(pod, boot_s), pod.name)

    async def _come_up(self, pod: PodSandbox, boot_s: float) -> None:
        await asyncio.sleep(boot_s)
        self._start(pod)
        if self.is_crashing(pod.name):
            await asyncio.sleep(_CRASH_S)
            self._end(pod.id)
            self._start(pod)

    def _start(self, pod: PodSandbox) -> None:
        if any((what, each.id) == ("stop", pod.id) for what, each in self.events):
            return  # it has ended before
        state = self._ring.directory / "agents" / pod.id
        state.mkdir(parents=True, exist_ok=True)
        node = f"tcp:{self._ring.node.namespace.address}:{AGENT_PORT}"
        argv = ["nsenter", f"--net={self._ring.node.outside(pod.network_namespace)}"]
        # This thread is the plugin's, and the agents end with it.
        argv += ["setpriv", "--pdeathsig", "KILL", sys.executable, "-ISEB", "-c", _AGENT]
        argv += [str(self._agent), "--node", node, "--credentials", str(self._credentials / pod.id)]
        with (state / "log").open("ab") as log:
            self._running[pod.id] = subprocess.Popen(
                [*argv, "--state", str(state)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _end(self, sandbox: str) -> None:
        process = self._running.pop(sandbox, None)
        if process is not None:
            process.kill()
            process.wait()

    async def stop_pod_sandbox(self, pod: PodSandbox) -> None:
        await super().stop_pod_sandbox(pod)
        self._end(pod.id)

    async def stopping(self) -> None:
        await self._booting.close(1.0)
        for sandbox in list(self._running):
            self._end(sandbox)


def install_agent(directory: Path) -> Path:
    """Put the guest's agent where pods can mount it, by its own packaging; returns where it is."""
    root = directory / "agent-root"
    if not root.exists():
        root.mkdir()
        overlay = _ROOT / "packaging" / "guest" / "overlay.sh"
        subprocess.run(["sh", str(overlay), str(root)], check=True, timeout=60)
    return root / "usr/lib/vcnode-guest"


# The machine's directories that the sidecar's container mounts read-only: an interpreter and a packet filter.
_MACHINE = {
    "/usr": "/usr",
    "/lib": "/usr/lib",
    "/lib64": "/usr/lib64",
    "/etc/alternatives": "/etc/alternatives",
}
_AGENT = (
    "import sys; sys.path.insert(0, sys.argv[1])\n"
    "from guest_agent.__main__ import main\n"
    "sys.exit(main(sys.argv[2:]))"
)


def with_agent(ring: Ring, spec: JsonObject) -> JsonObject:
    """The pod with our agent as a native sidecar, which dials the ring's node."""
    return with_agent_at(ring.directory, ring.node.namespace.address, spec)


def with_agent_at(directory: Path, node_address: str, spec: JsonObject) -> JsonObject:
    """The same for a node at that address: packaging/guest/sidecar.yaml without an image to pull."""
    (written,) = yaml.safe_load(_SIDECAR.read_text())["initContainers"]
    mounts = {**_MACHINE, "/agent": str(install_agent(directory))}
    if sys.base_prefix != "/usr":
        mounts[sys.base_prefix] = sys.base_prefix
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    arguments = list(written["args"])
    arguments[arguments.index("--node") + 1] = f"tcp:{node_address}:{AGENT_PORT}"
    kept = {key: written[key] for key in ("restartPolicy", "securityContext", "startupProbe")}
    sidecar = container(
        written["name"],
        [f"{sys.base_prefix}/bin/{version}", "-ISEB", "-c", _AGENT],
        **kept,
        args=["/agent/site-packages", *arguments],
        volumeMounts=[
            {"name": f"m{number}", "mountPath": where, "readOnly": True}
            for number, where in enumerate(mounts)
        ],
    )
    volumes = [
        {"name": f"m{number}", "hostPath": {"path": path}} for number, path in enumerate(mounts.values())
    ]
    return {**spec, "initContainers": [sidecar], "volumes": volumes}
