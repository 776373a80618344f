# SPDX-License-Identifier: Apache-2.0
"""The commands of tenant_operator/README.md that keep pods from cloud metadata, on a node that forwards."""

import socket

import pytest

from ruleset.model import Endpoint
from tests import guide
from tests.lab.namespaces import Lab, LabNamespace
from tests.lab.ruleset.peers import DATAGRAM, STREAM, Servers, exchange

METADATA = ("169.254.169.254", "fd00:ec2::254")
# A resolver on the machine's own link, and what is anywhere else.
OTHERS = ("169.254.20.10", "203.0.113.9", "fd00:ec2::253", "2001:db8::9")
PORT = 80


@pytest.fixture
def places(lab: Lab) -> tuple[LabNamespace, LabNamespace]:
    """A pod and its node, which forwards what the pod sends to the cloud's network."""
    pod, node, cloud = (lab.namespace(name) for name in ("pod", "node", "cloud"))
    lab.link(pod, node, ["10.244.1.7/24", "fd00:1::7/64"], ["10.244.1.1/24", "fd00:1::1/64"])
    lab.link(cloud, node, ["192.0.2.1/24", "2001:db8:1::1/64"], ["192.0.2.2/24", "2001:db8:1::2/64"])
    addresses = (*METADATA, *OTHERS)
    for address in addresses:
        cloud.run("ip", "addr", "add", address, "dev", "lo", *(["nodad"] if ":" in address else []))
        via = "2001:db8:1::1" if ":" in address else "192.0.2.1"
        node.run("ip", "route", "add", address, "via", via)
    node.run(
        "sh", "-ec", "for f in ipv4/ip_forward ipv6/conf/all/forwarding; do echo 1 >/proc/sys/net/$f; done"
    )
    servers = Servers(lab)
    for kind in (STREAM, DATAGRAM):
        servers.listen(cloud, (Endpoint(address, PORT) for address in addresses), kind)
    servers.start()
    return pod, node


def reached(place: LabNamespace, kind: socket.SocketKind) -> set[str]:
    """The addresses that answer."""
    found = set()
    for address in (*METADATA, *OTHERS):
        try:
            exchange(place, address, PORT, kind)
        except ConnectionRefusedError:
            continue
        found.add(address)
    return found


@pytest.mark.parametrize("kind", [STREAM, DATAGRAM])
def test_the_node_alone_reaches_metadata(
    places: tuple[LabNamespace, LabNamespace], kind: socket.SocketKind
) -> None:
    pod, node = places
    assert reached(pod, kind) == {*METADATA, *OTHERS}
    commands = guide.read("tenant_operator/README.md", "operate", ("metadata",))["metadata"]
    for _ in range(2):
        node.run("sh", "-ec", commands)
        assert reached(pod, kind) == set(OTHERS)
        assert reached(node, kind) == {*METADATA, *OTHERS}
