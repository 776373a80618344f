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
from tests.lab.ruleset.peers import DATAGRAM, Servers, exchange, outcome, wait_until_reachable
from tests.unit.ruleset.models import TCP, everything

ROUNDS = 60


class TrafficLab:
    """A guest, its reachable hosts, and the addresses of `models.everything`, in the guest's family."""

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
def traffic(lab: Lab, filter_: LabFilter) -> TrafficLab:
    return TrafficLab(lab, filter_)


def _service(ip: str, port: int, to: EndpointSet | NoBackendAction) -> ServiceRules:
    return ServiceRules("a/s", (Frontend(ip, port, TCP, "a/s", to),))


def test_each_kind_of_service_is_reached(traffic: TrafficLab) -> None:
    traffic.filter.apply(everything(traffic.filter.family))
    web = {traffic.end(3), traffic.end(4), traffic.end(5)}
    assert traffic.ends(traffic.vip(43), 80) == web
    assert traffic.ends(traffic.ip("10.96.0.7", "fd00:96::7"), 80) == web
    assert traffic.ends(traffic.vip(45), 80) == {traffic.end(3), traffic.end(4)}
    assert traffic.ends(traffic.vip(41), 53) == {traffic.end(3, 5353), traffic.end(4, 5353)}
    assert {outcome(traffic.guest, traffic.vip(41), 53, DATAGRAM) for _ in range(ROUNDS)} == {
        traffic.end(3, 5353),
        traffic.end(4, 5353),
    }
    assert outcome(traffic.guest, traffic.vip(42), 443) == traffic.end(3)
    assert exchange(traffic.guest, traffic.vip(42), 443) == f"{traffic.end(3)} {traffic.own}"
    assert outcome(traffic.guest, traffic.vip(46), 80) == "reject"
    assert outcome(traffic.guest, traffic.vip(46), 80, DATAGRAM) == "reject"
    assert outcome(traffic.guest, traffic.vip(47), 80) == "drop"


def test_other_packets_to_service_ranges_are_rejected(traffic: TrafficLab) -> None:
    rules = everything(traffic.filter.family)
    traffic.filter.apply(rules)
    assert outcome(traffic.guest, traffic.vip(43), 81) == "reject", "unknown port"
    assert outcome(traffic.guest, traffic.vip(99), 80) == "reject", "unknown address"
    assert outcome(traffic.guest, traffic.vip(43), 80, DATAGRAM) == "reject", "unknown protocol"
    assert outcome(traffic.guest, traffic.end(3).rpartition(":")[0].strip("[]"), 8080) == traffic.end(3), (
        "no service"
    )
    outside = traffic.ip("172.30.9.9", "fd00:172::909")
    assert outcome(traffic.guest, outside, 80) == "reject"
    traffic.filter.apply(replace(rules, service_cidrs=()))
    assert outcome(traffic.guest, outside, 80) == str(Endpoint(outside, 80)), "off where no range is known"


def test_endpoint_in_the_service_range_is_reached(traffic: TrafficLab) -> None:
    """filter returns translated packets, though they are addressed to the range."""
    inside = Endpoint(traffic.ip("172.30.9.9", "fd00:172::909"), 80)
    target = EndpointSet("a/s", TCP, False, (inside,))
    rules = GuestRules(
        traffic.filter.family,
        (_service(traffic.vip(50), 80, target),),
        everything(traffic.filter.family).service_cidrs,
    )
    traffic.filter.apply(rules)
    assert outcome(traffic.guest, traffic.vip(50), 80) == str(inside)


def test_endpoints_share_connections_equally(traffic: TrafficLab) -> None:
    traffic.filter.apply(everything(traffic.filter.family))
    counts = Counter(outcome(traffic.guest, traffic.vip(43), 80) for _ in range(300))
    # Binomial(300, 1/3): five standard deviations are 41.
    assert all(59 <= count <= 141 for count in counts.values()), counts


def test_affinity_keeps_its_clients_when_rules_change(traffic: TrafficLab) -> None:
    family = traffic.filter.family
    rules = everything(family)
    traffic.filter.apply(rules)
    first = outcome(traffic.guest, traffic.vip(44), 80)
    assert traffic.ends(traffic.vip(44), 80) == {first}
    before = state_digest([traffic.filter.installed()])
    # Another Service changes and all our rules are written again: the client stays.
    traffic.filter.apply(replace(rules, services=rules.services[:-1]))
    assert state_digest([traffic.filter.installed()]) != before
    assert traffic.ends(traffic.vip(44), 80) == {first}


def test_traffic_does_not_change_the_state_digest(traffic: TrafficLab) -> None:
    traffic.filter.apply(everything(traffic.filter.family))
    before = state_digest([traffic.filter.installed()])
    for last, port in ((43, 80), (44, 80), (46, 80), (41, 53), (99, 80)):
        outcome(traffic.guest, traffic.vip(last), port)
    assert state_digest([traffic.filter.installed()]) == before


def test_pod_reaches_itself_by_its_service(traffic: TrafficLab) -> None:
    own = Endpoint(traffic.own, 8080)
    target = EndpointSet("a/s", TCP, False, (own,))
    traffic.filter.apply(GuestRules(traffic.filter.family, (_service(traffic.vip(50), 80, target),)))
    assert exchange(traffic.guest, traffic.vip(50), 80) == f"{own} {traffic.own}"


def test_node_port_does_not_take_the_pods_own_port(traffic: TrafficLab) -> None:
    """`models.everything` has frontends with loopback and any address at 30080, which are not rendered."""
    traffic.filter.apply(everything(traffic.filter.family))
    own = traffic.ip("127.0.0.1", "::1")
    assert outcome(traffic.guest, own, 30080) == str(Endpoint(own, 30080))
    assert outcome(traffic.guest, traffic.own, 30080) == "reject", "no listener there"


@pytest.mark.parametrize("is_later", [False, True], ids=["mesh first", "mesh later"])
def test_mesh_sees_cluster_ips_first(traffic: TrafficLab, is_later: bool) -> None:
    rules = everything(traffic.filter.family)
    if is_later:
        traffic.filter.apply(rules)
    traffic.filter.restore(
        "*nat\n:MESH - [0:0]\n-A OUTPUT -p tcp -j MESH\n"
        "-A MESH -p tcp -m tcp --dport 443 -j RETURN\n"
        "-A MESH -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 15001\nCOMMIT\n",
        "--noflush",
    )
    traffic.filter.apply(rules)
    proxy = str(Endpoint(traffic.ip("127.0.0.1", "::1"), 15001))
    assert traffic.ends(traffic.vip(43), 80) == {proxy}
    assert outcome(traffic.guest, traffic.vip(42), 443) == traffic.end(3), (
        "packets that the mesh returns come to our rules"
    )
