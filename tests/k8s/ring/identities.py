# SPDX-License-Identifier: Apache-2.0
"""Certificates of a node: of its kubelet and of its vn-agent, on disk as the programs take them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from devkit.pki import Authority, Leaf
from tests.k8s.ring.agent import AgentIdentity
from tests.k8s.ring.certs import write_leaf
from tests.k8s.ring.controlplane import Apiserver, Authorities, write_kubeconfig
from tests.k8s.ring.node import KubeletIdentity


def issue_serving(authority: Authority, node: str, address: str) -> Leaf:
    """A serving certificate for the node's name and address."""
    return authority.issue(f"system:node:{node}", sans_ip=[address], sans_dns=[node], usages=("server",))


def issue_agent_client(authority: Authority, node: str) -> Leaf:
    """A client certificate with which the node's vn-agent may use its kubelet."""
    return authority.issue(f"vcnode:vn-agent:{node}", usages=("client",))


def kubelet_identity(
    authorities: Authorities, super_cluster: Apiserver, node: str, address: str, directory: Path
) -> KubeletIdentity:
    """The kubelet's serving certificate, its clients' authority, and its own kubeconfig."""
    serving = write_leaf(
        issue_serving(authorities.kubelet_serving, node, address), directory / "kubelet-serving"
    )
    clients = directory / "kubelet-clients.crt"
    clients.write_bytes(authorities.kubelet_clients.cert_pem)
    user = super_cluster.authority.issue(
        f"system:node:{node}", organization="system:nodes", usages=("client",)
    )
    endpoint = replace(super_cluster.api.endpoint, leaf=user)
    server = f"https://{endpoint.address}:{endpoint.port}"
    kubeconfig = write_kubeconfig(directory / "kubelet-user", server, endpoint)
    return KubeletIdentity(serving, clients, kubeconfig)


def agent_identity(
    authorities: Authorities, leaf: Leaf, node: str, address: str, directory: Path
) -> AgentIdentity:
    """vn-agent's serving certificate, its kubelet client `leaf`, and the kubelet's authority."""
    serving = write_leaf(issue_serving(authorities.agent_serving, node, address), directory / "agent-serving")
    client = write_leaf(leaf, directory / "agent-kubelet")
    authority = directory / "kubelet-serving-ca.crt"
    authority.write_bytes(authorities.kubelet_serving.cert_pem)
    return AgentIdentity(serving, client, authority)
