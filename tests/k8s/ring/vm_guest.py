# SPDX-License-Identifier: Apache-2.0
"""The VM of a sandbox: User-mode Linux in the pod's network namespace, wired to it as Kata wires its VMs.

    cni0 ── eth0 of the pod ── bridge ── tap ── vec0 of the guest, which has the pod's address
                       10.255.0.1 ── tap ── vec1 of the guest, for the test's commands

The sandbox and its containers are runc's, as everywhere in this ring: they show when the runtime lets a
container start. Rules, agent and Services are the guest's.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kata_bridge.nri.dispatch import Deny
from kata_bridge.nri.events import SANDBOXES, Event
from kata_bridge.nri.messages import Container, ContainerAdjustment, PodSandbox
from tests.k8s.ring import services
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import AGENT_PORT
from tests.k8s.ring.nri import WatchingPlugin
from tests.k8s.ring.processes import SYSTEM_PATH, wait_for
from tests.lab.namespaces import LabNamespace
from tests.lab_vm.build import DEFAULT_CACHE, find_kernel
from tests.lab_vm.image import Image, make_root
from tests.lab_vm.kernels import legacy
from tests.lab_vm.machine import Machine

_KERNEL = legacy(find_kernel(DEFAULT_CACHE))
_TAPS = "podtap", "ctltap"
_CONTROL_NODE, _CONTROL_GUEST = "10.255.0.1/24", "10.255.0.2"
# The init of guests needs addresses of both families; this one is alone in its prefix.
_ADDRESS6, _GATEWAY6 = "fd00:88::2/64", "fd00:88::1"
_SANDBOX_S = 30.0


@dataclass(frozen=True, slots=True)
class PodNamespace(LabNamespace):
    """A pod's network namespace, which has its name in the node's own /run."""

    file: Path = field(kw_only=True)

    @property
    def path(self) -> Path:
        return self.file


class VmSandboxes(WatchingPlugin):
    """Wires a pod's sandbox for a VM before kata-bridge receives its event: its address is then the VM's."""

    def __init__(self, ring: Ring, pod: str) -> None:
        super().__init__(ring.node.nri_socket, SANDBOXES, index="12")
        self.namespace: PodNamespace | None = None
        self.address = ""
        self._ring = ring
        self._pod = pod

    async def run_pod_sandbox(self, pod: PodSandbox) -> None:
        if pod.name == self._pod:
            await asyncio.to_thread(self._wire, pod)
        await super().run_pod_sandbox(pod)

    def _wire(self, pod: PodSandbox) -> None:
        file = self._ring.node.outside(pod.network_namespace)
        made = PodNamespace(pod.name, {"PATH": SYSTEM_PATH}, file=file)
        (interface,) = json.loads(made.run("ip", "-j", "-4", "addr", "show", "dev", "eth0"))
        (address,) = interface["addr_info"]
        self.address = f"{address['local']}/{address['prefixlen']}"
        pod_tap, control_tap = _TAPS
        commands = [
            "link add vm type bridge forward_delay 0 mcast_snooping 0",
            *(f"tuntap add {tap} mode tap" for tap in _TAPS),
            "addr flush dev eth0",
            "link set eth0 master vm",
            f"link set {pod_tap} master vm up",
            "link set vm up",
            f"addr add {_CONTROL_NODE} dev {control_tap}",
            f"link set {control_tap} up",
        ]
        made.run("ip", "-batch", "-", stdin="\n".join(commands))
        made.run("sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0")
        self.namespace = made


class Admissions(WatchingPlugin):
    """Reads the rules of a VM at the moment when a container of its pod was admitted.

    It is the last of the plugins, which the runtime calls only if no earlier one denies the container.
    """

    def __init__(self, ring: Ring, pod: str) -> None:
        super().__init__(ring.node.nri_socket, frozenset({Event.CREATE_CONTAINER}), index="90")
        self.machine: Machine | None = None
        self.rules: list[str] = []
        """The rules of the VM at each admission; empty where there was no VM."""
        self._pod = pod

    async def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment | Deny:
        if pod.name == self._pod:
            self.rules.append(await asyncio.to_thread(self._read))
        return await super().create_container(pod, container)

    def _read(self) -> str:
        try:
            return self.machine.output(*_KERNEL.rules) if self.machine is not None else ""
        except (OSError, ValueError):
            return ""


class Vm:
    """The VM of one pod: not there until `machine` is started."""

    def __init__(self, pod: services.TenantPod, sandboxes: VmSandboxes, admissions: Admissions) -> None:
        self.pod = pod
        self.machine: Machine
        self._sandboxes, self._admissions = sandboxes, admissions
        self._ring = pod.ring

    @property
    def rules_at_admission(self) -> list[str]:
        """What was in the VM each time when a container of the pod was admitted."""
        return self._admissions.rules

    @property
    def namespace(self) -> PodNamespace:
        """The pod's network namespace, on the node."""
        assert self._sandboxes.namespace is not None
        return self._sandboxes.namespace

    def sandbox(self) -> PodSandbox:
        """Wait for the pod's sandbox."""
        name = self.pod.name
        return wait_for("its sandbox", lambda: self._sandboxes.pod("run", name), timeout_s=_SANDBOX_S)

    def prepare(self) -> Machine:
        """Make the VM's image and its root; it is not started."""
        directory = self._ring.directory / "vm"
        directory.mkdir()
        node = self._ring.node.namespace.address
        variables = {
            "POD_ADDRESS": self._sandboxes.address,
            "POD_ADDRESS6": _ADDRESS6,
            "POD_GATEWAY": f"{self._sandboxes.address.rpartition('.')[0]}.1",
            "POD_GATEWAY6": _GATEWAY6,
            "NODE_LINK_ADDRESS": f"{_CONTROL_GUEST}/24",
            "NODE": f"tcp:{node}:{AGENT_PORT}",
            "VSOCK_DEVICE": "",
        }
        image = Image.build(directory / "image")
        make_root(directory / "root", variables, variant="legacy")
        self.machine = Machine(
            "vm",
            directory,
            _KERNEL,
            image,
            self.namespace,
            taps=_TAPS,
            number=88,
            link_address=_CONTROL_GUEST,
        )
        self._admissions.machine = self.machine
        return self.machine

    def fetch(self, ip: str, port: int = services.PORT) -> str:
        """The last line of a page, as a process of the VM finds it, or why there is none."""
        request = shlex.quote("GET / HTTP/1.0\\r\\n\\r\\n")
        script = f"exec 3<>/dev/tcp/{ip}/{port} && printf {request} >&3 && tail -n 1 <&3"
        ended = self.machine.run("timeout", "5", "bash", "-c", script)
        return ended.output or ended.errors


@contextmanager
def vm_of(pod: services.TenantPod, sandboxes: VmSandboxes, admissions: Admissions) -> Iterator[Vm]:
    """The VM of a pod; what was started of it is ended."""
    made = Vm(pod, sandboxes, admissions)
    made.sandbox()
    machine = made.prepare()
    try:
        yield made
    finally:
        machine.stop()


@contextmanager
def watching(ring: Ring, pod: str) -> Iterator[tuple[VmSandboxes, Admissions]]:
    """Both plugins, for a pod of that name that is created after."""
    with VmSandboxes(ring, pod) as sandboxes, Admissions(ring, pod) as admissions:
        for each in (sandboxes, admissions):
            wait_for("it has registered", lambda: each.plugin.is_connected, timeout_s=10)  # noqa: B023 - used at once
        yield sandboxes, admissions
