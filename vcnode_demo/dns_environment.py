# SPDX-License-Identifier: Apache-2.0
"""The environment of the DNS scenario: networks with a DNS server each, pods in them, kata-bridge, dnsconfig.

The daemons, the DNS servers and their clients are real. Pods are network namespaces, and a fake container
runtime asks kata-bridge as containerd does. All networks have the same addresses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from devkit.kubelet.pods import FakePod
from kata_bridge.nri.messages import PodSandbox
from vcnode_demo import dns_guests
from vcnode_demo.container_runtime import HANDLER, ContainerDeniedError, ContainerRuntime, sandbox_of
from vcnode_demo.dns_guests import DemoContainer, NameServer
from vcnode_demo.super_cluster import FakeSuperCluster
from vcnode_demo.vpc_environment import VpcEnvironment

POD_IP, SERVER_IP, NEW_SERVER_IP = "10.0.0.10", "10.0.0.53", "10.0.0.153"
NAMESPACE = "web"
DOMAINS = {"acme": "cluster.local", "globex": "cluster.globex"}
# The server of the host's resolv.conf, which no tenant's network has. In each pod's network a server listens
# at this address and counts queries; no pod has the address that it answers.
NODE_RESOLVER, NODE_ANSWER = "192.0.2.53", "203.0.113.66"
_NODE_RESOLV_CONF = f"nameserver {NODE_RESOLVER}\nsearch example.org\n"


@dataclass(frozen=True, slots=True, eq=False)
class DemoNetwork:
    """A tenant's network: its pod, and the Services that its DNS server knows, by name."""

    tenant: str
    name: str
    pod: str
    services: Mapping[str, str]

    @property
    def shown(self) -> str:
        return f"{self.tenant} {self.name}"

    def names(self) -> dict[str, str]:
        """The records of its DNS server."""
        suffix = f"{NAMESPACE}.svc.{DOMAINS[self.tenant]}"
        return {f"{name}.{suffix}": ip for name, ip in self.services.items()}


NETWORKS = (
    DemoNetwork("acme", "default", "cart", {"db": "10.0.0.31", "books": "10.0.0.41"}),
    DemoNetwork("acme", "blue", "till", {"db": "10.0.0.32", "orders": "10.0.0.42"}),
    DemoNetwork("globex", "default", "cart", {"db": "10.0.0.33", "ledger": "10.0.0.43"}),
    DemoNetwork("globex", "blue", "till", {"db": "10.0.0.34", "vault": "10.0.0.44"}),
)
LATE = DemoNetwork("acme", "red", "desk", {"db": "10.0.0.35"})


class DnsPod:
    """A pod: a process that holds its network and listens at the node's address there, and a container."""

    def __init__(self, network: DemoNetwork, pod: FakePod) -> None:
        self.network = network
        self.pod = pod
        self.holder = NameServer(f"{network.tenant} {network.pod}")
        self.container: DemoContainer | None = None

    @property
    def shown(self) -> str:
        return f"{self.network.tenant}'s {self.network.pod}"

    @property
    def name(self) -> str:
        """Its name in its tenant."""
        return f"{NAMESPACE}/{self.network.pod}"

    @property
    def sandbox(self) -> PodSandbox:
        pod, identity = self.pod, (self.pod.namespace, self.pod.name, self.pod.uid)
        name = f"{self.network.tenant}-{self.network.pod}"
        return sandbox_of(name, identity, dict(pod.labels), dict(pod.annotations), self.holder.pid)

    @property
    def app(self) -> DemoContainer:
        if self.container is None:
            raise AssertionError(f"{self.shown} does not run")
        return self.container


class DnsEnvironment(VpcEnvironment):
    """`open` and `close`; its objects in the super cluster stay."""

    def __init__(
        self,
        directory: Path,
        super_cluster: FakeSuperCluster,
        tenants: dict[str, str],
        *,
        run_by: tuple[str, ...] = (),
    ) -> None:
        """`tenants` are the cluster keys by name, all else is as in `VpcEnvironment`."""
        self.runtime = ContainerRuntime(directory / "nri.sock")
        sandboxes: dict[str, object] = {
            "sandboxes": {"nri": {"socket": str(self.runtime.socket)}},
            "runtimes": [{"handlers": [HANDLER], "channels": ["netns"]}],
            # The scenario before this one shows the rules.
            "gate": {"policy": "enforce", "needs": ["resolver"], "directory": str(directory / "pods")},
        }
        super().__init__(directory, super_cluster, sandboxes=sandboxes, run_by=run_by)
        self.tenants = tenants
        self.servers: dict[str, NameServer] = {}
        self.pods: dict[DemoNetwork, DnsPod] = {}
        self._etc = directory / "etc"
        self.dns = self._bridge_user("dnsconfig", "dnsconfig", "DnsConfigConfiguration", self._dns_config())

    # ---- life

    def open(self) -> None:
        """Start everything except the pods. Raises ToolError."""
        dns_guests.write_image(self._etc)
        self._ending.callback(self.runtime.stop)
        self.runtime.start()
        for daemon in (self.bridge, self.dns):
            self._ending.callback(daemon.stop)
            daemon.launch()
        self._ending.callback(self.vpcs.stop)
        self.vpcs.start()
        for key in self.tenants.values():
            self.super_cluster.add_namespace(key, NAMESPACE)
            self.super_cluster.add_namespace(key, "kube-system")
        for network in (*NETWORKS, LATE):
            self.vpcs.make(_link(network))
            self.start_server(network, SERVER_IP, network.names())
        for daemon in (self.bridge, self.dns):
            daemon.wait()
        self.runtime.wait_for_plugin()

    def last_log_lines(self) -> list[str]:
        return [*self.bridge.last_log_lines(), *self.dns.last_log_lines()]

    # ---- networks

    def start_server(self, network: DemoNetwork, address: str, names: Mapping[str, str]) -> NameServer:
        """A DNS server in a network, at an address of its own. Raises ToolError."""
        server = NameServer(f"{network.shown} DNS {address}")
        self._ending.callback(server.stop)
        server.start()
        self.vpcs.join(_link(network), server, f"{_link(network)}-{address.rpartition('.')[2]}", address)
        server.serve_names(address, names)
        self.servers[f"{network.shown} {address}"] = server
        return server

    def put_network(self, network: DemoNetwork, server: str) -> None:
        """Create or change the Network, with its DNS server at this address."""
        self.super_cluster.put_network(self.tenants[network.tenant], network.name, server)

    # ---- pods

    def start_pod(self, network: DemoNetwork) -> DnsPod:
        """Create a pod on this node, and its sandbox without a container."""
        key = self.tenants[network.tenant]
        label = "" if network.name == "default" else network.name
        uid = f"{network.tenant}-{network.pod}"
        pod = DnsPod(
            network,
            self.super_cluster.add_tenant_pod(network.tenant, key, NAMESPACE, network.pod, uid, label),
        )
        self._ending.callback(pod.holder.stop)
        pod.holder.start()
        self.vpcs.join(_link(network), pod.holder, f"{_link(network)}-p", POD_IP)
        pod.holder.run("ip", "addr", "add", f"{NODE_RESOLVER}/32", "dev", "lo")
        pod.holder.serve_names(NODE_RESOLVER, {}, NODE_ANSWER)
        self.runtime.run_sandbox(pod.sandbox)
        self.pods[network] = pod
        return pod

    def try_container(self, pod: DnsPod) -> str:
        """Start a pod's container, as the kubelet does. Return why it is denied, empty if it runs."""
        try:
            mounts = self.runtime.create_container(pod.sandbox, "app")
        except ContainerDeniedError as error:
            return str(error)
        container = DemoContainer(f"{pod.shown} app", pod.holder, self._etc, mounts)
        self._ending.callback(container.stop)
        container.start()
        container.up()
        pod.container = container
        return ""

    def pod_status(self, pod: DnsPod) -> dict[str, object]:
        """The pod in dnsconfig's status; empty if it is not there."""
        for each in self.dns.status()["pods"]:
            if each["uid"] == pod.pod.uid:
                found: dict[str, object] = each
                return found
        return {}

    # ---- configuration

    def _dns_config(self) -> dict[str, object]:
        resolv_conf = self.directory / "node-resolv.conf"
        resolv_conf.write_text(_NODE_RESOLV_CONF)
        return {
            "tenants": [{"key": key, "clusterDomain": DOMAINS[name]} for name, key in self.tenants.items()],
            "resolvConf": str(resolv_conf),
            "events": False,
        }


def _link(network: DemoNetwork) -> str:
    """The bridge of a network: at most 14 characters, and the prefix of its ports' names."""
    return f"{network.tenant[:2]}-{network.name}"
