# SPDX-License-Identifier: Apache-2.0
"""Packets under the rules, in a guest with three endpoints on the other side of a link."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from ruleset.installed.rules import state_digest
from ruleset.model import Endpoint, EndpointSet, Family, Frontend, GuestRules, NoBackendAction, ServiceRules
from tests.lab.namespaces import Lab
from tests.lab.ruleset.filters import LabFilter
from tests.lab.ruleset.peers import DATAGRAM, Servers, ask, outcome, wait_until_reachable
from tests.unit.ruleset.models import TCP, everything

ROUNDS = 60


class TrafficLab:
    """A guest, what it reaches, and the addresses of `models.everything`, in the guest's family."""

    def __init__(self, lab: Lab, filter_: LabFilter) -> None:
        self.filter = filter_
        self.guest = filter_.namespace
        self.is_six = filter_.family is Family.IPV6
        far = lab.namespace("far")
        hosts = [self.ip(f"10.1.0.{i}", f"fd00:1::{i}") for i in (3, 4, 5)]
        length = "64" if self.is_six else "24"
        own = self.ip("10.1.0.2", "fd00:1::2")
        more = [f"{self.ip('172.30.9.9', 'fd00:172::909')}/{'128' if self.is_six else '32'}"]
        lab.link(self.guest, far, [f"{own}/{length}"], [*(f"{ip}/{length}" for ip in hosts), *more])
        self.own = own
        servers = Servers(lab)
        servers.listen(far, [Endpoint(ip, port) for ip in hosts for port in (8080, 5353)])
        servers.listen(far, [Endpoint(ip, 5353) for ip in hosts], DATAGRAM)
        servers.listen(far, [Endpoint(self.ip("172.30.9.9", "fd00:172::909"), 80)])
        servers.listen(self.guest, [Endpoint(own, 8080), Endpoint(self.ip("127.0.0.1", "::1"), 30080)])
        servers.listen(self.guest, [Endpoint(self.ip("127.0.0.1", "::1"), 15001)])
        servers.start()
        wait_until_reachable(self.guest, [Endpoint(ip, 8080) for ip in hosts])

    def ip(self, four: str, six: str) -> str:
        return six if self.is_six else four

    def vip(self, last: int) -> str:
        return self.ip(f"172.30.0.{last}", f"fd00:172::{last}")

    def end(self, last: int, port: int = 8080) -> str:
        return str(Endpoint(self.ip(f"10.1.0.{last}", f"fd00:1::{last}"), port))

    def ends(self, ip: str, port: int) -> set[str]:
        return {outcome(self.guest, ip, port) for _ in range(ROUNDS)}


@pytest.fixture
def world(lab: Lab, filter_: LabFilter) -> TrafficLab:
    return TrafficLab(lab, filter_)


def _service(ip: str, port: int, to: EndpointSet | NoBackendAction) -> ServiceRules:
    return ServiceRules("a/s", (Frontend(ip, port, TCP, "a/s", to),))


def test_each_kind_of_service_is_reached(world: TrafficLab) -> None:
    world.filter.apply(everything(world.filter.family))
    web = {world.end(3), world.end(4), world.end(5)}
    assert world.ends(world.vip(43), 80) == web
    assert world.ends(world.ip("10.96.0.7", "fd00:96::7"), 80) == web
    assert world.ends(world.vip(45), 80) == {world.end(3), world.end(4)}
    assert world.ends(world.vip(41), 53) == {world.end(3, 5353), world.end(4, 5353)}
    assert {outcome(world.guest, world.vip(41), 53, DATAGRAM) for _ in range(ROUNDS)} == {
        world.end(3, 5353),
        world.end(4, 5353),
    }
    assert outcome(world.guest, world.vip(42), 443) == world.end(3)
    assert ask(world.guest, world.vip(42), 443) == f"{world.end(3)} {world.own}"
    assert outcome(world.guest, world.vip(46), 80) == "reject"
    assert outcome(world.guest, world.vip(46), 80, DATAGRAM) == "reject"
    assert outcome(world.guest, world.vip(47), 80) == "drop"


def test_other_packets_to_service_ranges_are_rejected(world: TrafficLab) -> None:
    rules = everything(world.filter.family)
    world.filter.apply(rules)
    assert outcome(world.guest, world.vip(43), 81) == "reject", "unknown port"
    assert outcome(world.guest, world.vip(99), 80) == "reject", "unknown address"
    assert outcome(world.guest, world.vip(43), 80, DATAGRAM) == "reject", "unknown protocol"
    assert outcome(world.guest, world.end(3).rpartition(":")[0].strip("[]"), 8080) == world.end(3), (
        "no service"
    )
    outside = world.ip("172.30.9.9", "fd00:172::909")
    assert outcome(world.guest, outside, 80) == "reject"
    world.filter.apply(replace(rules, service_cidrs=()))
    assert outcome(world.guest, outside, 80) == str(Endpoint(outside, 80)), "off where no range is known"


def test_endpoint_in_the_service_range_is_reached(world: TrafficLab) -> None:
    """filter returns translated packets, though they are addressed to the range."""
    inside = Endpoint(world.ip("172.30.9.9", "fd00:172::909"), 80)
    target = EndpointSet("a/s", TCP, False, (inside,))
    rules = GuestRules(
        world.filter.family,
        (_service(world.vip(50), 80, target),),
        everything(world.filter.family).service_cidrs,
    )
    world.filter.apply(rules)
    assert outcome(world.guest, world.vip(50), 80) == str(inside)


def test_endpoints_share_connections_equally(world: TrafficLab) -> None:
    world.filter.apply(everything(world.filter.family))
    counts = Counter(outcome(world.guest, world.vip(43), 80) for _ in range(300))
    # Binomial(300, 1/3): five standard deviations are 41.
    assert all(59 <= count <= 141 for count in counts.values()), counts


def test_affinity_keeps_its_clients_when_rules_change(world: TrafficLab) -> None:
    family = world.filter.family
    rules = everything(family)
    world.filter.apply(rules)
    first = outcome(world.guest, world.vip(44), 80)
    assert world.ends(world.vip(44), 80) == {first}
    before = state_digest([world.filter.installed()])
    # Another Service changes and all our rules are written again: the client stays.
    world.filter.apply(replace(rules, services=rules.services[:-1]))
    assert state_digest([world.filter.installed()]) != before
    assert world.ends(world.vip(44), 80) == {first}


def test_traffic_does_not_change_the_state_digest(world: TrafficLab) -> None:
    world.filter.apply(everything(world.filter.family))
    before = state_digest([world.filter.installed()])
    for last, port in ((43, 80), (44, 80), (46, 80), (41, 53), (99, 80)):
        outcome(world.guest, world.vip(last), port)
    assert state_digest([world.filter.installed()]) == before


def test_pod_reaches_itself_by_its_service(world: TrafficLab) -> None:
    own = Endpoint(world.own, 8080)
    target = EndpointSet("a/s", TCP, False, (own,))
    world.filter.apply(GuestRules(world.filter.family, (_service(world.vip(50), 80, target),)))
    assert ask(world.guest, world.vip(50), 80) == f"{own} {world.own}"


def test_node_port_does_not_take_the_pods_own_port(world: TrafficLab) -> None:
    """`models.everything` has frontends with loopback and any address at 30080, which are not rendered."""
    world.filter.apply(everything(world.filter.family))
    own = world.ip("127.0.0.1", "::1")
    assert outcome(world.guest, own, 30080) == str(Endpoint(own, 30080))
    assert outcome(world.guest, world.own, 30080) == "reject", "nobody listens there"


@pytest.mark.parametrize("is_later", [False, True], ids=["mesh first", "mesh later"])
def test_mesh_sees_cluster_ips_first(world: TrafficLab, is_later: bool) -> None:
    rules = everything(world.filter.family)
    if is_later:
        world.filter.apply(rules)
    world.filter.restore(
        "*nat\n:MESH - [0:0]\n-A OUTPUT -p tcp -j MESH\n"
        "-A MESH -p tcp -m tcp --dport 443 -j RETURN\n"
        "-A MESH -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 15001\nCOMMIT\n",
        "--noflush",
    )
    world.filter.apply(rules)
    proxy = str(Endpoint(world.ip("127.0.0.1", "::1"), 15001))
    assert world.ends(world.vip(43), 80) == {proxy}
    assert outcome(world.guest, world.vip(42), 443) == world.end(3), (
        "packets that the mesh returns come to our rules"
    )
