# SPDX-License-Identifier: Apache-2.0
"""The whole ground of vc-syncer: a super cluster with nodes, and two tenants' control planes.

Nothing of a tenant is in the super cluster but what vc-manager leaves there. The rest is the syncer's.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from devkit.pki import Authority
from tests.k8s.build import Binaries
from tests.k8s.ring import cgroups, controllers, network, traces, virtual_clusters
from tests.k8s.ring.cluster import TENANT_KEYS
from tests.k8s.ring.controlplane import Apiserver, Authorities, start_apiserver, start_etcd
from tests.k8s.ring.daemons import TENANT_CIDR
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import RingProcess, wait_for
from tests.k8s.ring.tenants import RingTenant
from tests.k8s.syncer import policies, provisioned
from tests.k8s.syncer.node import ClusterParts, SuperNode, start_node

NODES = ("worker-1", "worker-2")
TENANT_NAMES = ("acme", "acme-x")
SUPER_CIDR = "10.96.0.0/16"
# Where the nodes' pods look for cluster DNS, if a test starts one.
SUPER_DNS = "10.96.0.10"
NODE_NETWORK = "10.70.0.0/24"
_CONTROL_ADDRESS = "10.70.0.1"
_TENANT_ADDRESSES = ("10.70.0.2", "10.70.0.3")
# A third one has room for a bench.
_NODE_NAMES = (*NODES, "worker-3")
_NODE_ADDRESSES = ("10.70.0.11", "10.70.0.12", "10.70.0.13")
_POD_NETWORKS = ("10.88.0.0/24", "10.88.1.0/24", "10.88.2.0/24")
_SECOND_NETWORKS = ("fd00:88:0:1::/64", "fd00:88:0:2::/64")
# Services of both families, where the ring has them. Tenants have one range here too.
_SECOND_SUPER_CIDR = "fd00:10:96::/112"
SECOND_TENANT_CIDR = "fd00:10:32::/112"
_READY_S = 60.0


@dataclass(slots=True)
class SyncedRing:
    """Everything that runs, but for the syncer. `started_s` is the time that it took."""

    directory: Path
    control: NetworkNamespace
    binaries: Binaries
    authorities: Authorities
    super_cluster: Apiserver
    super_kubectl: Kubectl
    tenants: tuple[RingTenant, RingTenant]
    nodes: tuple[SuperNode, ...]
    processes: dict[str, RingProcess]
    started_s: float

    @property
    def memory_mb(self) -> dict[str, int]:
        """The resident memory of each part, now."""
        return {name: _resident_mb(process.pid) for name, process in self.processes.items()}


def start_synced_ring(
    binaries: Binaries,
    stack: ExitStack,
    *,
    nodes: int = 2,
    dns_address: str = "",
    is_dual_stack: bool = False,
) -> SyncedRing:
    """Start all but the syncer; `stack` takes everything down again, also from half-way.

    Pods of the super cluster itself use `dns_address`; who gives one starts a DNS server there.
    `is_dual_stack`: Services may have two families in all clusters, and pods of DUAL_HANDLER have.

    Raises:
        RingError: a part did not come up.
    """
    began = time.monotonic()
    directory, prefix = traces.open_directory(stack, "vcsy")
    cgroups.create(prefix)
    stack.callback(cgroups.remove, prefix)
    control = NetworkNamespace(f"{prefix}-cp", _CONTROL_ADDRESS)
    workers = [
        NetworkNamespace(f"{prefix}-{name}", address)
        for name, address in zip(_NODE_NAMES[:nodes], _NODE_ADDRESSES, strict=False)
    ]
    stack.callback(network.delete, [control.name, *(worker.name for worker in workers)])
    network.create_bridged(
        control, list(zip(workers, _POD_NETWORKS, strict=False)), more=list(_TENANT_ADDRESSES)
    )
    second_networks = dict(zip(NODES, _SECOND_NETWORKS, strict=True)) if is_dual_stack else {}
    if is_dual_stack:
        network.add_second_family(control, list(zip(workers, _SECOND_NETWORKS, strict=False)))
    authorities = Authorities(
        *(Authority.create(name) for name in ("kubelet-serving", "kubelet-clients", "vn-agent-serving"))
    )
    etcd = start_etcd(control, binaries, directory)
    stack.callback(etcd.stop)
    more = (_SECOND_SUPER_CIDR,) if is_dual_stack else ()
    super_cluster = _start_super(control, binaries, directory, authorities, (SUPER_CIDR, *more))
    stack.callback(super_cluster.daemon.stop)
    more = (SECOND_TENANT_CIDR,) if is_dual_stack else ()
    tenants = [
        _start_tenant(name, key, address, control, binaries, directory, authorities, (TENANT_CIDR, *more))
        for name, key, address in zip(TENANT_NAMES, TENANT_KEYS, _TENANT_ADDRESSES, strict=True)
    ]
    processes = {"etcd": etcd, "apiserver super": super_cluster.daemon}
    for name, tenant in zip(TENANT_NAMES, tenants, strict=True):
        stack.callback(tenant.apiserver.daemon.stop)
        processes[f"apiserver {name}"] = tenant.apiserver.daemon
    super_cluster.wait_ready()
    processes["scheduler super"] = controllers.start_scheduler(control, binaries, super_cluster, directory)
    stack.callback(processes["scheduler super"].stop)
    for name, apiserver in (
        ("super", super_cluster),
        *((name, tenant.apiserver) for name, tenant in zip(TENANT_NAMES, tenants, strict=True)),
    ):
        apiserver.wait_ready()
        manager = controllers.start_controllers(control, binaries, apiserver, directory)
        processes[f"controllers {name}"] = manager
        stack.callback(manager.stop)
    virtual_clusters.install(super_cluster.api)
    policies.install(super_cluster.api)
    for name, tenant in zip(TENANT_NAMES, tenants, strict=True):
        provisioned.provision(super_cluster.api, tenant, name, TENANT_CIDR)
    policies.replace(super_cluster.api, {})
    cluster = ClusterParts(
        directory, binaries, authorities, super_cluster, tenants, dns_address, second_networks
    )
    made = [
        start_node(worker.name.removeprefix(f"{prefix}-"), worker, pods, cluster, stack)
        for worker, pods in zip(workers, _POD_NETWORKS, strict=False)
    ]
    for node in made:
        node.agent.start()
    ring = SyncedRing(
        directory=directory,
        control=control,
        binaries=binaries,
        authorities=authorities,
        super_cluster=super_cluster,
        super_kubectl=Kubectl(control, binaries["kubectl"], super_cluster.kubeconfig),
        tenants=(tenants[0], tenants[1]),
        nodes=tuple(made),
        processes=processes | {name: process for node in made for name, process in node.processes.items()},
        started_s=0.0,
    )
    wait_for("all nodes are ready", lambda: _are_ready(ring), timeout_s=_READY_S)
    wait_for(
        "vn-agents are ready",
        lambda: all(node.agent.status("/readyz")[0] == 200 for node in made),
        timeout_s=_READY_S,
    )
    apiservers = (super_cluster, *(tenant.apiserver for tenant in tenants))
    wait_for("controllers work", lambda: all(map(_has_default_account, apiservers)), timeout_s=_READY_S)
    ring.started_s = time.monotonic() - began
    return ring


def _start_super(
    control: NetworkNamespace,
    binaries: Binaries,
    directory: Path,
    authorities: Authorities,
    service_cidrs: tuple[str, ...],
) -> Apiserver:
    return start_apiserver(
        "super",
        control,
        _CONTROL_ADDRESS,
        binaries,
        directory,
        authority=Authority.create("super"),
        kubelet_client=authorities.kubelet_clients.issue(
            "super-apiserver", organization="system:masters", usages=("client",)
        ),
        kubelet_authority_pem=authorities.kubelet_serving.cert_pem,
        service_cidrs=service_cidrs,
        is_whole=True,
    )


def _start_tenant(
    name: str,
    key: str,
    address: str,
    control: NetworkNamespace,
    binaries: Binaries,
    directory: Path,
    authorities: Authorities,
    service_cidrs: tuple[str, ...],
) -> RingTenant:
    """A tenant's apiserver. Both tenants' authorities have the same subject, and the same service range."""
    authority = Authority.create("kubernetes")
    client = authority.issue(key, usages=("client",))
    apiserver = start_apiserver(
        f"tenant-{name}",
        control,
        address,
        binaries,
        directory,
        authority=authority,
        kubelet_client=client,
        kubelet_authority_pem=authorities.agent_serving.cert_pem,
        service_cidrs=service_cidrs,
        is_whole=True,
    )
    admin = authority.issue(f"{name}-admin", organization="system:masters", usages=("client",))
    return RingTenant(
        key, apiserver, Kubectl(control, binaries["kubectl"], apiserver.kubeconfig), client, admin
    )


def _are_ready(ring: SyncedRing) -> bool:
    """Whether pods can be scheduled to all nodes: the node controller has removed its taints."""
    items = ring.super_cluster.api.get("/api/v1/nodes")["items"]
    return len(items) == len(ring.nodes) and all(
        not item["spec"].get("taints")
        and any(c["type"] == "Ready" and c["status"] == "True" for c in item["status"]["conditions"])
        for item in items
    )


def _has_default_account(apiserver: Apiserver) -> bool:
    items = apiserver.api.get("/api/v1/namespaces/default/serviceaccounts")["items"]
    roots = apiserver.api.get("/api/v1/namespaces/default/configmaps")["items"]
    return bool(items) and bool(roots)


def _resident_mb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0
