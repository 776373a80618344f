# SPDX-License-Identifier: Apache-2.0
"""The README's site, with the names and addresses of its examples.

A super cluster, a tenant's control plane, and `node-1` with containerd and kubelet. vcnode is not installed:
the README's commands do that.

The node's root is an empty Debian. containerd, the kubelet and the programs of both clusters are those of
the k8s ring; they share the node's /run, as on a real node.
"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from devkit.pki import Authority, Leaf
from tests.first_start.commands import ROOT
from tests.k8s.build import Binaries
from tests.k8s.ring import debian, shipped
from tests.k8s.ring.api import KubernetesApi
from tests.k8s.ring.certs import write_leaf
from tests.k8s.ring.controlplane import (
    Apiserver,
    Authorities,
    start_apiserver,
    start_control_plane,
    write_kubeconfig,
)
from tests.k8s.ring.dns_servers import start_controller
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.node import KubeletIdentity, RealNode
from tests.k8s.ring.processes import SYSTEM_PATH, RingError, RingProcess, run, wait_for
from tests.k8s.ring.tenants import HandSyncer, RingTenant

NODE, TENANT = "node-1", "tenant-1-70b001-test"
CONTROL_ADDRESS, TENANT_ADDRESS, NODE_ADDRESS = "10.0.0.1", "10.0.0.2", "10.0.0.11"
AGENT_PORT = 10550
# Where the README's reader has the checkout, in the node's root.
_CHECKOUT = "/root/vcnode"
_SHOWN = ("build/tree", "examples", "packaging")
_COMMAND_S = 120.0
# The node's root, seen from the node's namespaces. Later mounts below /run must be visible in both.
_MOUNTS = """
set -e
root=$1
mount --make-rshared /run
for each in /proc /sys /dev /run; do mkdir -p $root$each; mount --rbind $each $root$each; done
mkdir -p /var/lib/vcnode $root/var/lib/vcnode
mount --bind $root/var/lib/vcnode /var/lib/vcnode
"""


@dataclass(frozen=True, slots=True)
class Site:
    """The running site. `root` is the node's root, from outside."""

    directory: Path
    root: Path
    control: NetworkNamespace
    super_cluster: Apiserver
    super_kubectl: Kubectl
    tenant: RingTenant
    node: RealNode
    syncer: HandSyncer

    @property
    def api(self) -> KubernetesApi:
        return self.super_cluster.api

    def on_node(self, script: str, directory: str = _CHECKOUT) -> list[str]:
        """The command that runs a script as root on the node."""
        inside = ["chroot", str(self.root), "sh", "-ec", f"cd {directory}\n{script}"]
        return [*self.node.enter, "env", "-i", f"PATH={SYSTEM_PATH}", "LANG=C.UTF-8", *inside]

    def run_on_node(self, script: str, directory: str = _CHECKOUT) -> str:
        """Run it to its end; what it printed. Raises `RingError`."""
        return run(self.on_node(script, directory), timeout_s=_COMMAND_S).decode()

    def run_as_administrator(self, script: str) -> str:
        """Run it in a checkout where the super cluster's kubectl is; what it printed. Raises `RingError`."""
        kubectl = self.super_kubectl
        done = subprocess.run(
            [*self.control.enter, "sh", "-ec", script],
            cwd=ROOT,
            env={
                "PATH": f"{Path(kubectl.binary).parent}:{SYSTEM_PATH}",
                "KUBECONFIG": str(kubectl.kubeconfig),
                "HOME": str(self.directory),
            },
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        if done.returncode != 0:
            raise RingError(f"exit {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout


def start(binaries: Binaries, stack: ExitStack) -> tuple[Site, Authorities]:
    """Start everything but vcnode; `stack` stops it. Raises `RingError`."""
    tar = debian.archive()
    plane = start_control_plane(binaries, stack, CONTROL_ADDRESS, NODE_ADDRESS, [TENANT_ADDRESS])
    directory, control, worker = plane.directory, plane.control, plane.worker
    authorities, super_cluster = plane.authorities, plane.super_cluster
    tenant = _start_tenant(control, binaries, directory, authorities)
    stack.callback(tenant.apiserver.daemon.stop)
    root = directory / "root"
    debian.unpack(tar, root)
    node = RealNode(NODE, worker, binaries, directory, _kubelet(authorities, super_cluster, directory))
    super_cluster.wait_ready()
    stack.callback(start_controller("super", control, binaries, super_cluster, directory).stop)
    stack.callback(node.stop)
    node.start()
    run([*node.enter, "sh", "-c", _MOUNTS, "sh", str(root)])
    checkout = root / _CHECKOUT[1:]
    for name in _SHOWN:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        run(["cp", "-R", str(ROOT / name), str(checkout / name)])
    tenant.apiserver.wait_ready()
    site = Site(
        directory,
        root,
        control,
        super_cluster,
        Kubectl(control, binaries["kubectl"], super_cluster.kubeconfig),
        tenant,
        node,
        HandSyncer(super_cluster.api, NODE),
    )
    wait_for("node ready", lambda: _is_ready(site.api), timeout_s=60)
    site.syncer.create_vnode(tenant, NODE_ADDRESS, AGENT_PORT)
    return site, authorities


def give_certificates(site: Site, authorities: Authorities) -> None:
    """The files of the README's table, each key for the user of its directory."""
    pki = site.root / "etc/vcnode/pki"
    (pki / "super-ca.crt").write_bytes(site.super_cluster.authority.cert_pem)
    (pki / "kubelet-ca.crt").write_bytes(authorities.kubelet_serving.cert_pem)
    serving = authorities.agent_serving.issue(NODE, sans_ip=[NODE_ADDRESS], usages=("server",))
    _give(serving, pki / "vn-agent" / "serving")
    _give(
        authorities.kubelet_clients.issue(f"vcnode:vn-agent:{NODE}", usages=("client",)),
        pki / "vn-agent" / "kubelet-client",
    )
    for daemon in ("kata-bridge", "kubeproxy-ext", "dnsconfig"):
        _give(shipped.issue_user(site.super_cluster, daemon, NODE), pki / daemon / "client")
    # For `vcnode tenant add`, where the operator has them.
    home = site.root / "root"
    (home / "ca.crt").write_bytes(site.tenant.apiserver.authority.cert_pem)
    (home / "apiserver-kubelet-client.crt").write_bytes(site.tenant.client.cert_pem)


def _give(leaf: Leaf, stem: Path) -> None:
    files = write_leaf(leaf, stem)
    owner = stem.parent.stat()
    for path in (files.certificate, files.key):
        run(["chown", f"{owner.st_uid}:{owner.st_gid}", str(path)])


def start_script(site: Site, name: str, script: str) -> RingProcess:
    """Run a script that leaves programs in the background, for as long as the node is there."""
    argv = site.on_node(f"{script}\nwait")
    return RingProcess(name, argv, site.directory / f"{name}.log", enters_pid_namespace=True)


def _start_tenant(
    control: NetworkNamespace, binaries: Binaries, directory: Path, authorities: Authorities
) -> RingTenant:
    authority = Authority.create("kubernetes")
    client = authority.issue("kube-apiserver-kubelet-client", usages=("client",))
    apiserver = start_apiserver(
        "tenant",
        control,
        TENANT_ADDRESS,
        binaries,
        directory,
        kubelet_client=client,
        kubelet_authority_pem=authorities.agent_serving.cert_pem,
        authority=authority,
        service_cidrs=("10.32.0.0/16",),
    )
    kubectl = Kubectl(control, binaries["kubectl"], apiserver.kubeconfig, "shop")
    return RingTenant(TENANT, apiserver, kubectl, client, client)


def _kubelet(authorities: Authorities, super_cluster: Apiserver, directory: Path) -> KubeletIdentity:
    leaf = authorities.kubelet_serving.issue(
        NODE, sans_ip=[NODE_ADDRESS], sans_dns=[NODE], usages=("server",)
    )
    serving = write_leaf(leaf, directory / "kubelet-serving")
    clients = directory / "kubelet-clients.crt"
    clients.write_bytes(authorities.kubelet_clients.cert_pem)
    user = super_cluster.authority.issue(
        f"system:node:{NODE}", organization="system:nodes", usages=("client",)
    )
    endpoint = replace(super_cluster.api.endpoint, leaf=user)
    server = f"https://{endpoint.address}:{endpoint.port}"
    return KubeletIdentity(serving, clients, write_kubeconfig(directory / "kubelet-user", server, endpoint))


def _is_ready(api: KubernetesApi) -> bool:
    conditions = [
        each for node in api.get("/api/v1/nodes")["items"] for each in node["status"].get("conditions", [])
    ]
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
