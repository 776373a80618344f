# SPDX-License-Identifier: Apache-2.0
"""Network namespaces of the ring, and sockets inside them from this process."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from tests.k8s.ring.processes import run
from tests.netns import NAMED, NamedNamespace


@dataclass(frozen=True, slots=True)
class NetworkNamespace(NamedNamespace):
    """A namespace with one address on a link to its peer."""

    address: str

    def connect(self, address: str, port: int, *, timeout_s: float = 10.0) -> socket.socket:
        """A TCP connection made from inside. Raises OSError."""
        made = self.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.settimeout(timeout_s)
        try:
            made.connect((address, port))
        except OSError:
            made.close()
            raise
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made


def create_pair(one: NetworkNamespace, other: NetworkNamespace, *, more: list[str]) -> None:
    """Make two namespaces, one link between them, and `more` addresses in the first.

    Each is the other's default route: without one an apiserver refuses to start.
    """
    commands = [
        *(f"netns add {n.name}" for n in (one, other)),
        f"link add name eth0 netns {one.name} type veth peer name eth0 netns {other.name}",
    ]
    run(["ip", "-batch", "-"], stdin="\n".join(commands).encode())
    for here, there in ((one, other), (other, one)):
        extra = more if here is one else []
        commands = [
            "link set lo up",
            *(f"addr add {a}/24 dev eth0" for a in [here.address, *extra]),
            "link set eth0 up",
            f"route add default via {there.address}",
        ]
        run(["ip", "-n", here.name, "-batch", "-"], stdin="\n".join(commands).encode())


def create_bridged(
    one: NetworkNamespace, nodes: list[tuple[NetworkNamespace, str]], *, more: list[str]
) -> None:
    """Make a namespace with a bridge, and one on it for each node with the network of its pods.

    All reach one another, and all pods. The first has `more` addresses.
    """
    commands = [
        f"netns add {one.name}",
        *(f"netns add {node.name}" for node, _ in nodes),
        *(
            f"link add name port{n} netns {one.name} type veth peer name eth0 netns {node.name}"
            for n, (node, _) in enumerate(nodes)
        ),
    ]
    run(["ip", "-batch", "-"], stdin="\n".join(commands).encode())
    routes = [(node, f"route add {pods} via {node.address}") for node, pods in nodes]
    commands = [
        "link set lo up",
        "link add name br0 type bridge",
        *(f"link set port{n} master br0 up" for n in range(len(nodes))),
        *(f"addr add {address}/24 dev br0" for address in [one.address, *more]),
        "link set br0 up",
        *(route for _, route in routes),
        f"route add default via {nodes[0][0].address}",
    ]
    run(["ip", "-n", one.name, "-batch", "-"], stdin="\n".join(commands).encode())
    for node, _ in nodes:
        commands = [
            "link set lo up",
            f"addr add {node.address}/24 dev eth0",
            "link set eth0 up",
            *(route for other, route in routes if other is not node),
            f"route add default via {one.address}",
        ]
        run(["ip", "-n", node.name, "-batch", "-"], stdin="\n".join(commands).encode())


def add_second_family(one: NetworkNamespace, nodes: list[tuple[NetworkNamespace, str]]) -> None:
    """Give bridged namespaces IPv6 addresses too, and routes to the IPv6 network of each node's pods."""
    for here, link in ((one, "br0"), *((node, "eth0") for node, _ in nodes)):
        commands = [
            f"addr add {_second_address(here)}/64 dev {link} nodad",
            *(f"route add {pods} via {_second_address(node)}" for node, pods in nodes if node is not here),
        ]
        run(["ip", "-n", here.name, "-batch", "-"], stdin="\n".join(commands).encode())


def _second_address(namespace: NetworkNamespace) -> str:
    """The IPv6 address that goes with its IPv4 address."""
    return f"fd00:70::{namespace.address.rpartition('.')[2]}"


def delete(names: list[str]) -> None:
    """Remove those namespaces that exist."""
    names = [n for n in names if (NAMED / n).exists()]
    if names:
        lines = "\n".join(f"netns delete {n}" for n in names)
        run(["ip", "-force", "-batch", "-"], stdin=lines.encode())
