# SPDX-License-Identifier: Apache-2.0
"""Connections to a Service, and the conntrack entries that an agent deletes."""

from __future__ import annotations

import re
import socket
import threading

import pytest

from bridge_api.messages import Flow
from ruleset.delta import difference
from ruleset.document import Ruleset, make_ruleset
from ruleset.model import Endpoint, EndpointSet, Family, Frontend, GuestRules, Protocol, ServiceRules
from ruleset.render import nft
from tests.lab.guest_agent.conftest import LabNode
from tests.lab.guest_agent.tools import NFT, RENDER, TOOLS, attached, prepared, ruleset

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


def _udp_services(tool: str, generation: int, *frontends: tuple[str, int]) -> Ruleset:
    made = []
    for number, (ip, port) in enumerate(frontends):
        name = f"ns/s{number}:p"
        target = EndpointSet(name, Protocol.UDP, False, (Endpoint("10.1.0.1", 5353),))
        made.append(ServiceRules(f"ns/s{number}", (Frontend(ip, port, Protocol.UDP, name, target),)))
    return make_ruleset(generation, [RENDER[tool](GuestRules(Family.IPV4, tuple(made)))])


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("case", ["whole", "agent starts anew", "delta"])
async def test_flows_to_what_ended_while_nobody_watched(node: LabNode, tool: str, case: str) -> None:
    """kubeproxy-ext was down while a Service was deleted, a port dropped and an address changed: it sends a
    whole ruleset, of which kata-bridge may make a delta, and knows no earlier one. The guest has, and ends
    these flows; others stay."""
    guest = prepared(node.guest("sb"), tool)
    peer = node.lab.namespace("peer")
    node.lab.link(guest.namespace, peer, ["10.1.0.2/24"], ["10.1.0.1/24"])
    channel = await attached(node, guest, "sb")
    stays, dropped, moved, deleted = (
        *(("10.96.0.10", 53), ("10.96.0.10", 54)),
        *(("10.96.0.11", 53), ("10.96.0.12", 53)),
    )
    before = _udp_services(tool, 1, stays, dropped, moved, deleted)
    await channel.apply(before, [])
    server = node.lab.keep(peer.socket(socket.AF_INET, socket.SOCK_DGRAM))
    server.bind(("10.1.0.1", 5353))
    threading.Thread(target=_echo, args=(server, b"old"), daemon=True).start()
    for number, frontend in enumerate((stays, dropped, moved, deleted)):
        client = node.lab.keep(guest.namespace.socket(socket.AF_INET, socket.SOCK_DGRAM))
        client.settimeout(10)
        client.bind(("10.1.0.2", 40_000 + number))
        client.sendto(b"?", frontend)
        assert client.recv(100) == b"old"
    if case == "agent starts anew":
        guest.stop()
        guest.start()
        channel = await node.channel("sb", after=channel)
    after = _udp_services(tool, 2, stays, ("10.96.0.13", 53))
    change = difference(before, after)
    assert change is not None
    await channel.apply(change if case == "delta" else after, [])
    assert _destinations(guest.namespace.run("conntrack", "-L", "-p", "udp")) == {stays}


def _destinations(listed: str) -> set[tuple[str, int]]:
    """The original destinations of what `conntrack -L` prints."""
    found = re.findall(r"dst=(10\.96\.\S+) sport=\d+ dport=(\d+)", listed)
    return {(ip, int(port)) for ip, port in found}
