# SPDX-License-Identifier: Apache-2.0
"""A node of the super cluster: kubelet, containerd, kube-proxy, and our vn-agent by VirtualClusters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from tests.k8s.build import Binaries
from tests.k8s.ring import identities, images, shipped
from tests.k8s.ring.agent import AGENT_PORT
from tests.k8s.ring.controlplane import Apiserver, Authorities, write_kubeconfig
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.node import ROUTED, RealNode
from tests.k8s.ring.processes import SYSTEM_PATH, RingProcess
from tests.k8s.ring.tenants import RingTenant
from tests.k8s.ring.virtual_clusters import VirtualClusterAgent
from tests.k8s.syncer import scraper_tokens

# Of all nodes' pods.
PODS = "10.88.0.0/16"
SECOND_PODS = "fd00:88::/32"
_TENANTS_ROLE = shipped.RBAC / "options" / "vn-agent-tenants.yaml"

_SECOND_ADDRESSES = {"healthzBindAddress": "127.0.0.1:10266", "metricsBindAddress": "127.0.0.1:10259"}

_KUBELET = {
    # So that a changed ConfigMap reaches its pods within seconds, and not within a minute or two.
    "syncFrequency": "2s",
    "maxPods": 200,
    "kubeAPIQPS": 200,
    "kubeAPIBurst": 400,
    "serializeImagePulls": False,
}


@dataclass(frozen=True, slots=True)
class SuperNode:
    """A node with all that runs on it. `directory` is its own."""

    directory: Path
    node: RealNode
    super_cluster: Apiserver
    tenants: Sequence[RingTenant]
    agent: VirtualClusterAgent
    proxy: RingProcess

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def processes(self) -> dict[str, RingProcess]:
        """By name, what runs on it beside pods."""
        found = {"kubelet": self.node.kubelet, "kube-proxy": self.proxy, "vn-agent": self.agent.daemon}
        return {f"{name} {self.name}": process for name, process in found.items() if process is not None}


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """What nodes of the super cluster are made from. `dns_address` is the cluster's DNS, if it has one."""

    directory: Path
    binaries: Binaries
    authorities: Authorities
    apiserver: Apiserver
    tenants: Sequence[RingTenant]
    dns_address: str = ""
    # The IPv6 networks of nodes' pods, by the node's name.
    second_networks: Mapping[str, str] = field(default_factory=dict)


def start_node(
    name: str, namespace: NetworkNamespace, pod_network: str, cluster: ClusterParts, stack: ExitStack
) -> SuperNode:
    """Start all of it but vn-agent; `stack` stops it. The apiserver must be ready.

    Raises:
        RingError: a part did not come up.
    """
    directory = cluster.directory / name
    node = start_bare_node(name, namespace, pod_network, cluster, stack)
    agnhost = cluster.directory / "agnhost.tar"
    if not agnhost.exists():
        images.write_agnhost_image(agnhost, Path(cluster.binaries["agnhost"]))
    node.import_image(agnhost)
    proxy = start_kube_proxy(node, cluster.apiserver, cluster.binaries, directory)
    stack.callback(proxy.stop)
    agent = _agent(node, cluster, directory)
    stack.callback(agent.stop)
    return SuperNode(directory, node, cluster.apiserver, cluster.tenants, agent, proxy)


def start_bare_node(
    name: str, namespace: NetworkNamespace, pod_network: str, cluster: ClusterParts, stack: ExitStack
) -> RealNode:
    """Start containerd and kubelet alone; `stack` stops them. The apiserver must be ready.

    Raises:
        RingError: a part did not come up.
    """
    directory = cluster.directory / name
    directory.mkdir()
    node = RealNode(
        name,
        namespace,
        cluster.binaries,
        directory,
        identities.kubelet_identity(
            cluster.authorities, cluster.apiserver, name, namespace.address, directory
        ),
        group=f"{cluster.directory.name}/{name}",
        pod_network=pod_network,
        second_network=cluster.second_networks.get(name, ""),
        cni_plugins=ROUTED,
        kubelet_settings={
            **_KUBELET,
            "resolvConf": str(_resolv_conf(directory)),
            **(
                {"clusterDNS": [cluster.dns_address], "clusterDomain": "cluster.local"}
                if cluster.dns_address
                else {}
            ),
        },
    )
    stack.callback(node.stop)
    node.start()
    return node


def _agent(node: RealNode, cluster: ClusterParts, directory: Path) -> VirtualClusterAgent:
    """vn-agent with its shipped rights alone."""
    authorities, apiserver, address = cluster.authorities, cluster.apiserver, node.namespace.address
    kubeconfig = shipped.let_in(apiserver, "vn-agent", node.name, directory / "vn-agent")
    for document in yaml.safe_load_all(_TENANTS_ROLE.read_text()):
        kind = f"{document['kind'].lower()}s"
        apiserver.api.create(f"/apis/rbac.authorization.k8s.io/v1/{kind}", document, may_exist=True)
    client = identities.issue_agent_client(authorities.kubelet_clients, node.name)
    identity = identities.agent_identity(authorities, client, node.name, address, directory)
    listeners = scraper_tokens.listeners(cluster.tenants, directory / "vn-agent")
    return VirtualClusterAgent(
        node.name, node.namespace, identity, directory / "vn-agent", AGENT_PORT, kubeconfig, listeners
    )


def start_kube_proxy(
    node: RealNode,
    apiserver: Apiserver,
    binaries: Binaries,
    directory: Path,
    *,
    mode: str = "nftables",
    path: str = SYSTEM_PATH,
) -> RingProcess:
    """Start kube-proxy in the node's network, for the Services of this API server; does not wait for it.

    A second one on a node needs another mode, and a `path` without the programs of the first one's: at its
    start a kube-proxy removes what other modes have left.
    """
    is_first = mode == "nftables"
    name = "kube-proxy" if is_first else f"kube-proxy-{mode}"
    user = apiserver.authority.issue("system:kube-proxy", usages=("client",))
    endpoint = replace(apiserver.api.endpoint, leaf=user)
    server = f"https://{endpoint.address}:{endpoint.port}"
    kubeconfig = write_kubeconfig(directory / name, server, endpoint)
    config = directory / f"{name}.json"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                "kind": "KubeProxyConfiguration",
                "mode": mode,
                "clientConnection": {"kubeconfig": str(kubeconfig)},
                "hostnameOverride": node.name,
                "clusterCIDR": f"{PODS},{SECOND_PODS}" if node.has_two_families else PODS,
                "detectLocalMode": "ClusterCIDR",
                **({} if is_first else _SECOND_ADDRESSES),
                # These settings are the whole machine's.
                "conntrack": {
                    "maxPerCore": 0,
                    "min": 0,
                    "tcpEstablishedTimeout": "0s",
                    "tcpCloseWaitTimeout": "0s",
                },
            }
        )
    )
    return RingProcess(
        f"{name} {node.name}",
        [*node.namespace.enter, "env", f"PATH={path}", binaries["kube-proxy"], f"--config={config}"],
        directory / f"{name}.log",
    )


def _resolv_conf(directory: Path) -> Path:
    """The node's own, which leads nowhere: names come from the cluster or not at all."""
    path = directory / "resolv.conf"
    path.write_text("nameserver 127.0.0.1\n")
    return path
