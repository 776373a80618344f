# SPDX-License-Identifier: Apache-2.0
"""The lab's machines: booted Debians, with containerd, kubelet and a control plane of the k8s ring.

`lab/provision` makes everything else, by the scripts that Vagrant runs. What kubeadm would have made is here:
the super cluster's control plane, its files in /etc/kubernetes of the control machine, and the kubelets.
The tenants' static pods run as processes of the control machine.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml

from devkit.pki import Authority, Leaf
from tests.k8s.build import Binaries
from tests.k8s.ring import cgroups, controllers, images, network, traces
from tests.k8s.ring.booted import BootedNode, Host
from tests.k8s.ring.controlplane import Apiserver, Authorities, start_apiserver, start_etcd
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import RingProcess, run
from tests.k8s.syncer import provisioned
from tests.k8s.syncer.node import ClusterParts, start_bare_node, start_kube_proxy
from tests.lab_nodes.topology import LAB, Topology, Worker

_REPOSITORY = LAB.parent
# Long enough for a machine that builds beside it.
_SCRIPT_S = 400.0
_SHARED = "/srv/lab"
_KUBERNETES = "/etc/kubernetes"
# What the scripts look up in kubeadm's manifests.
_SUPER_MANIFESTS = {
    "kube-apiserver": "    - --etcd-servers=http://127.0.0.1:2379\n",
    "kube-controller-manager": "",
}


@dataclass(frozen=True, slots=True)
class _ControlHost:
    """Where the control machine is booted: the network of the control planes."""

    name: str
    namespace: NetworkNamespace

    @property
    def enter(self) -> list[str]:
        """The command prefix that runs a program there, in mount and process namespaces of its own."""
        fresh = 'mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /var/lib; exec "$@"'
        return [
            *("nsenter", f"--net={self.namespace.path}", "setpriv", "--pdeathsig", "KILL"),
            *("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"),
            *("sh", "-ec", fresh, "sh"),
        ]


@dataclass(slots=True)
class Machines:
    """The machines, by name. Each step is passed to `say`."""

    directory: Path
    topology: Topology
    binaries: Binaries
    by_name: dict[str, BootedNode]
    say: Callable[[str], None]

    @property
    def control(self) -> BootedNode:
        return self.by_name[self.topology.control]

    def key_of(self, tenant: str) -> str:
        """The cluster key that the scripts gave it. Raises `RingError`."""
        return self.control.run(f"cat {_SHARED}/tenants/{tenant}/key").strip()

    def provision(self, machine: str, script: str, *arguments: str) -> str:
        """Run a script of `lab/provision` there; what it printed. Raises `RingError`."""
        began = time.monotonic()
        command = shlex.join([f"/vagrant/lab/provision/{script}.sh", *arguments])
        printed = self.by_name[machine].run(f"{command} 2>&1", timeout_s=_SCRIPT_S)
        self.say(f"{machine}: {' '.join([script, *arguments])}: {time.monotonic() - began:.0f} s")
        return printed


def start(
    binaries: Binaries, topology: Topology, packages: Path, stack: ExitStack, say: Callable[[str], None]
) -> Machines:
    """Boot and provision all machines; `stack` stops them. `packages` has the debs. Raises `RingError`."""
    directory, prefix = traces.open_directory(stack, "vclab")
    cgroups.create(prefix)
    stack.callback(cgroups.remove, prefix)
    control = NetworkNamespace(f"{prefix}-cp", topology.control_address)
    workers = [NetworkNamespace(f"{prefix}-{each.name}", each.address) for each in topology.workers]
    stack.callback(network.delete, [control.name, *(worker.name for worker in workers)])
    pods = [each.pods for each in topology.workers]
    network.create_bridged(control, list(zip(workers, pods, strict=True)), more=[])

    super_cluster = _start_super_cluster(binaries, topology, control, directory, stack)
    lab = Machines(directory, topology, binaries, {}, say)
    host = _ControlHost(topology.control, control)
    programs = ("kubectl", "kube-apiserver", "kube-controller-manager")
    _boot(lab, host, packages, stack, {f"/usr/local/bin/{name}": Path(binaries[name]) for name in programs})
    _leave_what_kubeadm_leaves(lab, super_cluster)
    lab.provision(topology.control, "authorities")
    for name, port in topology.tenants.items():
        lab.provision(topology.control, "tenant-control-plane", name, str(port))
        _run_static_pod(lab, f"tenant-{name}", stack)
    for name in topology.tenants:
        lab.provision(topology.control, "tenant", name)
    lab.provision(topology.control, "vc-syncer")
    for worker, namespace in zip(topology.workers, workers, strict=True):
        _start_worker(lab, worker, namespace, super_cluster, packages, stack)
    return lab


def _start_super_cluster(
    binaries: Binaries, topology: Topology, control: NetworkNamespace, directory: Path, stack: ExitStack
) -> Apiserver:
    """With one authority, as kubeadm has it."""
    stack.callback(start_etcd(control, binaries, directory).stop)
    authority = Authority.create("kubernetes")
    apiserver = start_apiserver(
        "super",
        control,
        topology.control_address,
        binaries,
        directory,
        authority=authority,
        kubelet_client=authority.issue(
            "kube-apiserver-kubelet-client", organization="system:masters", usages=("client",)
        ),
        kubelet_authority_pem=authority.cert_pem,
        service_cidrs=(topology.service_cidr,),
        is_whole=True,
    )
    stack.callback(apiserver.daemon.stop)
    apiserver.wait_ready()
    for start_program in (controllers.start_controllers, controllers.start_scheduler):
        stack.callback(start_program(control, binaries, apiserver, directory).stop)
    return apiserver


def _boot(
    lab: Machines,
    host: Host,
    packages: Path,
    stack: ExitStack,
    programs: dict[str, Path],
) -> None:
    directory = lab.directory / f"booted-{host.name}"
    directory.mkdir()
    shared = {
        "/vagrant/README.md": _REPOSITORY / "README.md",
        "/vagrant/lab": LAB,
        "/vagrant/packaging": _REPOSITORY / "packaging",
        "/vagrant/dist": packages,
        **programs,
    }
    machine = BootedNode(host, f"{lab.directory.name}/booted-{host.name}", directory, shared)
    stack.callback(machine.stop)
    machine.start()
    lab.by_name[host.name] = machine


def _leave_what_kubeadm_leaves(lab: Machines, super_cluster: Apiserver) -> None:
    authority = super_cluster.authority
    lab.control.write(f"{_KUBERNETES}/pki/ca.crt", authority.cert_pem)
    lab.control.write(f"{_KUBERNETES}/pki/ca.key", Leaf.of(authority.certificate, authority.key).key_pem)
    admin = provisioned.kubeconfig(super_cluster.api.endpoint)
    lab.control.write(f"{_KUBERNETES}/admin.conf", admin.encode())
    for name, lines in _SUPER_MANIFESTS.items():
        manifest = f"    - {name}\n{lines}    image: registry.k8s.io/{name}:of-the-tests\n"
        lab.control.write(f"{_KUBERNETES}/manifests/{name}.yaml", manifest.encode())


def _run_static_pod(lab: Machines, name: str, stack: ExitStack) -> None:
    """Start the containers of a manifest as processes of the control machine."""
    pod = yaml.safe_load((lab.control.root / f"etc/kubernetes/manifests/{name}.yaml").read_text())
    for container in pod["spec"]["containers"]:
        process = RingProcess(
            f"{container['name']} of {name}",
            lab.control.command(f"exec {shlex.join(container['command'])}"),
            lab.directory / f"{name}-{container['name']}.log",
            enters_pid_namespace=True,
        )
        stack.callback(process.stop)


def _start_worker(
    lab: Machines,
    worker: Worker,
    namespace: NetworkNamespace,
    super_cluster: Apiserver,
    packages: Path,
    stack: ExitStack,
) -> None:
    authority = super_cluster.authority
    cluster = ClusterParts(
        lab.directory, lab.binaries, Authorities(authority, authority, authority), super_cluster, ()
    )
    node = start_bare_node(worker.name, namespace, worker.pods, cluster, stack)
    directory = lab.directory / worker.name
    busybox, coredns = directory / "lab-busybox.tar", directory / "lab-coredns.tar"
    images.write_busybox_image(busybox, lab.topology.busybox_image)
    images.write_coredns_image(coredns, lab.binaries["coredns"], lab.topology.coredns_image)
    for archive in (busybox, coredns):
        node.import_image(archive)
    stack.callback(start_kube_proxy(node, super_cluster, lab.binaries, directory).stop)
    _boot(lab, node, packages, stack, {})
    # As kubernetes.sh fetches it.
    files = run(lab.control.command(f"tar --create --directory {_SHARED} tenants {worker.name}"))
    unpack = f"install -d -m 700 {_SHARED}; tar --extract --directory {_SHARED}"
    run(lab.by_name[worker.name].command(unpack), stdin=files)
    lab.provision(worker.name, "worker", worker.name)
