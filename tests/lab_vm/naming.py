# SPDX-License-Identifier: Apache-2.0
"""Guests of two tenants with DNS: control planes, stock CoreDNS in each network, dnsconfig and kubeproxy-ext
beside kata-bridge.

A server runs in its network's VPC at a non-standard port. Guests reach it only at a cluster IP, by their own
rules.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from daemonkit.status.server import StatusError, fetch
from ruleset.model import Endpoint
from tests.k8s.build import Binaries
from tests.k8s.ring import shipped
from tests.k8s.ring.dns_servers import ServerAddress, start_controller, start_server
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import RingProcess
from tests.lab.namespaces import Lab
from tests.lab_vm.build import DEFAULT_CACHE, find_kernel
from tests.lab_vm.image import SOURCE
from tests.lab_vm.kernels import legacy
from tests.lab_vm.objects import NAMESPACE, NODE, PORT, ClusterObjects, VmPod, VmService
from tests.lab_vm.planes import SUPER_CIDR, TENANT_CIDR, TENANTS, Planes, start_planes
from tests.lab_vm.site import Plan, Site, vpc

SERVER, SERVER_PORT = "10.0.0.53", 5353
_READY_S = 40.0


@dataclass(frozen=True, slots=True)
class NamedNetwork:
    """A network with one guest in it, other pods and their Services; `dns_ip` is its server's."""

    plan: Plan
    dns_ip: str
    pods: tuple[VmPod, ...]
    services: tuple[VmService, ...]

    @property
    def key(self) -> tuple[str, str]:
        return self.plan.tenant, self.plan.network


# All guests have one address, and all servers another: their networks are separate. Tenants allocate the same
# cluster IPs.
RED_A = NamedNetwork(
    Plan("a1", "vc-a", 11, "nft", is_vsock=False, network="red", namespace=NAMESPACE),
    "10.96.0.10",
    (
        VmPod("web-0", "10.0.0.21", "web"),
        VmPod("db-0", "10.0.0.31", "db", "db-0"),
        VmPod("db-1", "10.0.0.32", "db", "db-1"),
    ),
    (VmService("web", "web", "10.32.0.10"), VmService("db", "db")),
)
BLUE_A = NamedNetwork(
    Plan("a2", "vc-a", 11, "legacy", is_vsock=True, network="blue", namespace=NAMESPACE),
    "10.96.0.11",
    (VmPod("stock-0", "10.0.0.22", "stock"),),
    (VmService("stock", "stock", "10.32.0.11"),),
)
RED_B = NamedNetwork(
    Plan("b1", "vc-b", 11, "legacy", is_vsock=True, network="red", namespace=NAMESPACE),
    "10.96.0.12",
    (VmPod("front-0", "10.0.0.22", "front"), VmPod("db-0", "10.0.0.32", "db", "db-0")),
    (VmService("front", "front", "10.32.0.10"), VmService("db", "db")),
)
NETWORKS = (RED_A, BLUE_A, RED_B)


@dataclass(frozen=True, slots=True)
class Servers:
    """The latest CoreDNS of each network; `stack` stops all of them."""

    planes: Planes
    site: Site
    binaries: Binaries
    directory: Path
    stack: ExitStack
    running: dict[tuple[str, str], RingProcess] = field(default_factory=dict)

    def start(self, network: NamedNetwork, address: str) -> None:
        """Start one in the network's VPC, and wait until it has synced."""
        namespace = self.planes.dns_namespaces[network.key]
        self.site.network.attach(vpc(network.plan), namespace, address)
        server_address = ServerAddress(NetworkNamespace(namespace.name, address), address, SERVER_PORT)
        key, name = network.key
        apiserver = self.planes.tenants[key].apiserver
        daemon = start_server(key, name, server_address, self.binaries, apiserver, self.directory)
        self.stack.callback(daemon.stop)
        self.running[network.key] = daemon


@dataclass(frozen=True, slots=True)
class Names:
    """The running node, its objects and its DNS servers."""

    site: Site
    cluster_objects: ClusterObjects
    servers: Servers

    def move(self, network: NamedNetwork, ip: str) -> None:
        """Give a network's DNS server another cluster IP."""
        self._route_to(network, ip, SERVER)

    def replace_server(self, network: NamedNetwork, address: str) -> None:
        """Start a server at another address and end the one before; the cluster IP stays."""
        before = self.servers.running[network.key]
        self.servers.start(network, address)
        self._route_to(network, network.dns_ip, address)
        before.stop()

    def _route_to(self, network: NamedNetwork, ip: str, address: str) -> None:
        tenant = self.cluster_objects.planes.tenants[network.plan.tenant]
        self.cluster_objects.dns_service(tenant, network.plan.network, ip, address, SERVER_PORT)


@contextmanager
def serving_names(binaries: Binaries, directory: Path) -> Iterator[Names]:
    """Start it all; `directory` gets the logs of processes."""
    with ExitStack() as stack:
        lab = stack.enter_context(Lab(directory))
        planes = start_planes(lab, binaries, directory, [each.key for each in NETWORKS], stack)
        cluster_objects = ClusterObjects(planes)
        cluster_objects.begin()
        for key, tenant in planes.tenants.items():
            controller = start_controller(key, planes.control, binaries, tenant.apiserver, directory)
            stack.callback(controller.stop)
        plans = [_fill(cluster_objects, network) for network in NETWORKS]
        ips = sorted({pod.address for network in NETWORKS for pod in network.pods})
        site = stack.enter_context(
            Site(plans, [Endpoint(ip, PORT) for ip in ips], kernel=legacy(find_kernel(DEFAULT_CACHE)))
        )
        servers = Servers(planes, site, binaries, directory, stack)
        for network in NETWORKS:
            servers.start(network, SERVER)
        _start_daemons(planes, site, directory, stack)
        yield Names(site, cluster_objects, servers)


def _fill(cluster_objects: ClusterObjects, network: NamedNetwork) -> Plan:
    """Make a network's objects, its guest's pod too; returns the guest's plan with the pod's UID."""
    tenant, plan = cluster_objects.planes.tenants[network.plan.tenant], network.plan
    cluster_objects.network(tenant, plan.network)
    cluster_objects.dns_service(tenant, plan.network, network.dns_ip, SERVER, SERVER_PORT)
    for pod in network.pods:
        cluster_objects.pod(tenant, plan.network, pod)
    for service in network.services:
        addresses = [pod.address for pod in network.pods if pod.app == service.app]
        cluster_objects.service(tenant, plan.network, service, addresses)
    uid = cluster_objects.pod(tenant, plan.network, VmPod(plan.name, f"10.0.0.{plan.host}", node=NODE))
    return replace(plan, uid=uid)


def _start_daemons(planes: Planes, site: Site, directory: Path, stack: ExitStack) -> None:
    node_file = directory / "node-resolv.conf"
    node_file.write_text("nameserver 192.0.2.1\n")
    settings: dict[str, tuple[str, dict[str, object]]] = {
        "kubeproxy_ext": (
            "kubeproxy-ext",
            {
                "serviceCIDRs": [SUPER_CIDR],
                "tenants": [{"key": key, "serviceCIDRs": [TENANT_CIDR]} for key in TENANTS],
            },
        ),
        "dnsconfig": (
            "dnsconfig",
            {"resolvConf": str(node_file)},
        ),
    }
    started = []
    for module, (name, more) in settings.items():
        kubeconfig = shipped.let_in(planes.super_cluster, name, NODE, directory / f"{name}-user")
        document = shipped.configuration(
            f"{name}.yaml",
            {
                "nodeName": NODE,
                "superCluster.kubeconfigFile": str(kubeconfig),
                "bridge.socket": str(site.socket),
                "stateDirectory": str(directory / f"{module}-state"),
                "status.socket": str(_socket(site, module)),
                **more,
            },
        )
        config = directory / f"{module}.yaml"
        config.write_text(json.dumps(document))  # JSON is YAML
        argv = [*planes.control.enter, sys.executable, "-m", module, "--config", str(config)]
        daemon = RingProcess(module, argv, directory / f"{module}.log", directory=SOURCE)
        stack.callback(daemon.stop)
        started.append(daemon)
    for daemon in started:
        _wait_ready(daemon, _socket(site, daemon.name))


def _socket(site: Site, module: str) -> Path:
    # The site's directory has a short name; that of a unix socket has 107 bytes at most.
    return site.directory / f"{module}.sock"


def _wait_ready(daemon: RingProcess, socket: Path) -> None:
    def is_ready() -> bool:
        try:
            return fetch(socket, "/readyz", 2.0)[0] == 200
        except (OSError, StatusError):
            return False

    daemon.wait_until(is_ready, timeout_s=_READY_S)
