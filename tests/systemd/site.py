# SPDX-License-Identifier: Apache-2.0
"""The install guide's site, with the names and addresses of its examples.

A super cluster, a tenant's control plane, and `node-1` with containerd and kubelet. vcnode is not installed:
the guide's commands do that, some of them where an administrator has the cluster's authority, the others on
the node. containerd, the kubelet and the programs of both clusters are those of the k8s ring.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from devkit.pki import Authority, Leaf
from tests.guide import ROOT
from tests.k8s.build import Binaries
from tests.k8s.ring.api import KubernetesApi
from tests.k8s.ring.booted import BootedNode
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
from tests.k8s.ring.processes import SYSTEM_PATH, RingError, run, wait_for
from tests.k8s.ring.tenants import HandSyncer, RingTenant

NODE, TENANT = "node-1", "tenant-1-70b001-test"
CONTROL_ADDRESS, TENANT_ADDRESS, NODE_ADDRESS = "10.0.0.1", "10.0.0.2", "10.0.0.11"
AGENT_PORT = 10550
# Where the guide's reader has copied the packages to.
PACKAGES, PREVIOUS = "/root/packages", "/root/previous"
_COMMAND_S = 120.0


@dataclass(frozen=True, slots=True)
class Site:
    """The running site. `desk` is the administrator's working directory."""

    directory: Path
    desk: Path
    control: NetworkNamespace
    super_cluster: Apiserver
    super_kubectl: Kubectl
    authorities: Authorities
    node: RealNode
    booted: BootedNode

    @property
    def api(self) -> KubernetesApi:
        return self.super_cluster.api

    @property
    def syncer(self) -> HandSyncer:
        return HandSyncer(self.api, NODE)

    def run_as_administrator(self, script: str) -> str:
        """Run it in a checkout where the super cluster's kubectl is; what it printed. Raises `RingError`."""
        kubectl = self.super_kubectl
        done = subprocess.run(
            [*self.control.enter, "sh", "-ec", script],
            cwd=self.desk,
            env={
                "PATH": f"{Path(sys.executable).parent}:{Path(kubectl.binary).parent}:{SYSTEM_PATH}",
                "KUBECONFIG": str(kubectl.kubeconfig),
                "HOME": str(self.desk),
            },
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        if done.returncode != 0:
            raise RingError(f"exit {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout


def start(binaries: Binaries, stack: ExitStack, packages: Path, previous: Path) -> Site:
    """Start everything but vcnode and the tenant; `stack` stops it.

    The node sees the directories `packages` and `previous`, read-only. Raises `RingError`.
    """
    plane = start_control_plane(binaries, stack, CONTROL_ADDRESS, NODE_ADDRESS, [TENANT_ADDRESS])
    directory, control, super_cluster = plane.directory, plane.control, plane.super_cluster
    identity = _kubelet(plane.authorities, super_cluster, directory)
    node = RealNode(NODE, plane.worker, binaries, directory, identity)
    super_cluster.wait_ready()
    stack.callback(start_controller("super", control, binaries, super_cluster, directory).stop)
    stack.callback(node.stop)
    node.start()
    booted = BootedNode(node, f"{directory.name}/booted", directory, {PACKAGES: packages, PREVIOUS: previous})
    stack.callback(booted.stop)
    booted.start()
    site = Site(
        directory,
        _administrators_desk(directory, super_cluster, plane.authorities),
        control,
        super_cluster,
        Kubectl(control, binaries["kubectl"], super_cluster.kubeconfig),
        plane.authorities,
        node,
        booted,
    )
    wait_for("node ready", lambda: _is_ready(site.api), timeout_s=60)
    return site


def copy_bundle(site: Site) -> None:
    """To the node, as the guide says."""
    files = run(["tar", "--create", "--directory", str(site.desk), NODE])
    run(site.booted.command("tar --extract"), stdin=files)


def start_tenant(site: Site, binaries: Binaries, stack: ExitStack) -> RingTenant:
    """A tenant's control plane that trusts the authority of `vcnode init ca`, with its vNode.

    Raises `RingError`.
    """
    authority = Authority.create("kubernetes")
    client = authority.issue("kube-apiserver-kubelet-client", usages=("client",))
    apiserver = start_apiserver(
        "tenant",
        site.control,
        TENANT_ADDRESS,
        binaries,
        site.directory,
        kubelet_client=client,
        kubelet_authority_pem=(site.desk / "authorities/serving-ca.crt").read_bytes(),
        authority=authority,
        service_cidrs=("10.32.0.0/16",),
    )
    stack.callback(apiserver.daemon.stop)
    apiserver.wait_ready()
    tenant = RingTenant(
        TENANT,
        apiserver,
        Kubectl(site.control, binaries["kubectl"], apiserver.kubeconfig, "shop"),
        client,
        client,
    )
    site.syncer.create_namespace(tenant, "kube-system")
    site.syncer.create_vnode(tenant, NODE_ADDRESS, AGENT_PORT)
    # For `vcnode tenant add`, where the operator has them.
    site.booted.write("/root/ca.crt", authority.cert_pem)
    site.booted.write("/root/apiserver-kubelet-client.crt", client.cert_pem)
    return tenant


def _administrators_desk(directory: Path, super_cluster: Apiserver, authorities: Authorities) -> Path:
    desk = directory / "desk"
    pki = desk / "pki"
    pki.mkdir(parents=True)
    for name in ("packaging", "examples"):
        (desk / name).symlink_to(ROOT / name)
    (pki / "ca.crt").write_bytes(super_cluster.authority.cert_pem)
    key = pki / "ca.key"
    key.touch(mode=0o600)
    key.write_bytes(Leaf.of(super_cluster.authority.certificate, super_cluster.authority.key).key_pem)
    (pki / "kubelet-ca.crt").write_bytes(authorities.kubelet_serving.cert_pem)
    return desk


def _kubelet(authorities: Authorities, super_cluster: Apiserver, directory: Path) -> KubeletIdentity:
    leaf = authorities.kubelet_serving.issue(
        NODE, sans_ip=[NODE_ADDRESS], sans_dns=[NODE], usages=("server",)
    )
    serving = write_leaf(leaf, directory / "kubelet-serving")
    clients = directory / "kubelet-clients.crt"
    # As kubeadm has it, the cluster's authority; and that of the ring's own API server.
    clients.write_bytes(authorities.kubelet_clients.cert_pem + super_cluster.authority.cert_pem)
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
