# SPDX-License-Identifier: Apache-2.0
"""The lab's machines: booted Debians, with containerd, kubelet and a control plane of the k8s ring.

`lab/provision` makes everything else, by the scripts that Vagrant runs. What kubeadm would have made is here:
the super cluster's control plane, its files in /etc/kubernetes of the control machine, the kubelets, cluster
DNS and volumes. Images that a registry would have are imported under the same names.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from devkit.pki import Authority, Leaf
from tests.k8s.build import Binaries
from tests.k8s.operator import storage
from tests.k8s.ring import cgroups, cluster_dns, controllers, network, traces
from tests.k8s.ring.booted import BootedNode, Host
from tests.k8s.ring.controlplane import Apiserver, Authorities, start_apiserver, start_etcd
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import RingError, run
from tests.k8s.syncer import provisioned
from tests.k8s.syncer.node import ClusterParts, start_bare_node, start_kube_proxy
from tests.lab_nodes import registry
from tests.lab_nodes.topology import LAB, Topology, Worker

_REPOSITORY = LAB.parent
# Long enough for a machine that builds beside it.
_SCRIPT_S = 400.0
_SHARED = "/srv/lab"
# What the scripts read, beside themselves.
_OF_REPOSITORY = ("README.md", "tests/guide.py", "packaging", "examples")
_KUBERNETES = "/etc/kubernetes"
_LOOK = f"""set +e
if [ -e {_KUBERNETES}/admin.conf ]; then
    export KUBECONFIG={_KUBERNETES}/admin.conf
    kubectl get pods,virtualclusters --all-namespaces --output wide
    kubectl get events --all-namespaces --field-selector type=Warning
    for each in vc-operator vc-syncer; do
        kubectl logs --namespace vcnode-system --selector "app=$each" --tail=60 --prefix
    done
fi
vcnode status
vcnode guests
journalctl --no-pager --lines=100 --output=short-precise
"""
# As kubeadm has it.
_CLUSTER_DNS = "10.96.0.10"


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
        """The cluster key that vc-operator gave it. Raises `RingError`."""
        asked = f"get virtualcluster {tenant} --namespace team-{tenant}"
        path = "--output 'jsonpath={.status.clusterNamespace}'"
        return self.control.run(f"kubectl --kubeconfig={_KUBERNETES}/admin.conf {asked} {path}").strip()

    def provision(self, machine: str, script: str, *arguments: str) -> str:
        """Run a script of `lab/provision` there; what it printed. Raises `RingError`."""
        began = time.monotonic()
        command = shlex.join([f"/vagrant/lab/provision/{script}.sh", *arguments])
        try:
            printed = self.by_name[machine].run(f"{command} 2>&1", timeout_s=_SCRIPT_S)
        except RingError as error:
            raise RingError(f"{machine}: {error}\n{self._state()}") from None
        self.say(f"{machine}: {' '.join([script, *arguments])}: {time.monotonic() - began:.0f} s")
        return printed

    def _state(self) -> str:
        """What a person would look at."""
        return "\n".join(f"{name}:\n{each.try_run(_LOOK)[1]}" for name, each in self.by_name.items())


def start(
    binaries: Binaries,
    topology: Topology,
    packages: Path,
    tree: Path,
    stack: ExitStack,
    say: Callable[[str], None],
) -> Machines:
    """Boot and provision all machines; `stack` stops them. Raises `RingError`.

    `packages` has the debs, `tree` is what they were made of.
    """
    directory, prefix = traces.open_directory(stack, "vclab")
    cgroups.create(prefix)
    stack.callback(cgroups.remove, prefix)
    control = NetworkNamespace(f"{prefix}-cp", topology.control_address)
    workers = [NetworkNamespace(f"{prefix}-{each.name}", each.address) for each in topology.workers]
    stack.callback(network.delete, [control.name, *(worker.name for worker in workers)])
    pods = [each.pods for each in topology.workers]
    network.create_bridged(control, list(zip(workers, pods, strict=True)), more=[])

    # It takes as long as all until the first worker.
    archives = ThreadPoolExecutor(1).submit(registry.write, binaries, topology, tree, directory)
    super_cluster = _start_super_cluster(binaries, topology, control, directory, stack)
    lab = Machines(directory, topology, binaries, {}, say)
    host = _ControlHost(topology.control, control)
    _boot(lab, host, packages, stack, {"/usr/local/bin/kubectl": Path(binaries["kubectl"])})
    _leave_what_kubeadm_leaves(lab, super_cluster)
    lab.provision(topology.control, "authorities")
    began = time.monotonic()
    images = archives.result()
    say(f"{len(images)} images: {time.monotonic() - began:.0f} s more")
    for worker, namespace in zip(topology.workers, workers, strict=True):
        _start_worker(lab, worker, namespace, super_cluster, packages, images, stack)
    cluster_dns.install(super_cluster.api, _CLUSTER_DNS, topology.coredns_image)
    cluster_dns.wait_ready(super_cluster.api)
    directories = {worker.name: directory / worker.name for worker in topology.workers}
    stack.enter_context(storage.provisioning(super_cluster.api, directories))
    lab.provision(topology.control, "tenants")
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
        "/vagrant/lab": LAB,
        **{f"/vagrant/{name}": _REPOSITORY / name for name in _OF_REPOSITORY},
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


def _start_worker(
    lab: Machines,
    worker: Worker,
    namespace: NetworkNamespace,
    super_cluster: Apiserver,
    packages: Path,
    images: list[Path],
    stack: ExitStack,
) -> None:
    authority = super_cluster.authority
    cluster = ClusterParts(
        lab.directory,
        lab.binaries,
        Authorities(authority, authority, authority),
        super_cluster,
        (),
        _CLUSTER_DNS,
    )
    node = start_bare_node(worker.name, namespace, worker.pods, cluster, stack)
    directory = lab.directory / worker.name
    for archive in images:
        node.import_image(archive)
    stack.callback(start_kube_proxy(node, super_cluster, lab.binaries, directory).stop)
    _boot(lab, node, packages, stack, {})
    # As kubernetes.sh fetches it.
    files = run(lab.control.command(f"tar --create --directory {_SHARED} {worker.name}"))
    unpack = f"install -d -m 700 {_SHARED}; tar --extract --directory {_SHARED}"
    run(lab.by_name[worker.name].command(unpack), stdin=files)
    lab.provision(worker.name, "worker", worker.name)
