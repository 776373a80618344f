# SPDX-License-Identifier: Apache-2.0
"""Connections to a Service, and the conntrack entries that an agent deletes."""

from __future__ import annotations

import socket
import threading

import pytest

from bridge_api.messages import Flow
from ruleset.document import Ruleset, make_ruleset
from ruleset.model import Endpoint, EndpointSet, Family, Frontend, GuestRules, Protocol, ServiceRules
from ruleset.render import nft
from tests.lab.guest_agent.conftest import LabNode
from tests.lab.guest_agent.tools import NFT, attached, ruleset

pytestmark = pytest.mark.asyncio


async def test_connection_to_a_service_and_stale_conntrack_entries(node: LabNode) -> None:
    guest = node.guest("sb")
    peer = node.lab.namespace("peer")
    node.lab.link(guest.namespace, peer, ["10.1.0.2/24"], ["10.1.0.1/24", "10.1.0.3/24"])
    channel = await attached(node, guest, "sb")

    def service(*pods: str) -> Ruleset:
        target = EndpointSet("ns/dns:dns", Protocol.UDP, False, tuple(Endpoint(pod, 5353) for pod in pods))
        frontend = Frontend("10.96.0.10", 53, Protocol.UDP, "ns/dns:dns", target)
        return make_ruleset(1, [nft.render(GuestRules(Family.IPV4, (ServiceRules("ns/dns", (frontend,)),)))])

    await channel.apply(service("10.1.0.1"), [])
    servers = [node.lab.keep(peer.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2)]
    for server, ip in zip(servers, ("10.1.0.1", "10.1.0.3"), strict=True):
        server.bind((ip, 5353))
        threading.Thread(target=_echo, args=(server, ip.encode()), daemon=True).start()
    client = node.lab.keep(guest.namespace.socket(socket.AF_INET, socket.SOCK_DGRAM))
    client.settimeout(10)
    client.bind(("10.1.0.2", 40_000))

    def exchange() -> bytes:
        client.sendto(b"?", ("10.96.0.10", 53))
        return client.recv(100)

    assert exchange() == b"10.1.0.1"
    await channel.apply(service("10.1.0.3"), [])
    assert exchange() == b"10.1.0.1"  # as conntrack remembers
    await channel.flush_conntrack([Flow("udp", "10.96.0.10", 53, keep_replies_from=("10.1.0.3:5353",))])
    assert exchange() == b"10.1.0.3"
    await channel.flush_conntrack([Flow("udp", "10.96.0.10", 53, keep_replies_from=("10.1.0.3:5353",))])
    assert "10.1.0.3" in guest.namespace.run("conntrack", "-L")
    await channel.flush_conntrack([Flow("udp", "10.96.0.10", 53, reply_source="10.1.0.3", reply_port=5353)])
    assert "10.96.0.10" not in guest.namespace.run("conntrack", "-L")


def _echo(server: socket.socket, name: bytes) -> None:
    while True:
        try:
            _, peer = server.recvfrom(100)
            server.sendto(name, peer)
        except OSError:
            return


async def test_an_untranslated_entry_is_flushed(node: LabNode) -> None:
    guest = node.guest("sb")
    peer = node.lab.namespace("peer")
    node.lab.link(guest.namespace, peer, ["10.1.0.2/24"], ["10.1.0.1/24"])
    channel = await attached(node, guest, "sb")
    await channel.apply(ruleset(NFT, 1, 1), [])
    with guest.namespace.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        for ip in ("10.80.0.10", "10.80.0.11"):
            client.sendto(b"?", (ip, 53))
    flows = [Flow("udp", "10.80.0.10", 53, never_translated=True), Flow("tcp", "10.80.0.11", 53)]
    await channel.flush_conntrack(flows)
    left = guest.namespace.run("conntrack", "-L")
    assert "10.80.0.11" in left
    assert "10.80.0.10" not in left
