# SPDX-License-Identifier: Apache-2.0
"""Which addresses a kubeconfig that a user wrote may lead to. Pure."""

import ipaddress
from collections.abc import Collection

# Of cloud providers, beside 169.254.169.254: who asks there is taken for the machine.
_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"),
    )
)


# Of etcd, kubelets, Kubernetes' own daemons, and vn-agent.
_OTHER_PORTS = frozenset({2379, 2380, 10250, 10257, 10259, 10550})
_NODE_PORTS = range(30000, 32768)
_TLS_PORT = 443


def port_refusal(text: str, port: int, nodes: Collection[str]) -> str:
    """Why no daemon connects to this port of the address. `nodes`: addresses of the super cluster's nodes, at
    which others' API servers have node ports, or are behind what listens for all names."""
    if port in _OTHER_PORTS:
        return f"port {port} is of no API server"
    try:
        found = str(_plain(text))
    except ValueError:
        return "it is no address"
    if found in nodes and port not in _NODE_PORTS and port != _TLS_PORT:
        return (
            f"it is a node of the super cluster, of which port {port} is its own: expose the API server by"
            " a node port (30000 to 32767), port 443, or its Service"
        )
    return ""


def _plain(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    found = ipaddress.ip_address(text)
    return found if isinstance(found, ipaddress.IPv4Address) else found.ipv4_mapped or found


def refusal(text: str) -> str:
    """Why no daemon connects to the address; empty if it may be a tenant's API server."""
    try:
        address = _plain(text)
    except ValueError:
        return "it is no address"
    if address.is_loopback or address.is_unspecified:
        return "each machine reaches itself by it"
    if address in _METADATA or address.is_link_local:
        return "it is of each machine's own link, or of cloud metadata"
    if address.is_multicast or address.is_reserved:
        return "it is the address of no single machine"
    return ""
