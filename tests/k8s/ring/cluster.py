# SPDX-License-Identifier: Apache-2.0
"""The whole ring, put together: super cluster, node, two tenants, vn-agent."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from devkit.pki import Authority, Leaf
from tests.k8s.build import Binaries
from tests.k8s.ring import identities, shipped
from tests.k8s.ring.agent import AGENT_PORT, VnAgentDaemon
from tests.k8s.ring.api import TlsEndpoint
from tests.k8s.ring.controlplane import (
    Apiserver,
    Authorities,
    start_apiserver,
    start_control_plane,
)
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.node import KUBELET_PORT, KubeletIdentity, RealNode
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.tenants import HandSyncer, RingTenant

NODE = "worker-1"
_CONTROL_ADDRESS, _NODE_ADDRESS = "10.70.0.1", "10.70.0.11"
_TENANT_ADDRESSES = ("10.70.0.2", "10.70.0.3")

# One key is a prefix of the other: a rule that joins key and namespace to a string confuses `x-default`
# of the first with `default` of the second.
TENANT_KEYS = ("tenant-1-70b001-acme", "tenant-1-70b001-acme-x")


@dataclass(slots=True)
class Ring:
    """Everything that runs."""

    directory: Path
    control: NetworkNamespace
    binaries: Binaries
    authorities: Authorities
    super_cluster: Apiserver
    super_kubectl: Kubectl
    node: RealNode
    kubelet_identity: KubeletIdentity
    tenants: tuple[RingTenant, RingTenant]
    syncer: HandSyncer
    agent: VnAgentDaemon
    agent_kubelet_leaf: Leaf

    def kubelet(self, leaf: Leaf | None = None) -> TlsEndpoint:
        """The real kubelet, dialled as the agent dials it, or with another certificate."""
        return TlsEndpoint(
            self.node.namespace,
            self.node.namespace.address,
            KUBELET_PORT,
            self.authorities.kubelet_serving.cert_pem,
            leaf or self.agent_kubelet_leaf,
        )

    def agent_as(self, leaf: Leaf | None) -> TlsEndpoint:
        """vn-agent, dialled from where the tenants' control planes are."""
        return TlsEndpoint(
            self.control,
            self.node.namespace.address,
            AGENT_PORT,
            self.authorities.agent_serving.cert_pem,
            leaf,
        )

    def issue_agent_kubelet_leaf(self, authority: Authority | None = None) -> Leaf:
        """A new client certificate with which the agent may use the kubelet."""
        return identities.issue_agent_client(authority or self.authorities.kubelet_clients, NODE)

    def issue_kubelet_serving(self) -> Leaf:
        """A new serving certificate for the kubelet."""
        return identities.issue_serving(self.authorities.kubelet_serving, NODE, _NODE_ADDRESS)


def start_ring(binaries: Binaries, stack: ExitStack) -> Ring:
    """Start all but vn-agent. `stack` takes everything down again, also from half-way.

    Raises:
        RingError: a part did not come up.
    """
    plane = start_control_plane(binaries, stack, _CONTROL_ADDRESS, _NODE_ADDRESS, _TENANT_ADDRESSES)
    directory, control, worker = plane.directory, plane.control, plane.worker
    authorities, super_cluster = plane.authorities, plane.super_cluster
    tenants = tuple(
        _start_tenant(f"tenant-{letter}", key, address, control, binaries, directory, authorities)
        for letter, key, address in zip("ab", TENANT_KEYS, _TENANT_ADDRESSES, strict=True)
    )
    for tenant in tenants:
        stack.callback(tenant.apiserver.daemon.stop)

    identity = identities.kubelet_identity(authorities, super_cluster, NODE, _NODE_ADDRESS, directory)
    node = RealNode(NODE, worker, binaries, directory, identity)
    agent_leaf = identities.issue_agent_client(authorities.kubelet_clients, NODE)
    agent = VnAgentDaemon(
        NODE,
        worker,
        sys.executable,
        directory,
        identities.agent_identity(authorities, agent_leaf, NODE, _NODE_ADDRESS, directory),
    )
    ring = Ring(
        directory=directory,
        control=control,
        binaries=binaries,
        authorities=authorities,
        super_cluster=super_cluster,
        super_kubectl=Kubectl(control, binaries["kubectl"], super_cluster.kubeconfig),
        node=node,
        kubelet_identity=identity,
        tenants=(tenants[0], tenants[1]),
        syncer=HandSyncer(super_cluster.api, NODE),
        agent=agent,
        agent_kubelet_leaf=agent_leaf,
    )
    super_cluster.wait_ready()
    stack.callback(node.stop)
    node.start()
    shipped.apply_rights(super_cluster.api, NODE, "vn-agent.yaml")
    wait_for("node ready", lambda: _is_node_ready(ring), timeout_s=40)
    for tenant in tenants:
        tenant.apiserver.wait_ready()
        ring.syncer.create_vnode(tenant, _NODE_ADDRESS, AGENT_PORT)
        agent.register(tenant, tenant.registration())
    stack.callback(agent.stop)
    return ring


def _start_tenant(
    name: str,
    key: str,
    address: str,
    control: NetworkNamespace,
    binaries: Binaries,
    directory: Path,
    authorities: Authorities,
) -> RingTenant:
    """Start a tenant's apiserver. Both tenants' authorities have the same subject, as upstream's."""
    authority = Authority.create("kubernetes")
    client = authority.issue("kube-apiserver-kubelet-client", usages=("client",))
    apiserver = start_apiserver(
        name,
        control,
        address,
        binaries,
        directory,
        kubelet_client=client,
        kubelet_authority_pem=authorities.agent_serving.cert_pem,
        authority=authority,
    )
    return RingTenant(
        key,
        apiserver,
        Kubectl(control, binaries["kubectl"], apiserver.kubeconfig),
        client,
        authority.issue(f"{name}-admin", organization="system:masters", usages=("client",)),
    )


def _is_node_ready(ring: Ring) -> bool:
    for node in ring.super_cluster.api.get("/api/v1/nodes")["items"]:
        for condition in node["status"].get("conditions", []):
            if condition["type"] == "Ready" and condition["status"] == "True":
                return True
    return False
