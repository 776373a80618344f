# SPDX-License-Identifier: Apache-2.0
"""Where people reach a tenant's API server from outside of the super cluster, by `spec.exposure`."""

from collections.abc import Iterable

import msgspec

from daemonkit.kube.resources import ObjectMeta
from tenant_operator.model import names
from tenant_operator.model.objects import Object
from tenant_operator.model.virtual_cluster import Exposure

# Each leads to the port. More of them in a certificate are of no use, and change as nodes come and go: these
# are the nodes that have been there longest.
MAX_NODES = 8
# Of a load balancer; others have one or two.
_MAX_INGRESS = 8
_NODE_ADDRESSES = ("ExternalIP", "InternalIP")


class _NodeMeta(ObjectMeta, frozen=True, rename="camel"):
    creation_timestamp: str = ""


class _Address(msgspec.Struct, frozen=True):
    type: str = ""
    address: str = ""


class _NodeStatus(msgspec.Struct, frozen=True):
    addresses: list[_Address] = []


class NodeAddresses(msgspec.Struct, frozen=True):
    """The used part of a Node of the super cluster."""

    metadata: _NodeMeta
    status: _NodeStatus = _NodeStatus()


class OutsideEndpoint(msgspec.Struct, frozen=True):
    """`names`: host names and addresses by which it is reached, for its certificate; `url` has the first one
    and the port. Without an exposure both are empty. `waits_for` names what gives no address yet."""

    names: tuple[str, ...] = ()
    url: str = ""
    waits_for: str = ""


def node_addresses(nodes: Iterable[NodeAddresses]) -> tuple[str, ...]:
    """At which a NodePort is reached: external ones first."""
    eldest = sorted(nodes, key=lambda each: (each.metadata.creation_timestamp, each.metadata.name))[
        :MAX_NODES
    ]
    return tuple(
        dict.fromkeys(
            each.address
            for type_ in _NODE_ADDRESSES
            for node in eldest
            for each in node.status.addresses
            if each.type == type_ and each.address
        )
    )


def outside_endpoint(exposure: Exposure, service: Object | None, nodes: Iterable[str]) -> OutsideEndpoint:
    """By the Service `apiserver-svc` as it is, and the addresses of nodes.

    `hostName` comes first, and stands for the nodes: who sets it sees to where it leads.
    """
    host = (exposure.host_name,) if exposure.host_name else ()
    if exposure.type == "NodePort":
        port = _node_port(service)
        found = host or tuple(nodes)
        missing = "" if port else "a node port"
    elif exposure.type == "LoadBalancer":
        port, given = names.API_SERVER_PORT, _load_balancer(service)
        found, missing = (*host, *given), "" if given else "an address of a load balancer"
    else:
        return OutsideEndpoint(host, _url(host[0], names.API_SERVER_PORT) if host else "")
    missing = missing or ("" if found else "a node with an address")
    url = _url(found[0], port) if found and port else ""
    return OutsideEndpoint(tuple(dict.fromkeys(found)), url, missing)


def _url(host: str, port: int) -> str:
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"


def _node_port(service: Object | None) -> int:
    ports = ((service or {}).get("spec") or {}).get("ports") or ()
    return next((each.get("nodePort") or 0 for each in ports if each.get("name") == "https"), 0)


def _load_balancer(service: Object | None) -> tuple[str, ...]:
    """Its controller writes them into the Service's status, and may have none yet."""
    status = (service or {}).get("status") or {}
    ingress = (status.get("loadBalancer") or {}).get("ingress") or ()
    found = [each.get(key) or "" for each in ingress[:_MAX_INGRESS] for key in ("hostname", "ip")]
    return tuple(filter(None, found))
